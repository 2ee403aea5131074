"""The manager itself: how it is, and what its controllers say of themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from lcm.control_plane.errors import Refusal
from lcm.control_plane.http.deps import TheLeader, Viewer
from lcm.control_plane.http.pagination import documented
from lcm.control_plane.services import parts
from lcm.model.answers import Kept
from lcm.model.model_system import SystemHealth
from lcm.model.problems import ProblemCode
from lcm.model.system import ControllerReport

router = APIRouter(prefix="/api", tags=["system"], responses=documented(401, 403, 422, 429))
ControllerName = Annotated[
    str, Path(pattern=r"^[a-z][a-z0-9-]{0,63}$", description="Its name, such as worker-controller")
]


@router.get("/system")
async def system(request: Request, caller: Viewer) -> SystemHealth:
    """The control plane, each controller with its last report and what to think of it, and what is suspended."""
    return await parts(request).system.health()


@router.post("/internal/controllers/{name}/report", responses=documented(400, 409))
async def report(request: Request, leader: TheLeader, name: ControllerName, body: ControllerReport) -> Kept:
    """How a controller that leads is. The last report is kept; nobody is told."""
    if name != leader.controller:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, f"name: {leader.controller} cannot report for {name}")
    await parts(request).system.report(leader, body)
    return Kept()
