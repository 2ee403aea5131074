"""What controllers read and write of lablets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from lcm.control_plane.http.api.lablets import LabletIdPath, LabletStatuses, WorkerIds, parse_lablet_statuses
from lcm.control_plane.http.api.workers import Cursor, Limit, list_filter, versioned_response
from lcm.control_plane.http.deps import Controller, LeaderDep
from lcm.control_plane.http.pagination import LabletPage, error_responses, raw_page
from lcm.control_plane.lablets.definitions import read_definition
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.model.lablet.record import (
    Lablet,
    LabletDefinition,
    LabletStatusUpdate,
    PlacementBatch,
    PlacementBatchResult,
    ReleaseLabletRequest,
)

router = APIRouter(prefix="/api/internal", tags=["internal"], responses=error_responses(401, 403, 422, 429))
WRITE_ERRORS = error_responses(400, 404, 409)
DefinitionIdPath = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._-]{1,63}@[0-9A-Za-z.+-]{1,32}$", description="name@version")
]


@router.get("/lablets", response_model=LabletPage)
async def internal_lablets(
    request: Request,
    caller: Controller,
    exclude_statuses: LabletStatuses = None,
    worker: WorkerIds = None,
    limit: Limit = 500,
    cursor: Cursor = None,
) -> Response:
    """Lablets, page by page."""
    excluded, workers = parse_lablet_statuses("exclude_statuses", exclude_statuses), list_filter("worker", worker)
    where = Where(any_of={"worker_id": workers} if workers else {}, none_of={"status": excluded} if excluded else {})
    return raw_page(await get_services(request).lablets.page(where, Sort(), cursor, limit))


@router.get("/lablets/{lablet_id}", response_model=Lablet, responses=error_responses(404))
async def internal_lablet(request: Request, caller: Controller, lablet_id: LabletIdPath) -> Response:
    """One lablet."""
    return versioned_response((await get_services(request).lablets.get(lablet_id)).body)


@router.get("/lablet-definitions/{definition_id}", responses=error_responses(404))
async def internal_definition(
    request: Request, caller: Controller, definition_id: DefinitionIdPath
) -> LabletDefinition:
    """What a lablet is made from."""
    return await read_definition(get_services(request).plane.store, definition_id)


@router.post("/lablets/schedule", response_model=PlacementBatchResult, responses=WRITE_ERRORS)
async def schedule_lablets(request: Request, leader: LeaderDep, body: PlacementBatch) -> Response:
    """Workers for many lablets; each is reserved or refused on its own."""
    done = await get_services(request).lablet_reports.schedule(leader, body)
    # As bytes: FastAPI would check once more what was made here, a thousand records long.
    return Response(done.model_dump_json(), media_type="application/json")


@router.post("/lablets/{lablet_id}/status", responses=WRITE_ERRORS)
async def write_lablet_status(
    request: Request, leader: LeaderDep, lablet_id: LabletIdPath, body: LabletStatusUpdate
) -> Lablet:
    """What was found or done."""
    return await get_services(request).lablet_reports.status(leader, lablet_id, body)


@router.post("/lablets/{lablet_id}/release", responses=WRITE_ERRORS)
async def release_lablet(
    request: Request, leader: LeaderDep, lablet_id: LabletIdPath, body: ReleaseLabletRequest
) -> Lablet:
    """Its reservation is given back."""
    return await get_services(request).lablet_reports.release(leader, lablet_id, body)
