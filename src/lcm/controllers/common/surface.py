"""A controller's own HTTP surface: what anybody may ask, and what admins may ask and do."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.errors import ClientError, NotFound
from lcm.controllers.common.admin_api import Refused, tell_problems
from lcm.http.server import open_routes
from lcm.model.access import WhoAmI
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lcm.controllers.common.admin_auth import Doorkeeper
    from lcm.core.controller.leader_election import LeaderElectedHostedService
    from lcm.core.hosting import HostedService

log = structlog.get_logger(__name__)

_LARGEST_BODY = 4096
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class Told:
    """What a surface has to be told of its controller."""

    title: str
    """What the controller is called in sentences: `worker controller`."""

    noun: str
    """What it looks after: `worker`. One of them is named by `worker_id`."""

    stats: Callable[[], dict[str, Any]]
    """What `/admin/stats` answers."""

    find: Callable[[str], Awaitable[object]]
    """Looks one up by its id; `NotFound` where there is none."""


def make_surface(
    controller: LeaderElectedHostedService[Any],
    doorkeeper: Doorkeeper,
    services: Sequence[HostedService],
    info: Mapping[str, object],
    told: Told,
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
    app.include_router(open_routes(services, info, registry))
    app.include_router(_admin_routes(controller, doorkeeper, told))
    tell_problems(app, told.title)
    return app


def _admin_routes(controller: LeaderElectedHostedService[Any], doorkeeper: Doorkeeper, told: Told) -> APIRouter:
    """What needs the role admin, by a token of the control plane."""

    async def admin(request: Request) -> WhoAmI:
        return await doorkeeper.admit(request.headers.get("Authorization"))

    router = APIRouter(prefix="/admin", tags=["admin"])
    by_admin = Depends(admin)

    @router.get("/stats", dependencies=[by_admin])
    async def stats() -> dict[str, Any]:
        """Counters since the process began, and how it stands with the rest of its work."""
        return told.stats()

    @router.post("/trigger-reconcile", status_code=202, openapi_extra=_body_document(told.noun))
    async def trigger_reconcile(request: Request, caller: WhoAmI = by_admin) -> dict[str, Any]:
        """Look at one, or at all, as soon as possible, whatever backoff it is in."""
        named = await _read_trigger(request, f"{told.noun}_id")
        _must_lead(controller)
        if named is not None:
            await _must_be_known(told, named)
        log.info("reconcile asked for", **{told.noun: named or "all"}, by=caller.name)
        controller.trigger(named)
        return {"triggered": named or "all"}

    @router.post("/resign-leadership", status_code=202)
    async def resign_leadership(caller: WhoAmI = by_admin) -> dict[str, Any]:
        """Finish what is under way, hand leadership over, and stand by."""
        _must_lead(controller)
        term = controller.term
        log.warning("hand-over asked for", term=term, by=caller.name)
        controller.resign()
        return {"resigned": controller.election.instance_id, "term": term}

    return router


def _body_document(noun: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"{noun}_id": {"type": "string"}}}
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": schema}}}}


async def _read_trigger(request: Request, field: str) -> str | None:
    """Read by hand, after the caller was let in: nobody else's body is read at all, and none that is long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise Refused(ProblemCode.TOO_LARGE, f"the body must have at most {_LARGEST_BODY} bytes")
    if not body.strip():
        return None
    try:
        asked = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise Refused(ProblemCode.INVALID, "body: must be JSON") from None
    if not isinstance(asked, dict):
        raise Refused(ProblemCode.INVALID, "body: must be an object")
    if unknown := sorted(set(asked) - {field}):
        raise Refused(ProblemCode.INVALID, f"{unknown[0][:64]}: is not known here; only {field} is")
    named = asked.get(field)
    if named is not None and not (isinstance(named, str) and _ID.fullmatch(named)):
        raise Refused(ProblemCode.INVALID, f"{field}: must be an id")
    return named


def _must_lead(controller: LeaderElectedHostedService[Any]) -> None:
    if not controller.is_leader:
        leader = controller.leader_seen
        who = f"{leader} leads: ask there" if leader else "nobody is known to lead now"
        detail = f"{controller.election.instance_id} does not lead; {who}"
        raise Refused(ProblemCode.NOT_POSSIBLE_NOW, detail, {"leader": leader})


async def _must_be_known(told: Told, named: str) -> None:
    try:
        await told.find(named)
    except NotFound:
        raise Refused(ProblemCode.NOT_FOUND, f"there is no {told.noun} {named}") from None
    except ClientError as error:
        detail = f"the control plane cannot be asked for the {told.noun}: {error}"
        raise Refused(ProblemCode.UNAVAILABLE, detail) from error
