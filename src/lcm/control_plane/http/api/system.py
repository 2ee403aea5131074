"""The manager itself: how it is, and what its controllers say of themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import LeaderDep, Viewer
from lcm.control_plane.http.pagination import error_responses
from lcm.control_plane.services import get_services
from lcm.model.access import Ack
from lcm.model.problems import ProblemCode
from lcm.model.system import ControllerReport, SystemHealth

router = APIRouter(prefix="/api", tags=["system"], responses=error_responses(401, 403, 422, 429))
ControllerNamePath = Annotated[
    str, Path(pattern=r"^[a-z][a-z0-9-]{0,63}$", description="Its name, such as worker-controller")
]


@router.get("/system")
async def system(request: Request, caller: Viewer) -> SystemHealth:
    """The control plane, each controller with its last report and what to think of it, and what is suspended."""
    return await get_services(request).system.health()


@router.post("/internal/controllers/{name}/report", responses=error_responses(400, 409))
async def report(request: Request, leader: LeaderDep, name: ControllerNamePath, body: ControllerReport) -> Ack:
    """How a controller that leads is. The last report is kept; nobody is told."""
    if name != leader.controller:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"name: {leader.controller} cannot report for {name}")
    await get_services(request).system.report(leader, body)
    return Ack()
