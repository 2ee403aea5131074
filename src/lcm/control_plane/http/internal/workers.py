"""What controllers read and write."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import SecretStr

from lcm.control_plane.fleet.installation import read_installation
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.http.api.templates import TemplateNamePath
from lcm.control_plane.http.api.workers import (
    Cursor,
    Limit,
    Regions,
    Statuses,
    WorkerIdPath,
    list_filter,
    parse_worker_statuses,
    versioned_response,
)
from lcm.control_plane.http.deps import Controller, LeaderDep
from lcm.control_plane.http.pagination import LeaderPage, TemplatePage, WorkerPage, error_responses, raw_page
from lcm.control_plane.records.kinds import LEADERSHIPS, TEMPLATES
from lcm.control_plane.secrets.worker_secrets import CML_PASSWORD, CML_USERNAME, LICENSE_TOKEN, read_secret
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.model.access import Ack, CmlCredentials, RevealedLicenseToken
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState, Installation, LeadershipTerm
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
    MetricsBatch,
    ScaleUpRequest,
    WorkerStatusUpdate,
)
from lcm.model.worker.template import WorkerTemplate

router = APIRouter(prefix="/api/internal", tags=["internal"], responses=error_responses(401, 403, 422, 429))
WRITE_ERRORS = error_responses(400, 404, 409)


@router.get("/workers", response_model=WorkerPage)
async def internal_workers(
    request: Request,
    caller: Controller,
    aws_region: Regions = None,
    exclude_statuses: Statuses = None,
    limit: Limit = 500,
    cursor: Cursor = None,
) -> Response:
    """Workers, page by page."""
    regions, excluded = (
        list_filter("aws_region", aws_region),
        parse_worker_statuses("exclude_statuses", exclude_statuses),
    )
    where = Where(any_of={"aws_region": regions} if regions else {}, none_of={"status": excluded} if excluded else {})
    return raw_page(await get_services(request).workers.page(where, Sort(), cursor, limit))


@router.get("/workers/{worker_id}", response_model=Worker, responses=error_responses(404))
async def internal_worker(request: Request, caller: Controller, worker_id: WorkerIdPath) -> Response:
    """One worker."""
    return versioned_response((await get_services(request).workers.get(worker_id)).body)


@router.get("/leadership", response_model=LeaderPage)
async def leaders(request: Request, caller: Controller) -> Response:
    """The newest term of each controller, and whether its start-up sweep is done."""
    return raw_page(await get_services(request).plane.store.find(LEADERSHIPS))


@router.post("/leadership", responses=WRITE_ERRORS)
async def announce_leadership(request: Request, leader: LeaderDep, body: LeadershipAnnouncement) -> LeadershipTerm:
    """A term begins, or its start-up sweep is done."""
    return await get_services(request).reports.leadership(leader, body)


@router.post(
    "/workers/import",
    status_code=201,
    responses={200: {"description": "Known already", "model": Worker}, **WRITE_ERRORS},
)
async def import_worker(request: Request, response: Response, leader: LeaderDep, body: ImportWorkerRequest) -> Worker:
    """A record for an instance that was found."""
    worker, new = await get_services(request).reports.import_worker(leader, body)
    response.status_code = 201 if new else 200
    return worker


@router.post("/workers/scale-up", status_code=202, responses=WRITE_ERRORS)
async def request_scale_up(request: Request, leader: LeaderDep, body: ScaleUpRequest) -> Worker:
    """One more worker for a need."""
    return await get_services(request).reports.scale_up(leader, body)


@router.post("/workers/metrics", responses=WRITE_ERRORS)
async def write_metrics(request: Request, leader: LeaderDep, body: MetricsBatch) -> BatchResult:
    """Figures of many workers; unknown or outdated ones are counted and dropped."""
    return await get_services(request).metrics.take(leader, body)


@router.post("/workers/decisions", responses=WRITE_ERRORS)
async def write_decisions(request: Request, leader: LeaderDep, body: DecisionBatch) -> BatchResult:
    """What was decided for many workers; unknown workers and older decisions are counted and dropped."""
    return await get_services(request).reports.decisions(leader, body)


@router.post("/workers/{worker_id}/status", responses=WRITE_ERRORS)
async def write_status(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: WorkerStatusUpdate
) -> Worker:
    """What was found or done."""
    return await get_services(request).reports.status(leader, worker_id, body)


@router.post("/workers/{worker_id}/launch", responses=WRITE_ERRORS)
async def write_launch(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: LaunchIntentRequest
) -> Worker:
    """The intent to launch, before the call."""
    return await get_services(request).reports.launch(leader, worker_id, body)


@router.post("/workers/{worker_id}/detect-idle", responses=WRITE_ERRORS)
async def write_idle(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: IdleDetectionRequest
) -> IdleDetectionResult:
    """Telemetry, and what follows from it."""
    return await get_services(request).reports.detect_idle(leader, worker_id, body)


@router.post("/workers/{worker_id}/drain", status_code=202, responses=WRITE_ERRORS)
async def write_drain(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: DrainRequest | None = None
) -> Worker:
    """Scale-down takes a worker out of service."""
    return await get_services(request).reports.drain(leader, worker_id, (body or DrainRequest()).reason)


@router.post("/workers/{worker_id}/license-status", responses=WRITE_ERRORS)
async def write_license_status(
    request: Request, leader: LeaderDep, worker_id: WorkerIdPath, body: LicenseStatusUpdate
) -> Worker:
    """What CML says of the licence."""
    return await get_services(request).reports.license_status(leader, worker_id, body)


@router.get("/workers/{worker_id}/license-token", responses=error_responses(404))
async def read_license_token(request: Request, caller: Controller, worker_id: WorkerIdPath) -> RevealedLicenseToken:
    """The licence token in clear."""
    plane = get_services(request).plane
    token = await read_secret(plane.store, plane.box, worker_id, LICENSE_TOKEN)
    return RevealedLicenseToken(token=SecretStr(token.reveal()))


@router.get("/workers/{worker_id}/cml-credentials", responses=error_responses(404))
async def read_cml_credentials(request: Request, caller: Controller, worker_id: WorkerIdPath) -> CmlCredentials:
    """The CML credentials in clear."""
    plane = get_services(request).plane
    username = await read_secret(plane.store, plane.box, worker_id, CML_USERNAME)
    password = await read_secret(plane.store, plane.box, worker_id, CML_PASSWORD)
    return CmlCredentials(username=username.reveal(), password=SecretStr(password.reveal()))


@router.post("/audit", status_code=201, responses=WRITE_ERRORS)
async def write_audit(request: Request, leader: LeaderDep, body: CreateAuditEntryRequest) -> Ack:
    """A decision that changes no record."""
    await get_services(request).reports.audit(leader, body.action, body.subject, body.reason)
    return Ack()


@router.get("/fleet")
async def fleet_state(request: Request, caller: Controller) -> FleetState:
    """What holds for the fleet now: whoever is about to act asks first."""
    return await get_services(request).fleet.state()


@router.post("/fleet/breaker", responses=WRITE_ERRORS)
async def report_breaker(request: Request, leader: LeaderDep, body: BreakerReport) -> FleetState:
    """A sweep would have marked too many as lost, or a later one agrees."""
    return await get_services(request).fleet.report_breaker(leader, body)


@router.get("/worker-templates", response_model=TemplatePage)
async def internal_templates(
    request: Request, caller: Controller, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """What workers can be made from."""
    return raw_page(await get_services(request).plane.store.find(TEMPLATES, after=cursor, limit=limit))


@router.get("/worker-templates/{name}", responses=error_responses(404))
async def internal_template(request: Request, caller: Controller, name: TemplateNamePath) -> WorkerTemplate:
    """One template."""
    return await read_template(get_services(request).plane.store, name)


@router.get("/installation", responses=error_responses(503))
async def internal_installation(request: Request, caller: Controller) -> Installation:
    """Which installation this is: the value of the tag lcm:installation."""
    return await read_installation(get_services(request).plane.store)


@router.get("/settings")
async def internal_settings(request: Request, caller: Controller) -> FleetSettings:
    """What counts now. A controller that has never read them pauses nobody and marks nobody."""
    return await get_services(request).plane.settings()
