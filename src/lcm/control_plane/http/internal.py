"""Routes for controllers: what they read and write. Each write carries the leader's term and is fenced by it."""

from __future__ import annotations

from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import SecretStr

from lcm.control_plane.bookings.protection import read_snapshot
from lcm.control_plane.calendar.schedule_reads import read_schedules
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.fleet.system import read_installation
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.http.api.templates import TemplateNamePath
from lcm.control_plane.http.deps import Controller, LeaderDep
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import (
    Cursor,
    LabletPage,
    LeaderPage,
    Limit,
    ScheduleRecordPage,
    TemplatePage,
    WorkerPage,
    raw_page,
    versioned_response,
)
from lcm.control_plane.http.query_params import (
    LabletIdPath,
    LabletStatuses,
    Regions,
    WorkerIdPath,
    WorkerIds,
    WorkerStatuses,
    list_filter,
    parse_lablet_statuses,
    parse_worker_statuses,
)
from lcm.control_plane.lablets.definitions import read_definition
from lcm.control_plane.records.kinds import LEADERSHIPS, TEMPLATES
from lcm.control_plane.secrets.worker_secrets import (
    CML_PASSWORD,
    CML_USERNAME,
    LICENSE_TOKEN,
    find_account_owners,
    read_secret,
)
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.core import clock
from lcm.model.access import CmlAccountOwners, CmlCredentials, RevealedLicenseToken
from lcm.model.base import Ack
from lcm.model.booking.requests import BookingProgress
from lcm.model.calendar.walk_ins import BookedCapacitySnapshot
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState, Installation, LeadershipTerm
from lcm.model.fleet.worker_context import WorkerContext
from lcm.model.lablet.record import (
    Lablet,
    LabletDefinition,
    LabletStatusUpdate,
    PlacementBatch,
    PlacementBatchResult,
    ReleaseLabletRequest,
)
from lcm.model.worker.idle import IdleDetectionResult
from lcm.model.worker.metrics import BatchResult
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import (
    BreakerReport,
    CreateAuditEntryRequest,
    DecisionBatch,
    DrainRequest,
    IdleDetectionRequest,
    ImportWorkerRequest,
    LaunchIntentRequest,
    LeadershipAnnouncement,
    LicenseStatusUpdate,
    MaintenanceRequest,
    MetricsBatch,
    ScaleUpRequest,
    ScheduleStepRequest,
    WorkerStatusUpdate,
)
from lcm.model.worker.template import WorkerTemplate

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/api/internal", tags=["internal"], responses=error_responses(401, 403, 422, 429))
WRITE_ERRORS = error_responses(400, 404, 409)
DefinitionIdPath = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._-]{1,63}@[0-9A-Za-z.+-]{1,32}$", description="The definition, as name@version.")
]


@router.get("/workers", response_model=WorkerPage)
async def internal_workers(
    request: Request,
    caller: Controller,
    aws_region: Regions = None,
    exclude_statuses: WorkerStatuses = None,
    limit: Limit = 500,
    cursor: Cursor = None,
) -> Response:
    """List workers."""
    regions = list_filter("aws_region", aws_region)
    excluded = parse_worker_statuses("exclude_statuses", exclude_statuses)
    where = Where(any_of={"aws_region": regions} if regions else {}, none_of={"status": excluded} if excluded else {})
    return raw_page(await get_services(request).workers.page(where, Sort(), cursor, limit))


@router.get("/workers/{worker_id}", response_model=Worker, responses=error_responses(404))
async def internal_worker(request: Request, caller: Controller, worker_id: WorkerIdPath) -> Response:
    """Get one worker."""
    return versioned_response((await get_services(request).workers.get(worker_id)).body)


@router.get("/workers/{worker_id}/context", response_model=WorkerContext, responses=error_responses(404))
async def internal_worker_context(request: Request, caller: Controller, worker_id: WorkerIdPath) -> Response:
    """Get one worker with the holds and settings of the fleet and, if it is PENDING, its template.

    A controller reads this before a pass, and again before every call that it makes to the cloud or to CML.
    """
    return Response(await get_services(request).workers.context(worker_id), media_type="application/json")


@router.get("/leadership", response_model=LeaderPage)
async def leaders(request: Request, caller: Controller) -> Response:
    """List the newest term of each controller, and whether its startup sweep is done."""
    return raw_page(await get_services(request).context.store.find(LEADERSHIPS))


@router.post("/leadership", responses=WRITE_ERRORS)
async def announce_leadership(request: Request, leader: LeaderDep, body: LeadershipAnnouncement) -> LeadershipTerm:
    """Announce that a term begins, or that its startup sweep is done."""
    return await get_services(request).worker_writes.leadership(leader, body)


@router.post(
    "/workers/import",
    status_code=201,
    responses={200: {"description": "The instance already has a record.", "model": Worker}, **WRITE_ERRORS},
)
async def import_worker(request: Request, response: Response, leader: LeaderDep, body: ImportWorkerRequest) -> Worker:
    """Create a record for an instance that discovery found."""
    worker, new = await get_services(request).worker_writes.import_worker(leader, body)
    response.status_code = 201 if new else 200
    return worker


