"""Refusals of a controller's own surface, told as the API tells its own."""

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
from lcm.http.server import process_routes
from lcm.model.access import CallerIdentity
from lcm.model.problems import HTTP_STATUS_BY_CODE, PROBLEM_MEDIA_TYPE, TITLE_BY_HTTP_STATUS, Problem, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.core.controller.leader_election import LeaderElectedHostedService
    from lcm.core.hosting import HostedService


log = structlog.get_logger(__name__)


class AdminRequestError(Exception):
    """What was asked for is not possible; the text says why."""

    def __init__(self, code: ProblemCode, detail: str, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.current = current


def install_problem_handlers(app: FastAPI, whose: str) -> None:
    """Tell every failure as a problem. `whose` log holds what went wrong on our side."""

    @app.exception_handler(AdminAuthError)
    async def kept_out(request: Request, error: AdminAuthError) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return _problem_response(request, error.code, str(error), headers=headers)

    @app.exception_handler(AdminRequestError)
    async def refused(request: Request, error: AdminRequestError) -> Response:
        return _problem_response(request, error.code, str(error), current=error.current)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            detail = f"{request.method} is not possible here"
            return _problem_response(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers=error.headers)
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        return _problem_response(request, code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def our_fault(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = f"something went wrong on our side; it is in the {whose}'s log"
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


_MAX_BODY_BYTES = 4096
_RESOURCE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class AdminInfo:
    """What a surface has to be told of its controller."""

    title: str
    """What the controller is called in sentences: `worker controller`."""

    noun: str
    """What it looks after: `worker`. One of them is named by `worker_id`."""

    stats: Callable[[], dict[str, Any]]
    """What `/admin/stats` answers."""

    find: Callable[[str], Awaitable[object]]
    """Looks one up by its id; `NotFoundError` where there is none."""


def make_admin_app(
    controller: LeaderElectedHostedService[Any],
    doorkeeper: AdminAuthenticator,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    told: AdminInfo,
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the controller among them."""
    app = FastAPI(
        title=f"LCM {told.title}",
        version=str(info.get("version", "")),
        description="Health and metrics for anybody; statistics, a push and a hand-over for admins.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(process_routes(services, info, registry))
    app.include_router(_admin_routes(controller, doorkeeper, told))
    install_problem_handlers(app, told.title)
    return app


def _admin_routes(
    controller: LeaderElectedHostedService[Any], doorkeeper: AdminAuthenticator, told: AdminInfo
) -> APIRouter:
    """What needs the role admin, by a token of the control plane."""

    async def admin(request: Request) -> CallerIdentity:
        return await doorkeeper.admit(request.headers.get("Authorization"))

    router = APIRouter(prefix="/admin", tags=["admin"])
    by_admin = Depends(admin)

    @router.get("/stats", dependencies=[by_admin])
    async def stats() -> dict[str, Any]:
        """Counters since the process began, and how it stands with the rest of its work."""
        return told.stats()

    @router.post("/trigger-reconcile", status_code=202, openapi_extra=_trigger_body_schema(told.noun))
    async def trigger_reconcile(request: Request, caller: CallerIdentity = by_admin) -> dict[str, Any]:
        """Look at one, or at all, as soon as possible, whatever backoff it is in."""
        named = await _read_resource_id(request, f"{told.noun}_id")
        _require_leader(controller)
        if named is not None:
            await _require_exists(told, named)
        log.info("reconcile asked for", **{told.noun: named or "all"}, by=caller.name)
        controller.trigger(named)
        return {"triggered": named or "all"}

    @router.post("/resign-leadership", status_code=202)
    async def resign_leadership(caller: CallerIdentity = by_admin) -> dict[str, Any]:
        """Finish what is under way, hand leadership over, and stand by."""
        _require_leader(controller)
        term = controller.term
        log.warning("hand-over asked for", term=term, by=caller.name)
        controller.resign()
        return {"resigned": controller.election.instance_id, "term": term}

    return router


def _trigger_body_schema(noun: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"{noun}_id": {"type": "string"}}}
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": schema}}}}


async def _read_resource_id(request: Request, field: str) -> str | None:
    """Read by hand, after the caller was let in: nobody else's body is read at all, and none that is long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise AdminRequestError(ProblemCode.TOO_LARGE, f"the body must have at most {_MAX_BODY_BYTES} bytes")
    if not body.strip():
        return None
    try:
        asked = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise AdminRequestError(ProblemCode.INVALID, "body: must be JSON") from None
    if not isinstance(asked, dict):
        raise AdminRequestError(ProblemCode.INVALID, "body: must be an object")
    if unknown := sorted(set(asked) - {field}):
        raise AdminRequestError(ProblemCode.INVALID, f"{unknown[0][:64]}: is not known here; only {field} is")
    named = asked.get(field)
    if named is not None and not (isinstance(named, str) and _RESOURCE_ID.fullmatch(named)):
        raise AdminRequestError(ProblemCode.INVALID, f"{field}: must be an id")
    return named


def _require_leader(controller: LeaderElectedHostedService[Any]) -> None:
    if not controller.is_leader:
        leader = controller.known_leader
        who = f"{leader} leads: ask there" if leader else "nobody is known to lead now"
        detail = f"{controller.election.instance_id} does not lead; {who}"
        raise AdminRequestError(ProblemCode.NOT_POSSIBLE_NOW, detail, {"leader": leader})


async def _require_exists(told: AdminInfo, named: str) -> None:
    try:
        await told.find(named)
    except NotFoundError:
        raise AdminRequestError(ProblemCode.NOT_FOUND, f"there is no {told.noun} {named}") from None
    except ClientError as error:
        detail = f"the control plane cannot be asked for the {told.noun}: {error}"
        raise AdminRequestError(ProblemCode.UNAVAILABLE, detail) from error
