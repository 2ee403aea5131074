"""What the scheduler and the lablet controller read and write of lablets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, InternalResource, Leader, Page, api_path, query_params
from lcm.model.access import Ack, CmlCredentials, RevealedLicenseToken
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState, Installation, LeadershipTerm
from lcm.model.lablet.record import Lablet, LabletDefinition, PlacementBatchResult
from lcm.model.worker.idle import IdleDetectionResult
from lcm.model.worker.metrics import BatchResult
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import CreateAuditEntryRequest, DrainRequest, LeadershipAnnouncement
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from pydantic import SecretStr

    from lcm.client.base import Leader
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
        MetricsBatch,
        ScaleUpRequest,
        WorkerStatusUpdate,
    )
    from lcm.model.worker.status import WorkerStatus


class InternalLabletsApi(InternalResource):
    """Lablets, for the role `controller` alone."""

    def lablets(
        self,
        *,
        exclude_statuses: Iterable[LabletStatus] = (),
        worker: Iterable[str] = (),
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Lablet]:
        """Lablets that fit all filters."""
        query = query_params(exclude_statuses=exclude_statuses, worker=worker)
        return self._pages("internal.lablets", api_path("internal", "lablets"), Page[Lablet], query, page_size)

    async def lablet(self, lablet_id: str) -> Lablet:
        """One lablet."""
        return await self._read("lablet", Lablet, "lablets", lablet_id)

    async def definition(self, definition_id: str) -> LabletDefinition:
        """What a lablet is made from, by its `definition`: name@version."""
        return await self._read("definition", LabletDefinition, "lablet-definitions", definition_id)

    async def schedule(self, leader: Leader, body: PlacementBatch) -> tuple[PlacementResult, ...]:
        """Workers for many lablets; each is reserved or refused on its own. The answers are in the order asked."""
        return (await self._write("schedule", leader, body, PlacementBatchResult, "lablets", "schedule")).items

    async def lablet_status(self, leader: Leader, lablet_id: str, body: LabletStatusUpdate) -> Lablet:
        """What was found or done."""
        return await self._write("lablet-status", leader, body, Lablet, "lablets", lablet_id, "status")

    async def release_lablet(self, leader: Leader, lablet_id: str, body: ReleaseLabletRequest) -> Lablet:
        """Give its reservation back."""
        return await self._write("lablet-release", leader, body, Lablet, "lablets", lablet_id, "release")


class InternalApi(InternalLabletsApi):
    """For the role `controller` alone."""

    def workers(
        self,
        *,
        aws_region: Iterable[str] = (),
        exclude_statuses: Iterable[WorkerStatus] = (),
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Worker]:
        """Workers that fit all filters."""
        query = query_params(aws_region=aws_region, exclude_statuses=exclude_statuses)
        return self._pages("internal.workers", api_path("internal", "workers"), Page[Worker], query, page_size)

    async def worker(self, worker_id: str) -> Worker:
        """One worker."""
        return await self._read("worker", Worker, "workers", worker_id)

    async def template(self, name: str) -> WorkerTemplate:
        """One template."""
        return await self._read("template", WorkerTemplate, "worker-templates", name)

    def templates(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerTemplate]:
        """All templates."""
        path = api_path("internal", "worker-templates")
        return self._pages("internal.templates", path, Page[WorkerTemplate], {}, page_size)

    async def leaders(self) -> tuple[LeadershipTerm, ...]:
        """The newest term of each controller, and whether its start-up sweep is done."""
        return (await self._read("leaders", Page[LeadershipTerm], "leadership")).items

    async def settings(self) -> FleetSettings:
        """What counts now."""
        return await self._read("settings", FleetSettings, "settings")

    async def installation(self) -> Installation:
        """Which installation this is: the value of the tag lcm:installation."""
        return await self._read("installation", Installation, "installation")

    async def license_token(self, worker_id: str) -> SecretStr:
        """A worker's licence token."""
        return (await self._read("license-token", RevealedLicenseToken, "workers", worker_id, "license-token")).token

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        """What to sign in to a worker's CML with."""
        return await self._read("cml-credentials", CmlCredentials, "workers", worker_id, "cml-credentials")

    async def announce_leadership(self, leader: Leader, *, startup_sweep_done: bool = False) -> LeadershipTerm:
        """A term begins, or its start-up sweep is done."""
        body = LeadershipAnnouncement(term=leader.term, startup_sweep_done=startup_sweep_done)
        return await self._write("leadership", leader, body, LeadershipTerm, "leadership")

    async def write_status(self, leader: Leader, worker_id: str, body: WorkerStatusUpdate) -> Worker:
        """What was found or done."""
        return await self._write("status", leader, body, Worker, "workers", worker_id, "status")

    async def write_launch(self, leader: Leader, worker_id: str, body: LaunchIntentRequest) -> Worker:
        """The intent to launch, before the call."""
        return await self._write("launch", leader, body, Worker, "workers", worker_id, "launch")

    async def write_metrics(self, leader: Leader, body: MetricsBatch) -> BatchResult:
        """Figures of many workers; unknown or outdated ones are counted and dropped."""
        return await self._write("metrics", leader, body, BatchResult, "workers", "metrics")

    async def write_decisions(self, leader: Leader, body: DecisionBatch) -> BatchResult:
        """What was decided for many workers; unknown workers and older decisions are counted and dropped."""
        return await self._write("decisions", leader, body, BatchResult, "workers", "decisions")

    async def detect_idle(self, leader: Leader, worker_id: str, body: IdleDetectionRequest) -> IdleDetectionResult:
        """Telemetry, and what followed from it."""
        return await self._write("detect-idle", leader, body, IdleDetectionResult, "workers", worker_id, "detect-idle")

    async def drain(self, leader: Leader, worker_id: str, reason: str = "idle") -> Worker:
        """Scale-down takes a worker out of service."""
        body = DrainRequest.model_construct(reason=reason)  # the server judges it, by an error that callers expect
        return await self._write("drain", leader, body, Worker, "workers", worker_id, "drain")

    async def write_license_status(self, leader: Leader, worker_id: str, body: LicenseStatusUpdate) -> Worker:
        """What CML says of the licence."""
        return await self._write("license-status", leader, body, Worker, "workers", worker_id, "license-status")

    async def import_worker(self, leader: Leader, body: ImportWorkerRequest) -> Worker:
        """The record for an instance that was found, new or known already."""
        return await self._write("import", leader, body, Worker, "workers", "import")

    async def scale_up(self, leader: Leader, body: ScaleUpRequest) -> Worker:
        """One more worker for a need."""
        return await self._write("scale-up", leader, body, Worker, "workers", "scale-up")

    async def audit(self, leader: Leader, action: str, subject: str, reason: str = "") -> None:
        """A decision that changes no record."""
        line = CreateAuditEntryRequest.model_construct(action=action, subject=subject, reason=reason)  # as above
        await self._write("audit", leader, line, Ack, "audit")

    async def fleet(self) -> FleetState:
        """What holds for the fleet now: its hold, the open breakers, the last scale-down."""
        return await self._read("fleet", FleetState, "fleet")

    async def report_controller(self, leader: Leader, body: ControllerReport) -> None:
        """How the controller that leads is."""
        await self._write("report", leader, body, Ack, "controllers", leader.controller, "report")

    async def report_breaker(self, leader: Leader, body: BreakerReport) -> FleetState:
        """A sweep would have marked too many as lost, or a later one agrees."""
        return await self._write("breaker", leader, body, FleetState, "fleet", "breaker")