@router.post("/workers/scale-up", status_code=202, responses=WRITE_ERRORS)
async def request_scale_up(request: Request, leader: LeaderDep, body: ScaleUpRequest) -> Worker:
    """Request one more worker for a pending lablet."""
    return await get_services(request).worker_writes.scale_up(leader, body)


@router.get("/bookings/capacity")
async def read_booked_capacity(request: Request, caller: Controller) -> BookedCapacitySnapshot:
    """Read what classes will take, and the workers of their regions. Lablets of no booking must leave room for them."""
    context = get_services(request).context
    scaling = (await context.settings()).scaling
    licensed = context.scale_up_license is not None
    return await read_snapshot(context.store, scaling, clock.now(), context.regions[0], licensed=licensed)


@router.post("/bookings/advance", responses=WRITE_ERRORS)
async def advance_bookings(request: Request, leader: LeaderDep) -> BookingProgress:
    """Carry out what is due for bookings: their statuses, workers and seats."""
    return await get_services(request).booking_progress.advance(leader, clock.now())


@router.post("/workers/metrics", responses=WRITE_ERRORS)
async def write_metrics(request: Request, leader: LeaderDep, body: MetricsBatch) -> BatchResult:
    """Store metrics samples. Samples of unknown workers and outdated samples are counted and dropped."""
    return await get_services(request).metrics.record(leader, body)


@router.post("/workers/decisions", responses=WRITE_ERRORS)
async def write_decisions(request: Request, leader: LeaderDep, body: DecisionBatch) -> BatchResult:
    """Store decisions. Decisions for unknown workers and outdated decisions are counted and dropped."""
    return await get_services(request).worker_writes.decisions(leader, body)


@router.post("/workers/{worker_id}/status", responses=WRITE_ERRORS)
async def write_status(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: WorkerStatusUpdate
) -> Worker:
    """Write the observed or changed status of a worker."""
    return await get_services(request).worker_writes.status(leader, worker_id, body)


@router.post("/workers/{worker_id}/launch", responses=WRITE_ERRORS)
async def write_launch(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: LaunchIntentRequest
) -> Worker:
    """Record the intent to launch, before the call to the cloud."""
    return await get_services(request).worker_writes.launch(leader, worker_id, body)


@router.post("/workers/{worker_id}/detect-idle", responses=WRITE_ERRORS)
async def write_idle(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: IdleDetectionRequest
) -> IdleDetectionResult:
    """Store telemetry of a worker and evaluate whether it is idle."""
    return await get_services(request).worker_writes.detect_idle(leader, worker_id, body)


@router.post("/workers/{worker_id}/drain", status_code=202, responses=WRITE_ERRORS)
async def write_drain(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: DrainRequest | None = None
) -> Worker:
    """Drain a worker for scale-down."""
    return await get_services(request).worker_writes.drain(leader, worker_id, (body or DrainRequest()).reason)


@router.post("/workers/{worker_id}/maintenance", status_code=202, responses=WRITE_ERRORS)
async def write_maintenance(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: MaintenanceRequest
) -> Worker:
    """Stop a worker that is not in use, so that it moves to another host, or start it again."""
    return await get_services(request).worker_writes.maintenance(leader, worker_id, body)


@router.get("/schedules")
async def internal_schedules(request: Request, caller: Controller) -> ScheduleRecordPage:
    """List schedules. A controller reads them again when `schedules_version` of the fleet has changed."""
    store = get_services(request).context.store
    return ScheduleRecordPage(items=await read_schedules(store, await read_fleet_state(store)))


@router.post("/workers/{worker_id}/schedule", status_code=202, responses=WRITE_ERRORS)
async def write_schedule_step(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: ScheduleStepRequest
) -> Worker:
    """Stop a worker outside the windows of its schedules, or start it again."""
    return await get_services(request).worker_writes.schedule_step(leader, worker_id, body)


@router.post("/workers/{worker_id}/license-status", responses=WRITE_ERRORS)
async def write_license_status(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: LicenseStatusUpdate
) -> Worker:
    """Write the license status that CML reports."""
    return await get_services(request).worker_writes.license_status(leader, worker_id, body)


@router.get("/workers/{worker_id}/license-token", responses=error_responses(404))
async def read_license_token(request: Request, caller: Controller, worker_id: WorkerIdPath) -> RevealedLicenseToken:
    """Get the license token in plain text."""
    context = get_services(request).context
    token = await read_secret(context.store, context.secret_box, worker_id, LICENSE_TOKEN)
    get_services(request).authenticator.security_log.secret_read(caller, worker_id, LICENSE_TOKEN)
    return RevealedLicenseToken(token=SecretStr(token.reveal()))


