"""The HTTP API of a controller: health and metrics for everyone, statistics and commands for admins."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import REGISTRY, CollectorRegistry
from starlette.exceptions import HTTPException

from lcm.client.errors import ClientError, NotFoundError
from lcm.controllers.common.admin_auth import AdminAuthError
from lcm.http.request_limits import RequestLimitsMiddleware
from lcm.http.server import process_routes
from lcm.model.access import CallerIdentity
from lcm.model.problems import HTTP_STATUS_BY_CODE, PROBLEM_MEDIA_TYPE, TITLE_BY_HTTP_STATUS, Problem, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.core.controller.leader_election import LeaderElectedHostedService
    from lcm.core.hosting import HostedService

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 4096
_RESOURCE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class AdminRequestError(Exception):
    """The request is rejected; the text says why."""

    def __init__(self, code: ProblemCode, detail: str, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.current = current


def install_problem_handlers(app: FastAPI, whose: str) -> None:
    """Return every failure as a problem document. `whose` log has the details of an internal error."""

    @app.exception_handler(AdminAuthError)
    async def auth_error(request: Request, error: AdminAuthError) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return _problem_response(request, error.code, str(error), headers=headers)

    @app.exception_handler(AdminRequestError)
    async def request_error(request: Request, error: AdminRequestError) -> Response:
        return _problem_response(request, error.code, str(error), current=error.current)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            detail = f"{request.method} is not allowed here"
            return _problem_response(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers=error.headers)
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        return _problem_response(request, code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def internal_error(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = f"internal error; see the {whose}'s log"
        return _problem_response(request, ProblemCode.INTERNAL, detail)


def _problem_response(
    request: Request,
    code: ProblemCode,
    detail: str,
    *,
    current: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    number = HTTP_STATUS_BY_CODE.get(code, 409)
    problem = Problem(
        title=TITLE_BY_HTTP_STATUS[number],
        status=number,
        code=code,
        detail=detail,
        instance=request.url.path,
        current=current,
    )
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, number, dict(headers or {}), media_type=PROBLEM_MEDIA_TYPE)


@dataclass(frozen=True, slots=True)
class AdminInfo:
    """The controller that an admin API belongs to."""

    title: str
    """The controller's name in sentences: `worker controller`."""

    noun: str
    """The resource it manages: `worker`. The field `worker_id` names one."""

    stats: Callable[[], dict[str, Any]]
    """The response of `/admin/stats`."""

    find: Callable[[str], Awaitable[object]]
    """Looks up a resource by its id; raises `NotFoundError`."""


def make_admin_app(
    controller: LeaderElectedHostedService[Any],
    authenticator: AdminAuthenticator,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    admin_info: AdminInfo,
    registry: CollectorRegistry = REGISTRY,
    *,
    more: APIRouter | None = None,
    max_body: Callable[[str], int] = lambda _path: MAX_BODY_BYTES,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, including the controller; `more` are further routes."""
    app = FastAPI(
        title=f"LCM {admin_info.title}",
        version=str(info.get("version", "")),
        description="Health and metrics for everyone; statistics, triggers and leadership hand-over for admins.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(process_routes(services, info, registry))
    app.include_router(_admin_routes(controller, authenticator, admin_info))
    if more is not None:
        app.include_router(more)
    install_problem_handlers(app, admin_info.title)
    app.add_middleware(RequestLimitsMiddleware, max_body=max_body)
    return app


def _admin_routes(
    controller: LeaderElectedHostedService[Any], authenticator: AdminAuthenticator, admin_info: AdminInfo
) -> APIRouter:
    """The routes that need a control plane token with the role admin."""

    async def admin(request: Request) -> CallerIdentity:
        client = request.client.host if request.client else ""
        return await authenticator.authenticate(request.headers.get("Authorization"), client=client)

    router = APIRouter(prefix="/admin", tags=["admin"])
    by_admin = Depends(admin)

    @router.get("/stats", dependencies=[by_admin])
    async def stats() -> dict[str, Any]:
        """Counters since the process started, and the state of its work."""
        return admin_info.stats()

    @router.post("/trigger-reconcile", status_code=202, openapi_extra=_trigger_body_schema(admin_info.noun))
    async def trigger_reconcile(request: Request, caller: CallerIdentity = by_admin) -> dict[str, Any]:
        """Reconcile one resource, or all, as soon as possible, ending any backoff."""
        named = await _read_resource_id(request, f"{admin_info.noun}_id")
        _require_leader(controller)
        if named is not None:
            await _require_exists(admin_info, named)
        log.info("reconcile requested", **{admin_info.noun: named or "all"}, by=caller.name)
        controller.trigger(named)
        return {"triggered": named or "all"}

    @router.post("/resign-leadership", status_code=202)
    async def resign_leadership(caller: CallerIdentity = by_admin) -> dict[str, Any]:
        """Finish running passes, hand leadership over, and become a standby."""
        _require_leader(controller)
        term = controller.term
        log.warning("hand-over requested", term=term, by=caller.name)
        controller.resign()
        return {"resigned": controller.election.instance_id, "term": term}

    return router


def _trigger_body_schema(noun: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"{noun}_id": {"type": "string"}}}
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": schema}}}}


async def _read_resource_id(request: Request, field: str) -> str | None:
    """The id in the body; None without one."""
    body = await request.body()
    if not body.strip():
        return None
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise AdminRequestError(ProblemCode.INVALID, "body: must be JSON") from None
    if not isinstance(content, dict):
        raise AdminRequestError(ProblemCode.INVALID, "body: must be an object")
    if unknown := sorted(set(content) - {field}):
        raise AdminRequestError(
            ProblemCode.INVALID, f"{unknown[0][:64]}: is not a known field; the only field is {field}"
        )
    named = content.get(field)
    if named is not None and not (isinstance(named, str) and _RESOURCE_ID.fullmatch(named)):
        raise AdminRequestError(ProblemCode.INVALID, f"{field}: must be an id")
    return named


def _require_leader(controller: LeaderElectedHostedService[Any]) -> None:
    if not controller.is_leader:
        leader = controller.known_leader
        who = f"send the request to the leader, {leader}" if leader else "there is no known leader now"
        detail = f"{controller.election.instance_id} is not the leader; {who}"
        raise AdminRequestError(ProblemCode.NOT_POSSIBLE_NOW, detail, {"leader": leader})


async def _require_exists(admin_info: AdminInfo, named: str) -> None:
    try:
        await admin_info.find(named)
    except NotFoundError:
        raise AdminRequestError(ProblemCode.NOT_FOUND, f"there is no {admin_info.noun} {named}") from None
    except ClientError as error:
        detail = f"the control plane cannot look up the {admin_info.noun}: {error}"
        raise AdminRequestError(ProblemCode.UNAVAILABLE, detail) from error
