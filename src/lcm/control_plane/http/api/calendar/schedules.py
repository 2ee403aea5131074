"""Routes for schedules: when workers are up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from lcm.control_plane.http.deps import IdempotencyKeyDep, IfMatchDep, Operator, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import SchedulePage
from lcm.control_plane.services import get_services
from lcm.model.calendar.schedule import Schedule
from lcm.model.calendar.schedule_preview import SchedulePreview, ScheduleStatus
from lcm.model.calendar.schedule_requests import (
    CreateScheduleRequest,
    EditScheduleRequest,
    PreviewScheduleRequest,
)

router = APIRouter(prefix="/api/schedules", tags=["schedules"], responses=error_responses(401, 403, 422, 429))

ScheduleId = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The id, such as s-3f9k2m1xq0ab.")]
Remove = Annotated[bool, Query(description="Preview what changes when the schedule is deleted.")]


@router.get("")
async def list_schedules(request: Request, caller: Viewer) -> SchedulePage:
    """List schedules by name, each with whether it is open now and when that changes. There are at most 200."""
    return SchedulePage(items=await get_services(request).schedules.statuses())


@router.post("", status_code=201, responses=error_responses(409))
async def create_schedule(
    request: Request, response: Response, caller: Operator, body: CreateScheduleRequest, key: IdempotencyKeyDep
) -> Schedule:
    """Create a schedule. Workers follow it within a cycle of the worker controller."""
    return _tagged(response, await get_services(request).schedules.create(caller, body, key))


@router.post("/preview")
async def preview_schedule(request: Request, caller: Viewer, body: PreviewScheduleRequest) -> SchedulePreview:
    """Preview a schedule: which workers it selects, what it would do now, and its week. Nothing is changed."""
    return await get_services(request).schedules.preview(body)


@router.get("/{schedule_id}", responses=error_responses(404))
async def get_schedule(request: Request, response: Response, caller: Viewer, schedule_id: ScheduleId) -> ScheduleStatus:
    """Get one schedule with whether it is open now and when that changes."""
    status = await get_services(request).schedules.status(schedule_id)
    _tagged(response, status.schedule)
    return status


@router.get("/{schedule_id}/preview", responses=error_responses(404))
async def preview_saved_schedule(
    request: Request, caller: Viewer, schedule_id: ScheduleId, remove: Remove = False
) -> SchedulePreview:
    """Get what a schedule does: its workers, what happens to each of them next, and its week."""
    return await get_services(request).schedules.preview_saved(schedule_id, removed=remove)


@router.patch("/{schedule_id}", responses=error_responses(404, 409, 412))
async def edit_schedule(
    request: Request,
    response: Response,
    caller: Operator,
    schedule_id: ScheduleId,
    body: EditScheduleRequest,
    if_match: IfMatchDep,
    key: IdempotencyKeyDep,
) -> Schedule:
    """Change a schedule, enable it or disable it."""
    return _tagged(response, await get_services(request).schedules.edit(caller, schedule_id, body, if_match, key))


@router.delete("/{schedule_id}", responses=error_responses(404, 409, 412))
async def delete_schedule(
    request: Request, caller: Operator, schedule_id: ScheduleId, if_match: IfMatchDep, key: IdempotencyKeyDep
) -> Schedule:
    """Delete a schedule. Workers that it stopped stay stopped."""
    return await get_services(request).schedules.delete(caller, schedule_id, if_match, key)


def _tagged(response: Response, schedule: Schedule) -> Schedule:
    response.headers["ETag"] = f'"{schedule.version}"'
    return schedule