@router.get("/workers/{worker_id}/cml-credentials", responses=error_responses(404))
async def read_cml_credentials(request: Request, caller: Controller, worker_id: WorkerIdPath) -> CmlCredentials:
    """Get the CML credentials in plain text."""
    context = get_services(request).context
    username = await read_secret(context.store, context.secret_box, worker_id, CML_USERNAME)
    password = await read_secret(context.store, context.secret_box, worker_id, CML_PASSWORD)
    get_services(request).authenticator.security_log.secret_read(caller, worker_id, CML_PASSWORD)
    return CmlCredentials(username=username.reveal(), password=SecretStr(password.reveal()))


@router.get("/cml-accounts")
async def list_cml_accounts(request: Request, caller: Controller) -> CmlAccountOwners:
    """List the workers that have CML credentials of their own. All others use the default account."""
    return CmlAccountOwners(worker_ids=await find_account_owners(get_services(request).context.store))


@router.post("/audit", status_code=201, responses=WRITE_ERRORS)
async def write_audit(request: Request, leader: LeaderDep, body: CreateAuditEntryRequest) -> Ack:
    """Record a decision that changes no record."""
    await get_services(request).worker_writes.audit(leader, body.action, body.subject, body.reason)
    return Ack()


@router.get("/fleet")
async def fleet_state(request: Request, caller: Controller) -> FleetState:
    """Get the holds and breakers. Controllers read them before every action."""
    return await get_services(request).fleet.state()


@router.post("/fleet/breaker", responses=WRITE_ERRORS)
async def report_breaker(request: Request, leader: LeaderDep, body: BreakerReport) -> FleetState:
    """Open the breaker of a region because too many workers would be marked as lost, or close it."""
    return await get_services(request).fleet.report_breaker(leader, body)


@router.get("/worker-templates", response_model=TemplatePage)
async def internal_templates(
    request: Request, caller: Controller, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """List worker templates."""
    return raw_page(await get_services(request).context.store.find(TEMPLATES, after=cursor, limit=limit))


@router.get("/worker-templates/{name}", responses=error_responses(404))
async def internal_template(request: Request, caller: Controller, name: TemplateNamePath) -> WorkerTemplate:
    """Get one template."""
    return await read_template(get_services(request).context.store, name)


@router.get("/installation", responses=error_responses(503))
async def internal_installation(request: Request, caller: Controller) -> Installation:
    """Get the installation id, which is the value of the tag lcm:installation."""
    return await read_installation(get_services(request).context.store)


@router.get("/settings")
async def internal_settings(request: Request, caller: Controller) -> FleetSettings:
    """Get the effective fleet settings. A controller that has not read them yet pauses and marks no worker."""
    return await get_services(request).context.settings()


@router.get("/lablets", response_model=LabletPage)
async def internal_lablets(
    request: Request,
    caller: Controller,
    exclude_statuses: LabletStatuses = None,
    worker: WorkerIds = None,
    limit: Limit = 500,
    cursor: Cursor = None,
) -> Response:
    """List lablets."""
    excluded, workers = parse_lablet_statuses("exclude_statuses", exclude_statuses), list_filter("worker", worker)
    where = Where(any_of={"worker_id": workers} if workers else {}, none_of={"status": excluded} if excluded else {})
    return raw_page(await get_services(request).lablets.page(caller, where, Sort(), cursor, limit))


@router.get("/lablets/{lablet_id}", response_model=Lablet, responses=error_responses(404))
async def internal_lablet(request: Request, caller: Controller, lablet_id: LabletIdPath) -> Response:
    """Get one lablet."""
    return versioned_response((await get_services(request).lablets.get(caller, lablet_id)).body)


@router.get("/lablet-definitions/{definition_id}", responses=error_responses(404))
async def internal_definition(
    request: Request, caller: Controller, definition_id: DefinitionIdPath
) -> LabletDefinition:
    """Get the definition of a lablet."""
    return await read_definition(get_services(request).context.store, definition_id)


@router.post("/lablets/schedule", response_model=PlacementBatchResult, responses=WRITE_ERRORS)
async def schedule_lablets(request: Request, leader: LeaderDep, body: PlacementBatch) -> Response:
    """Place lablets on workers. Each placement succeeds or fails on its own."""
    result = await get_services(request).lablet_writes.schedule(leader, body)
    # As bytes: FastAPI would validate up to a thousand records a second time.
    return Response(result.model_dump_json(), media_type="application/json")


@router.post("/lablets/{lablet_id}/status", responses=WRITE_ERRORS)
async def write_lablet_status(
    request: Request, leader: LeaderDep, lablet_id: LabletIdPath, body: LabletStatusUpdate
) -> Lablet:
    """Write the observed or changed status of a lablet."""
    return await get_services(request).lablet_writes.status(leader, lablet_id, body)


@router.post("/lablets/{lablet_id}/release", responses=WRITE_ERRORS)
async def release_lablet(
    request: Request, leader: LeaderDep, lablet_id: LabletIdPath, body: ReleaseLabletRequest
) -> Lablet:
    """Release the reservation of a lablet."""
    return await get_services(request).lablet_writes.release(leader, lablet_id, body)
