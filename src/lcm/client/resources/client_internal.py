"""What controllers read and write. Every write carries the leader's name and term and is sent once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, Leader, Page, asked, path_to
from lcm.client.resources.internal import InternalLablets
from lcm.model.answers import CmlCredentials, Kept, ToldLicenseToken
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState, Installation, LeaderSeen
from lcm.model.worker.idle import DetectionResult
from lcm.model.worker.metrics import BatchResult
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import AuditWrite, DrainWrite, LeadershipAnnouncement
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from pydantic import SecretStr

    from lcm.model.system import ControllerReport
    from lcm.model.worker.requests import (
        BreakerReport,
        DecisionsBatch,
        DetectIdle,
        ImportWorker,
        LaunchWrite,
        LicenseStatusWrite,
        MetricsBatch,
        ScaleUp,
        StatusWrite,
    )
    from lcm.model.worker.status import WorkerStatus


class Internal(InternalLablets):
    """For the role `controller` alone."""

    def workers(
        self,
        *,
        aws_region: Iterable[str] = (),
        exclude_statuses: Iterable[WorkerStatus] = (),
        page_size: int = PAGE,
    ) -> AsyncIterator[Worker]:
        """Workers that fit all filters."""
        query = asked(aws_region=aws_region, exclude_statuses=exclude_statuses)
        return self._pages("internal.workers", path_to("internal", "workers"), Page[Worker], query, page_size)

    async def worker(self, worker_id: str) -> Worker:
        """One worker."""
        return await self._read("worker", Worker, "workers", worker_id)

    async def template(self, name: str) -> WorkerTemplate:
        """One template."""
        return await self._read("template", WorkerTemplate, "worker-templates", name)

    def templates(self, *, page_size: int = PAGE) -> AsyncIterator[WorkerTemplate]:
        """All templates."""
        path = path_to("internal", "worker-templates")
        return self._pages("internal.templates", path, Page[WorkerTemplate], {}, page_size)

    async def leaders(self) -> tuple[LeaderSeen, ...]:
        """The newest term of each controller, and whether its start-up sweep is done."""
        return (await self._read("leaders", Page[LeaderSeen], "leadership")).items

    async def settings(self) -> FleetSettings:
        """What counts now."""
        return await self._read("settings", FleetSettings, "settings")

    async def installation(self) -> Installation:
        """Which installation this is: the value of the tag lcm:installation."""
        return await self._read("installation", Installation, "installation")

    async def license_token(self, worker_id: str) -> SecretStr:
        """A worker's licence token."""
        return (await self._read("license-token", ToldLicenseToken, "workers", worker_id, "license-token")).token

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        """What to sign in to a worker's CML with."""
        return await self._read("cml-credentials", CmlCredentials, "workers", worker_id, "cml-credentials")

    async def announce_leadership(self, leader: Leader, *, startup_sweep_done: bool = False) -> LeaderSeen:
        """A term begins, or its start-up sweep is done."""
        body = LeadershipAnnouncement(term=leader.term, startup_sweep_done=startup_sweep_done)
        return await self._write("leadership", leader, body, LeaderSeen, "leadership")

    async def write_status(self, leader: Leader, worker_id: str, body: StatusWrite) -> Worker:
        """What was found or done."""
        return await self._write("status", leader, body, Worker, "workers", worker_id, "status")

    async def write_launch(self, leader: Leader, worker_id: str, body: LaunchWrite) -> Worker:
        """The intent to launch, before the call."""
        return await self._write("launch", leader, body, Worker, "workers", worker_id, "launch")

    async def write_metrics(self, leader: Leader, body: MetricsBatch) -> BatchResult:
        """Figures of many workers; unknown or outdated ones are counted and dropped."""
        return await self._write("metrics", leader, body, BatchResult, "workers", "metrics")

    async def write_decisions(self, leader: Leader, body: DecisionsBatch) -> BatchResult:
        """What was decided for many workers; unknown workers and older decisions are counted and dropped."""
        return await self._write("decisions", leader, body, BatchResult, "workers", "decisions")

    async def detect_idle(self, leader: Leader, worker_id: str, body: DetectIdle) -> DetectionResult:
        """Telemetry, and what followed from it."""
        return await self._write("detect-idle", leader, body, DetectionResult, "workers", worker_id, "detect-idle")

    async def drain(self, leader: Leader, worker_id: str, reason: str = "idle") -> Worker:
        """Scale-down takes a worker out of service."""
        body = DrainWrite.model_construct(reason=reason)  # the server judges it, by an error that callers expect
        return await self._write("drain", leader, body, Worker, "workers", worker_id, "drain")

    async def write_license_status(self, leader: Leader, worker_id: str, body: LicenseStatusWrite) -> Worker:
        """What CML says of the licence."""
        return await self._write("license-status", leader, body, Worker, "workers", worker_id, "license-status")

    async def import_worker(self, leader: Leader, body: ImportWorker) -> Worker:
        """The record for an instance that was found, new or known already."""
        return await self._write("import", leader, body, Worker, "workers", "import")

    async def scale_up(self, leader: Leader, body: ScaleUp) -> Worker:
        """One more worker for a need."""
        return await self._write("scale-up", leader, body, Worker, "workers", "scale-up")

    async def audit(self, leader: Leader, action: str, subject: str, reason: str = "") -> None:
        """A decision that changes no record."""
        line = AuditWrite.model_construct(action=action, subject=subject, reason=reason)  # as above
        await self._write("audit", leader, line, Kept, "audit")

    async def fleet(self) -> FleetState:
        """What holds for the fleet now: its hold, the open breakers, the last scale-down."""
        return await self._read("fleet", FleetState, "fleet")

    async def report_controller(self, leader: Leader, body: ControllerReport) -> None:
        """How the controller that leads is."""
        await self._write("report", leader, body, Kept, "controllers", leader.controller, "report")

    async def report_breaker(self, leader: Leader, body: BreakerReport) -> FleetState:
        """A sweep would have marked too many as lost, or a later one agrees."""
        return await self._write("breaker", leader, body, FleetState, "fleet", "breaker")
