"""The internal API: what controllers read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, A, Leader, Resource, api_path, encode_body, query_params
from lcm.client.errors import StaleLeaderError
from lcm.client.known_records import KnownRecords
from lcm.client.responses import ApiRequest
from lcm.core.controller.leader_election import StaleTermError
from lcm.model.access import CmlAccountOwners, CmlCredentials, RevealedLicenseToken
from lcm.model.base import Ack, Page
from lcm.model.booking.requests import BookingProgress
from lcm.model.calendar.schedule import Schedule
from lcm.model.calendar.walk_ins import BookedCapacitySnapshot
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState, Installation, LeadershipTerm
from lcm.model.fleet.worker_context import WorkerContext
from lcm.model.lablet.record import Lablet, LabletDefinition, PlacementBatchResult
from lcm.model.worker.idle import IdleDetectionResult
from lcm.model.worker.metrics import BatchResult
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import CreateAuditEntryRequest, DrainRequest, LeadershipAnnouncement
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from pydantic import BaseModel, SecretStr

    from lcm.client.transport import Transport
    from lcm.model.lablet.record import LabletStatusUpdate, PlacementBatch, PlacementResult, ReleaseLabletRequest
    from lcm.model.lablet.status import LabletStatus
    from lcm.model.system import ControllerReport
    from lcm.model.worker.requests import (
        BreakerReport,
        DecisionBatch,
        IdleDetectionRequest,
        ImportWorkerRequest,
        LaunchIntentRequest,
        LicenseStatusUpdate,
        MaintenanceRequest,
        MetricsBatch,
        ScaleUpRequest,
        ScheduleStepRequest,
        WorkerStatusUpdate,
    )
    from lcm.model.worker.status import WorkerStatus


class InternalApi(Resource):
    """Reads and writes of controllers, only for the role `controller`.

    A write carries the leader's headers and is sent once. `StaleTermError`: the control plane has seen a newer term and
    changed nothing; the sender must stop acting.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._known_workers = KnownRecords(Worker)

    async def _read(self, name: str, model: type[A], *path: str) -> A:
        return await self._send(ApiRequest(f"internal.{name}", "GET", api_path("internal", *path)), model)

    async def _write(self, name: str, leader: Leader, body: BaseModel | None, model: type[A], *path: str) -> A:
        content = None if body is None else encode_body(body)
        call = ApiRequest(f"internal.{name}", "POST", api_path("internal", *path), body=content, headers=leader.headers)
        try:
            return await self._send(call, model)
        except StaleLeaderError as error:
            raise StaleTermError(str(error)) from error

    # Lablets

    def lablets(
        self,
        *,
        exclude_statuses: Iterable[LabletStatus] = (),
        worker: Iterable[str] = (),
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Lablet]:
        """Lablets that match all filters."""
        query = query_params(exclude_statuses=exclude_statuses, worker=worker)
        return self._pages("internal.lablets", api_path("internal", "lablets"), Page[Lablet], query, page_size)

    async def lablet(self, lablet_id: str) -> Lablet:
        """One lablet."""
        return await self._read("lablet", Lablet, "lablets", lablet_id)

    async def definition(self, definition_id: str) -> LabletDefinition:
        """The definition of a lablet, by name@version."""
        return await self._read("definition", LabletDefinition, "lablet-definitions", definition_id)

    async def schedule(self, leader: Leader, body: PlacementBatch) -> tuple[PlacementResult, ...]:
        """Place many lablets on workers; each succeeds or fails on its own. Results are in the order of the request."""
        return (await self._write("schedule", leader, body, PlacementBatchResult, "lablets", "schedule")).items

    async def lablet_status(self, leader: Leader, lablet_id: str, body: LabletStatusUpdate) -> Lablet:
        """Report an observed or changed status."""
        return await self._write("lablet-status", leader, body, Lablet, "lablets", lablet_id, "status")

    async def release_lablet(self, leader: Leader, lablet_id: str, body: ReleaseLabletRequest) -> Lablet:
        """Release its reservation."""
        return await self._write("lablet-release", leader, body, Lablet, "lablets", lablet_id, "release")

    # Workers and the fleet

    def workers(
        self,
        *,
        aws_region: Iterable[str] = (),
        exclude_statuses: Iterable[WorkerStatus] = (),
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Worker]:
        """Workers that match all filters."""
        query = query_params(aws_region=aws_region, exclude_statuses=exclude_statuses)
        path = api_path("internal", "workers")
        return self._pages("internal.workers", path, Page[Worker], query, page_size, self._known_workers)

    async def worker(self, worker_id: str) -> Worker:
        """One worker."""
        return await self._read("worker", Worker, "workers", worker_id)

    async def worker_context(self, worker_id: str) -> WorkerContext:
        """One worker with the state and settings of the fleet, and its template if it is PENDING."""
        context = await self._read("worker-context", WorkerContext, "workers", worker_id, "context")
        worker = self._known_workers.same(context.worker)  # or the next list would decode it once more
        return context if worker is context.worker else context.model_copy(update={"worker": worker})

    async def template(self, name: str) -> WorkerTemplate:
        """One template."""
        return await self._read("template", WorkerTemplate, "worker-templates", name)

    def templates(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerTemplate]:
        """All templates."""
        path = api_path("internal", "worker-templates")
        return self._pages("internal.templates", path, Page[WorkerTemplate], {}, page_size)

    async def leaders(self) -> tuple[LeadershipTerm, ...]:
        """The newest term of each controller, and whether its startup sweep is done."""
        return (await self._read("leaders", Page[LeadershipTerm], "leadership")).items

    async def settings(self) -> FleetSettings:
        """The effective settings."""
        return await self._read("settings", FleetSettings, "settings")

    async def installation(self) -> Installation:
        """The id of this installation: the value of the tag lcm:installation."""
        return await self._read("installation", Installation, "installation")

    async def license_token(self, worker_id: str) -> SecretStr:
        """A worker's license token."""
        return (await self._read("license-token", RevealedLicenseToken, "workers", worker_id, "license-token")).token

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        """The credentials for a worker's CML."""
        return await self._read("cml-credentials", CmlCredentials, "workers", worker_id, "cml-credentials")

    async def cml_accounts(self) -> frozenset[str]:
        """The workers that have credentials of their own for their CML."""
        return frozenset((await self._read("cml-accounts", CmlAccountOwners, "cml-accounts")).worker_ids)

    async def announce_leadership(self, leader: Leader, *, startup_sweep_done: bool = False) -> LeadershipTerm:
        """Announce a new term, or the end of its startup sweep."""
        body = LeadershipAnnouncement(term=leader.term, startup_sweep_done=startup_sweep_done)
        return await self._write("leadership", leader, body, LeadershipTerm, "leadership")

    async def write_status(self, leader: Leader, worker_id: str, body: WorkerStatusUpdate) -> Worker:
        """Report an observed or changed status."""
        return await self._write("status", leader, body, Worker, "workers", worker_id, "status")

    async def write_launch(self, leader: Leader, worker_id: str, body: LaunchIntentRequest) -> Worker:
        """Record the intent to launch, before the call."""
        return await self._write("launch", leader, body, Worker, "workers", worker_id, "launch")

    async def write_metrics(self, leader: Leader, body: MetricsBatch) -> BatchResult:
        """Metrics of many workers; unknown workers and outdated samples are counted and dropped."""
        return await self._write("metrics", leader, body, BatchResult, "workers", "metrics")

    async def write_decisions(self, leader: Leader, body: DecisionBatch) -> BatchResult:
        """Decisions for many workers; unknown workers and older decisions are counted and dropped."""
        return await self._write("decisions", leader, body, BatchResult, "workers", "decisions")

    async def detect_idle(self, leader: Leader, worker_id: str, body: IdleDetectionRequest) -> IdleDetectionResult:
        """Report activity; returns the result of idle detection."""
        return await self._write("detect-idle", leader, body, IdleDetectionResult, "workers", worker_id, "detect-idle")

    async def drain(self, leader: Leader, worker_id: str, reason: str = "idle") -> Worker:
        """Drain a worker for scale-down."""
        body = DrainRequest.model_construct(reason=reason)  # the server validates it, with an error that callers expect
        return await self._write("drain", leader, body, Worker, "workers", worker_id, "drain")

    async def write_maintenance(self, leader: Leader, worker_id: str, body: MaintenanceRequest) -> Worker:
        """Stop a worker for maintenance, or start it again after it."""
        return await self._write("maintenance", leader, body, Worker, "workers", worker_id, "maintenance")

    async def write_schedule_step(self, leader: Leader, worker_id: str, body: ScheduleStepRequest) -> Worker:
        """Stop a worker outside the windows of its schedules, or start it again."""
        return await self._write("schedule", leader, body, Worker, "workers", worker_id, "schedule")

    async def write_license_status(self, leader: Leader, worker_id: str, body: LicenseStatusUpdate) -> Worker:
        """Report the license status of a worker's CML."""
        return await self._write("license-status", leader, body, Worker, "workers", worker_id, "license-status")

    async def import_worker(self, leader: Leader, body: ImportWorkerRequest) -> Worker:
        """Create the record for a discovered instance, or return the existing one."""
        return await self._write("import", leader, body, Worker, "workers", "import")

    async def scale_up(self, leader: Leader, body: ScaleUpRequest) -> Worker:
        """Add a worker for pending lablets."""
        return await self._write("scale-up", leader, body, Worker, "workers", "scale-up")

    async def booked_capacity(self) -> BookedCapacitySnapshot:
        """What classes will take, and the workers of their regions."""
        return await self._read("booked-capacity", BookedCapacitySnapshot, "bookings", "capacity")

    async def advance_bookings(self, leader: Leader) -> BookingProgress:
        """Carry out what is due for bookings."""
        return await self._write("advance-bookings", leader, None, BookingProgress, "bookings", "advance")

    async def audit(self, leader: Leader, action: str, subject: str, reason: str = "") -> None:
        """Write an audit entry for a decision that changes no record."""
        entry = CreateAuditEntryRequest.model_construct(action=action, subject=subject, reason=reason)  # as above
        await self._write("audit", leader, entry, Ack, "audit")

    async def fleet(self) -> FleetState:
        """The state of the fleet: its hold, the open breakers, the last scale-down."""
        return await self._read("fleet", FleetState, "fleet")

    async def schedules(self) -> tuple[Schedule, ...]:
        """All schedules."""
        return (await self._read("schedules", Page[Schedule], "schedules")).items

    async def report_controller(self, leader: Leader, body: ControllerReport) -> None:
        """Report the status of the leading controller."""
        await self._write("report", leader, body, Ack, "controllers", leader.controller, "report")

    async def report_breaker(self, leader: Leader, body: BreakerReport) -> FleetState:
        """Open the breaker because a sweep would mark too many workers as lost, or close it again."""
        return await self._write("breaker", leader, body, FleetState, "fleet", "breaker")
