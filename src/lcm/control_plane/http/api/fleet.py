"""The fleet, its settings and the plan."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from lcm.control_plane.fleet.settings import patch_fleet_settings
from lcm.control_plane.http.api.workers import Cursor, Limit
from lcm.control_plane.http.deps import Admin, Operator, Viewer
from lcm.control_plane.http.pagination import error_responses
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.control_plane.services import get_services
from lcm.model.access import LeadershipReset
from lcm.model.base import RegionName
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.fleet.state import FleetPlan, FleetState, FleetSummary
from lcm.model.worker.requests import HoldRequest

router = APIRouter(prefix="/api", tags=["fleet"], responses=error_responses(401, 403, 422, 429))


@router.get("/fleet")
async def fleet_summary(request: Request, caller: Viewer) -> FleetSummary:
    """Counts, capacity, cost, what is suspended and who leads."""
    return await get_services(request).fleet.summary()


@router.get("/plan")
async def plan(request: Request, caller: Viewer, limit: Limit = 100, cursor: Cursor = None) -> FleetPlan:
    """What would be done now, and why."""
    return await get_services(request).fleet.plan(cursor, limit)


@router.post("/fleet/hold", status_code=202, responses=error_responses(409))
async def hold_fleet(request: Request, caller: Operator, body: HoldRequest) -> FleetState:
    """Stop all changes of all workers."""
    return await get_services(request).fleet.hold(caller, body)


@router.post("/fleet/release", status_code=202)
async def release_fleet(request: Request, caller: Operator) -> FleetState:
    """Let changes go on."""
    return await get_services(request).fleet.release(caller)


@router.post("/fleet/breaker/reset", status_code=202)
async def reset_breaker(
    request: Request, caller: Admin, region: Annotated[RegionName | None, Query(description="Only its breaker")] = None
) -> FleetState:
    """Close the breakers, or that of one region."""
    return await get_services(request).fleet.reset_breakers(caller, region)


@router.post("/leadership/{controller}/reset", status_code=202, responses=error_responses(404))
async def reset_leadership(
    request: Request,
    caller: Admin,
    controller: Annotated[
        str, Path(pattern=r"^[a-z][a-z0-9-]{0,63}$", description="Its name, such as worker-controller")
    ],
) -> LeadershipReset:
    """Forget the newest term of a controller: for an etcd that was replaced and counts from the beginning."""
    await get_services(request).plane.records.change(caller.actor, lambda change: change.reset_leadership(controller))
    return LeadershipReset(controller=controller)


@router.get("/settings")
async def settings(request: Request, caller: Viewer) -> FleetSettings:
    """What counts now."""
    return await get_services(request).plane.settings()


@router.patch("/settings")
async def change_settings(request: Request, caller: Admin, body: FleetSettingsPatch) -> FleetSettings:
    """Store values that beat the environment; null takes one back."""
    plane = get_services(request).plane

    async def attempt(change: Transaction) -> FleetSettings:
        return await patch_fleet_settings(change, plane.base_settings, body)

    return await plane.records.change(caller.actor, attempt)
