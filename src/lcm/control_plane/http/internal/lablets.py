"""What controllers read and write of lablets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from lcm.control_plane.http.api.lablets import LabletStatuses, OfWorkers, TheLabletId, lablet_statuses
from lcm.control_plane.http.api.workers import Cursor, Limit, listed, versioned_response
from lcm.control_plane.http.deps import Controller, TheLeader
from lcm.control_plane.http.pagination import LabletPage, documented, joined_page
from lcm.control_plane.lablets.control_plane_definitions import read_definition
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import Sort, Where
from lcm.model.lablet.record import (
    Lablet,
    LabletDefinition,
    LabletRelease,
    LabletStatusWrite,
    ScheduleBatch,
    ScheduledBatch,
)

router = APIRouter(prefix="/api/internal", tags=["internal"], responses=documented(401, 403, 422, 429))
WRITES = documented(400, 404, 409)
DefinitionId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,63}@[0-9A-Za-z.+-]{1,32}$", description="name@version")]


@router.get("/lablets", response_model=LabletPage)
async def internal_lablets(
    request: Request,
    caller: Controller,
    exclude_statuses: LabletStatuses = None,
    worker: OfWorkers = None,
    limit: Limit = 500,
    cursor: Cursor = None,
) -> Response:
    """Lablets, page by page."""
    excluded, workers = lablet_statuses("exclude_statuses", exclude_statuses), listed("worker", worker)
    where = Where(any_of={"worker_id": workers} if workers else {}, none_of={"status": excluded} if excluded else {})
    return joined_page(await parts(request).lablets.page(where, Sort(), cursor, limit))


@router.get("/lablets/{lablet_id}", response_model=Lablet, responses=documented(404))
async def internal_lablet(request: Request, caller: Controller, lablet_id: TheLabletId) -> Response:
    """One lablet."""
    return versioned_response((await parts(request).lablets.get(lablet_id)).body)


@router.get("/lablet-definitions/{definition_id}", responses=documented(404))
async def internal_definition(request: Request, caller: Controller, definition_id: DefinitionId) -> LabletDefinition:
    """What a lablet is made from."""
    return await read_definition(parts(request).plane.store, definition_id)


@router.post("/lablets/schedule", response_model=ScheduledBatch, responses=WRITES)
async def schedule_lablets(request: Request, leader: TheLeader, body: ScheduleBatch) -> Response:
    """Workers for many lablets; each is reserved or refused on its own."""
    done = await parts(request).lablet_reports.schedule(leader, body)
    # As bytes: FastAPI would check once more what was made here, a thousand records long.
    return Response(done.model_dump_json(), media_type="application/json")


@router.post("/lablets/{lablet_id}/status", responses=WRITES)
async def write_lablet_status(
    request: Request, leader: TheLeader, lablet_id: TheLabletId, body: LabletStatusWrite
) -> Lablet:
    """What was found or done."""
    return await parts(request).lablet_reports.status(leader, lablet_id, body)


@router.post("/lablets/{lablet_id}/release", responses=WRITES)
async def release_lablet(request: Request, leader: TheLeader, lablet_id: TheLabletId, body: LabletRelease) -> Lablet:
    """Its reservation is given back."""
    return await parts(request).lablet_reports.release(leader, lablet_id, body)
