"""The worker controller's own HTTP surface: what anybody may ask, and what admins may ask and do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import REGISTRY, CollectorRegistry
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException

from lcm.client.errors import ClientError, NotFound
from lcm.core.surface import open_routes
from lcm.model.access import WhoAmI
from lcm.model.base import Data
from lcm.model.problems import MEDIA_TYPE, STATUS, TITLES, Problem, ProblemCode
from lcm.worker_controller.doorkeeper import Doorkeeper, KeptOut
from lcm.worker_controller.figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.core.hosting import HostedService
    from lcm.worker_controller.reconciler import WorkerReconciler

log = structlog.get_logger(__name__)

_LARGEST_BODY = 4096
_BODY_DOCUMENT: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {"schema": {"type": "object", "properties": {"worker_id": {"type": "string"}}}}
        },
    }
}


class Trigger(Data):
    """Which worker to look at; none: all."""

    worker_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")] | None = None


class Refused(Exception):
    """What was asked for is not possible; the text says why."""

    def __init__(self, code: ProblemCode, detail: str, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.current = current


def make_surface(
    reconciler: WorkerReconciler,
    doorkeeper: Doorkeeper,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
) -> FastAPI:
    """The app. `services` are those whose readiness counts, the reconciler among them."""
    app = FastAPI(
        title="LCM worker controller",
        version=str(info.get("version", "")),
        description="Health and metrics for anybody; statistics, a push and a hand-over for admins.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(open_routes(services, info, registry))
    app.include_router(admin_routes(reconciler, doorkeeper))
    _tell_problems(app)
    return app


def admin_routes(reconciler: WorkerReconciler, doorkeeper: Doorkeeper) -> APIRouter:
    """What needs the role admin, by a token of the control plane."""

    async def admin(request: Request) -> WhoAmI:
        return await doorkeeper.admit(request.headers.get("Authorization"))

    router = APIRouter(prefix="/admin", tags=["admin"])
    by_admin = Depends(admin)

    @router.get("/stats", dependencies=[by_admin])
    async def stats() -> dict[str, Any]:
        """Counters since the process began, and how it stands with queue, regions, discovery and figures."""
        return figures_of(reconciler)

    @router.post("/trigger-reconcile", status_code=202, openapi_extra=_BODY_DOCUMENT)
    async def trigger_reconcile(request: Request, caller: WhoAmI = by_admin) -> dict[str, Any]:
        """Look at one worker, or at all, as soon as possible, whatever backoff it is in."""
        worker_id = (await _read_trigger(request)).worker_id
        _must_lead(reconciler)
        if worker_id is not None:
            await _must_be_known(reconciler, worker_id)
        log.info("reconcile asked for", worker=worker_id or "all", by=caller.name)
        reconciler.trigger(worker_id)
        return {"triggered": worker_id or "all"}

    @router.post("/resign-leadership", status_code=202)
    async def resign_leadership(caller: WhoAmI = by_admin) -> dict[str, Any]:
        """Finish what is under way, hand leadership over, and stand by."""
        _must_lead(reconciler)
        term = reconciler.term
        log.warning("hand-over asked for", term=term, by=caller.name)
        reconciler.resign()
        return {"resigned": reconciler.election.instance_id, "term": term}

    return router


async def _read_trigger(request: Request) -> Trigger:
    """Read by hand, after the caller was let in: nobody else's body is read at all, and none that is long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise Refused(ProblemCode.TOO_LARGE, f"the body must have at most {_LARGEST_BODY} bytes")
    try:
        return Trigger.model_validate_json(bytes(body)) if body.strip() else Trigger()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Refused(ProblemCode.INVALID, f"{where}: {first['msg']}") from None


def _must_lead(reconciler: WorkerReconciler) -> None:
    if not reconciler.is_leader:
        leader = reconciler.leader_seen
        who = f"{leader} leads: ask there" if leader else "nobody is known to lead now"
        detail = f"{reconciler.election.instance_id} does not lead; {who}"
        raise Refused(ProblemCode.NOT_POSSIBLE_NOW, detail, {"leader": leader})


async def _must_be_known(reconciler: WorkerReconciler, worker_id: str) -> None:
    if worker_id in reconciler.records:
        return
    try:
        await reconciler.internal.worker(worker_id)
    except NotFound:
        raise Refused(ProblemCode.NOT_FOUND, f"there is no worker {worker_id}") from None
    except ClientError as error:
        detail = f"the control plane cannot be asked for the worker: {error}"
        raise Refused(ProblemCode.UNAVAILABLE, detail) from error


def _tell_problems(app: FastAPI) -> None:
    @app.exception_handler(KeptOut)
    async def kept_out(request: Request, error: KeptOut) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return _problem(request, error.code, str(error), headers=headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return _problem(request, error.code, str(error), current=error.current)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            detail = f"{request.method} is not possible here"
            return _problem(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers=error.headers)
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        return _problem(request, code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def our_fault(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = "something went wrong on our side; it is in the worker controller's log"
        return _problem(request, ProblemCode.INTERNAL, detail)


def _problem(
    request: Request,
    code: ProblemCode,
    detail: str,
    *,
    current: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    number = STATUS.get(code, 409)
    problem = Problem(
        title=TITLES[number],
        status=number,
        code=code,
        detail=detail,
        instance=request.url.path,
        current=current,
    )
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, number, dict(headers or {}), media_type=MEDIA_TYPE)
