"""What controllers report and ask for. Every write is fenced by the leader's term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import Counter

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, store_secrets
from lcm.control_plane.workers import status_writes
from lcm.control_plane.workers.decisions import store_decision, store_decisions
from lcm.control_plane.workers.idle import detect_idle
from lcm.control_plane.workers.scaling import ScaleUpPlan, scale_down, scale_up
from lcm.core import clock
from lcm.model.audit import Actor, ActorKind
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerOrigin, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.fleet.state import LeadershipTerm
    from lcm.model.worker.idle import IdleDetectionResult
    from lcm.model.worker.metrics import BatchResult
    from lcm.model.worker.requests import (
        DecisionBatch,
        IdleDetectionRequest,
        ImportWorkerRequest,
        LaunchIntentRequest,
        LeadershipAnnouncement,
        LicenseStatusUpdate,
        ScaleUpRequest,
        WorkerStatusUpdate,
    )

R = TypeVar("R")
LICENSES_LEAKED = Counter(
    "lcm_licenses_leaked_total", "Licences whose instance ended without a confirmed deregistration"
)

_IMPORTED_AS_STOPPED = (WorkerStatus.STOPPED, WorkerStatus.STOPPING)


@dataclass(frozen=True, slots=True)
class Leader:
    """A controller and the term it writes in."""

    controller: str
    term: int

    @property
    def actor(self) -> Actor:
        """The controller as the audit names it."""
        return Actor(kind=ActorKind.CONTROLLER, name=self.controller)


async def run_fenced(plane: ControlPlaneContext, leader: Leader, attempt: Callable[[Transaction], Awaitable[R]]) -> R:
    """Run a change of a leader, unless a newer term is known."""

    async def attempt_in_term(change: Transaction) -> R:
        await change.fence(leader.controller, leader.term)
        return await attempt(change)

    return await plane.records.change(leader.actor, attempt_in_term)


class WorkerControllerWrites:
    """Writes of controllers. An older term than the newest known changes nothing."""

    def __init__(self, plane: ControlPlaneContext) -> None:
        self._plane = plane

    async def leadership(self, leader: Leader, announcement: LeadershipAnnouncement) -> LeadershipTerm:
        """A term begins, or its start-up sweep is done."""
        if announcement.term != leader.term:
            detail = f"term: {announcement.term} is not the term of the header, {leader.term}"
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)

        async def attempt(change: Transaction) -> LeadershipTerm:
            swept = announcement.startup_sweep_done
            return await change.fence(leader.controller, announcement.term, announce=True, swept=swept)

        return await self._plane.records.change(leader.actor, attempt)

    async def status(self, leader: Leader, worker_id: str, write: WorkerStatusUpdate) -> Worker:
        """What was found or done, with the decision behind it."""
        settings = await self._plane.settings()
        leaks = _LicenseLeak()

        async def attempt(change: Transaction) -> Worker:
            worker = await change.worker(worker_id)
            after = status_writes.apply_status(worker, write, settings.discovery.drift_policy, change.now)
            if write.decision is not None:
                await store_decision(change, worker_id, write.decision)
            leaks.note(change, worker, write.reason, happened=status_writes.leaks_license(worker, write))
            label = status_writes.audit_label(worker, write)
            if label:
                change.audit(label, worker_id, write.reason, instance_id=after.instance_id)
            event = status_writes.activity_event(worker, write)
            details = {"status": write.status.value} | ({} if event is None else {"event": event.value})
            return change.save(after, "status_reported", write.reason, **details)

        return leaks.count(await self._fenced(leader, attempt))

    async def decisions(self, leader: Leader, batch: DecisionBatch) -> BatchResult:
        """What was decided for many workers, in one commit."""
        return await self._fenced(leader, lambda change: store_decisions(change, batch.items))

    async def launch(self, leader: Leader, worker_id: str, write: LaunchIntentRequest) -> Worker:
        """The intent to launch, before the call."""

        async def attempt(change: Transaction) -> Worker:
            worker = await change.worker(worker_id)
            after = status_writes.apply_launch_intent(worker, write, change.now)
            return change.save(after, "launch_intended", attempt=write.attempt)

        return await self._fenced(leader, attempt)

    async def license_status(self, leader: Leader, worker_id: str, write: LicenseStatusUpdate) -> Worker:
        """What CML says of the licence."""
        leaks = _LicenseLeak()

        async def attempt(change: Transaction) -> Worker:
            worker = await change.worker(worker_id)
            after = status_writes.apply_license_status(worker, write, change.now)
            if write.status is LicenseStatus.DEREGISTERED and worker.has_license_token:
                await store_secrets(change, self._plane.box, worker_id, {LICENSE_TOKEN: None})
            leaks.note(change, worker, write.message, happened=write.leaked)
            return change.save(after, "license_reported", write.message, status=write.status.value)

        return leaks.count(await self._fenced(leader, attempt))

    async def detect_idle(self, leader: Leader, worker_id: str, request: IdleDetectionRequest) -> IdleDetectionResult:
        """The four steps of idle detection."""
        settings = await self._plane.settings()
        return await self._fenced(leader, lambda change: detect_idle(change, worker_id, request, settings))

    async def drain(self, leader: Leader, worker_id: str, reason: str) -> Worker:
        """Scale-down takes a worker out of service."""
        settings = await self._plane.settings()
        return await self._fenced(leader, lambda change: scale_down(change, worker_id, settings, reason))

    async def scale_up(self, leader: Leader, request: ScaleUpRequest) -> Worker:
        """One more worker for a need; a refusal is kept in the audit too."""
        region = self._plane.region(request.aws_region)
        settings = await self._plane.settings()
        worker_id, token = clock.new_id("w"), self._plane.scale_up_license

        async def attempt(change: Transaction) -> Worker:
            template = await read_template(change.store, request.template)
            growth = ScaleUpPlan(request, template, region, worker_id, licensed=token is not None)
            worker = await scale_up(change, growth, settings)
            if token is not None and worker.id == worker_id:
                await store_secrets(change, self._plane.box, worker_id, {LICENSE_TOKEN: token.get_secret_value()})
            return worker

        try:
            return await self._fenced(leader, attempt)
        except ProblemError as refusal:
            if refusal.code is not ProblemCode.STALE_LEADER:
                await self.audit(leader, "scale_up_rejected", request.requested_for or request.template, refusal.detail)
            raise

    async def audit(self, leader: Leader, action: str, subject: str, reason: str = "") -> None:
        """A decision of a controller that changes no record."""

        async def attempt(change: Transaction) -> None:
            change.audit(action, subject, reason)

        await self._fenced(leader, attempt)

    async def import_worker(self, leader: Leader, request: ImportWorkerRequest) -> tuple[Worker, bool]:
        """A record for an instance that was found, or the one that has it already; says whether it is new."""
        worker_id = clock.new_id("w")
        region = self._plane.region(request.aws_region)

        async def attempt(change: Transaction) -> tuple[Worker, bool]:
            known = await change.store.get_unique(WORKERS, "instance_id", request.instance_id)
            if known is not None:
                return Worker.model_validate_json(known.body), False
            worker = _imported_worker(request, worker_id, region, change)
            return change.save(worker, "imported", f"instance {request.instance_id} was found"), True

        try:
            return await self._fenced(leader, attempt)
        except ProblemError as refusal:
            if refusal.current is None or "worker_id" not in refusal.current:
                raise
            # Another import of the same instance was faster by a moment: its worker is the answer.
            return await self._fenced(leader, attempt)

    async def _fenced(self, leader: Leader, attempt: Callable[[Transaction], Awaitable[R]]) -> R:
        return await run_fenced(self._plane, leader, attempt)


class _LicenseLeak:
    """A licence that nobody can give back any more: told in the commit that gives it up, counted once that is made."""

    def __init__(self) -> None:
        self._happened = False

    def note(self, change: Transaction, worker: Worker, reason: str, *, happened: bool) -> None:
        self._happened = happened
        if happened:
            change.audit("license_leaked", worker.id, reason, instance_id=worker.instance_id)

    def count(self, worker: Worker) -> Worker:
        if self._happened:
            LICENSES_LEAKED.inc()
        return worker


def _imported_worker(request: ImportWorkerRequest, worker_id: str, region: str, change: Transaction) -> Worker:
    stopped = request.status in _IMPORTED_AS_STOPPED
    return Worker(
        id=worker_id,
        name=request.name or request.instance_id,
        template_name=None,
        aws_region=region,
        aws_account_id=request.aws_account_id,
        status=request.status,
        status_since=change.now,
        desired_status=DesiredStatus.STOPPED if stopped else DesiredStatus.RUNNING,
        instance_id=request.instance_id,
        instance_since=change.now,
        instance_type=request.instance_type,
        ami_id=request.ami_id,
        public_ip=None if stopped else request.public_ip,
        private_ip=request.private_ip,
        origin=WorkerOrigin.IMPORTED,
        previous_worker_id=request.previous_worker_id,
        tags=request.tags,
        idle_detection_enabled=False,
        last_resumed_at=change.now if request.status is WorkerStatus.RUNNING else None,
        cml_version=request.cml_version,
        created_at=change.now,
        updated_at=change.now,
    )
