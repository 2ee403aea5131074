"""Routes for the fleet as a whole: summary, plan, hold, breakers, settings, and system health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.settings import patch_fleet_settings, preview_fleet_settings
from lcm.control_plane.http.deps import Admin, LeaderDep, Operator, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, Limit
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.control_plane.services import get_services
from lcm.model.base import Ack, RegionName
from lcm.model.change_preview import ChangePreview
from lcm.model.fleet.history import FleetHistory, HistoryRange
from lcm.model.fleet.plan import FleetPlan
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.fleet.settings_preview import SettingsPreview
from lcm.model.fleet.state import FleetState, FleetSummary, LeadershipReset
from lcm.model.problems import ProblemCode
from lcm.model.system import ControllerReport, SystemHealth
from lcm.model.worker.requests import HoldRequest

ControllerNamePath = Annotated[
    str, Path(pattern=r"^[a-z][a-z0-9-]{0,63}$", description="The controller's name, such as worker-controller.")
]

router = APIRouter(prefix="/api", tags=["fleet"], responses=error_responses(401, 403, 422, 429))


@router.get("/fleet")
async def fleet_summary(request: Request, caller: Viewer) -> FleetSummary:
    """Get counts, capacity, cost, holds, breakers and leaders."""
    return await get_services(request).fleet.summary()


@router.get("/fleet/history")
async def fleet_history(
    request: Request,
    caller: Viewer,
    history_range: Annotated[
        HistoryRange, Query(alias="range", description="The last 24 hours, 7 days or 30 days.")
    ] = "24h",
) -> FleetHistory:
    """Get the fleet over time: workers, capacity, use and cost, a sample every five minutes or every hour."""
    return await get_services(request).fleet_history.read(history_range)


@router.get("/plan")
async def plan(request: Request, caller: Viewer, limit: Limit = 100, cursor: Cursor = None) -> FleetPlan:
    """List what will be done next if nothing changes: actions for workers, lablets to place, workers to launch, pauses.

    The decision for each worker says whether it is for the record as it is now. The parts beside `items` are on the
    first page.
    """
    return await get_services(request).plan.page(cursor, limit)


@router.post("/fleet/hold", status_code=202, responses=error_responses(409))
async def hold_fleet(request: Request, caller: Operator, body: HoldRequest) -> FleetState:
    """Hold the fleet: no worker is changed until release."""
    return await get_services(request).fleet.hold(caller, body)


@router.post("/fleet/release", status_code=202)
async def release_fleet(request: Request, caller: Operator) -> FleetState:
    """Release the hold on the fleet."""
    return await get_services(request).fleet.release(caller)


@router.post("/fleet/release/preview")
async def preview_fleet_release(request: Request, caller: Viewer) -> ChangePreview:
    """Preview the release of the fleet: what waits for it and will then be done. Nothing is changed."""
    return await get_services(request).fleet_previews.release()


@router.post("/fleet/hold/preview")
async def preview_fleet_hold(request: Request, caller: Viewer, body: HoldRequest) -> ChangePreview:
    """Preview a hold of the fleet: what will wait for its end, and what it costs meanwhile. Nothing is changed."""
    return await get_services(request).fleet_previews.hold(body)


@router.post("/fleet/breaker/reset/preview")
async def preview_breaker_reset(
    request: Request,
    caller: Viewer,
    region: Annotated[RegionName | None, Query(description="Only the breaker of this region.")] = None,
) -> ChangePreview:
    """Preview the closing of breakers: which workers will then be marked as lost. Nothing is changed."""
    return await get_services(request).fleet_previews.breaker_reset(region)


@router.post("/leadership/{controller}/reset/preview", responses=error_responses(404))
async def preview_leadership_reset(request: Request, caller: Viewer, controller: ControllerNamePath) -> ChangePreview:
    """Preview the reset of a controller's newest term. Nothing is changed."""
    return await get_services(request).fleet_previews.leadership_reset(controller)


@router.post("/fleet/breaker/reset", status_code=202)
async def reset_breaker(
    request: Request,
    caller: Admin,
    region: Annotated[RegionName | None, Query(description="Close the breaker of this region only.")] = None,
) -> FleetState:
    """Close all breakers, or that of one region."""
    return await get_services(request).fleet.reset_breakers(caller, region)


@router.post("/leadership/{controller}/reset", status_code=202, responses=error_responses(404))
async def reset_leadership(
    request: Request,
    caller: Admin,
    controller: ControllerNamePath,
) -> LeadershipReset:
    """Reset the newest term of a controller. Required after etcd was replaced and its terms start again at 1."""
    await get_services(request).context.unit_of_work.run(caller.actor, lambda tx: tx.reset_leadership(controller))
    return LeadershipReset(controller=controller)


@router.get("/settings")
async def settings(request: Request, caller: Viewer) -> FleetSettings:
    """Get the effective fleet settings."""
    return await get_services(request).context.settings()


@router.patch("/settings")
async def change_settings(request: Request, caller: Admin, body: FleetSettingsPatch) -> FleetSettings:
    """Change fleet settings. Stored values override the startup configuration; null resets a value to its default."""
    context = get_services(request).context

    async def attempt(tx: Transaction) -> FleetSettings:
        return await patch_fleet_settings(tx, context.base_settings, body)

    return await context.unit_of_work.run(caller.actor, attempt)


@router.post("/settings/preview")
async def preview_settings(request: Request, caller: Viewer, body: FleetSettingsPatch) -> SettingsPreview:
    """Preview a change of fleet settings: which values would change, and what would follow. Nothing is stored."""
    context = get_services(request).context
    return await preview_fleet_settings(context.store, context.base_settings, body)


system_router = APIRouter(prefix="/api", tags=["system"], responses=error_responses(401, 403, 422, 429))


@system_router.get("/system")
async def system(request: Request, caller: Viewer) -> SystemHealth:
    """Get the health of the control plane and of each controller, with its last report, holds and breakers."""
    return await get_services(request).system.health()


@system_router.post("/internal/controllers/{name}/report", responses=error_responses(400, 409))
async def report(request: Request, leader: LeaderDep, name: ControllerNamePath, body: ControllerReport) -> Ack:
    """Store the status report of a leading controller. Only the last report is stored, and no event is published."""
    if name != leader.controller:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"name: {leader.controller} cannot report for {name}")
    await get_services(request).system.report(leader, body)
    return Ack()
