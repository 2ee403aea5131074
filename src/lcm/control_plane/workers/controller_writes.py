"""Writes of controllers about workers. Every write is fenced by the leader's term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from lcm.control_plane.bookings.measurements import measure_launch
from lcm.control_plane.calendar.schedule_reads import boundary_override
from lcm.control_plane.calendar.schedule_steps import apply_schedule_step
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.breaker import count_loss, forget_loss, is_loss
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, store_secrets, withdraw_secrets
from lcm.control_plane.workers import status_writes
from lcm.control_plane.workers.decisions import store_decision, store_decisions
from lcm.control_plane.workers.idle import detect_idle
from lcm.control_plane.workers.imports import complete_import, import_worker
from lcm.control_plane.workers.scaling import ScaleUpPlan, change_host, check_not_held, scale_down, scale_up
from lcm.core import clock
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.notification.alert import AlertChange, AlertState, AlertType, Finding, worker_subject
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Leader, Transaction
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
        MaintenanceRequest,
        ScaleUpRequest,
        ScheduleStepRequest,
        WorkerStatusUpdate,
    )

LICENSES_LEAKED = Counter(
    "lcm_licenses_leaked_total", "Licenses whose instance ended without a confirmed deregistration"
)


class WorkerControllerWrites:
    """Writes of controllers about workers. A term older than the newest known one changes nothing."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._run_fenced = context.unit_of_work.run_fenced

    async def leadership(self, leader: Leader, announcement: LeadershipAnnouncement) -> LeadershipTerm:
        """Announce a new term, or that its startup sweep is done."""
        if announcement.term != leader.term:
            detail = f"term: {announcement.term} differs from the term in the header, {leader.term}"
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)

        async def attempt(tx: Transaction) -> LeadershipTerm:
            swept = announcement.startup_sweep_done
            return await tx.fence(leader.controller, announcement.term, announce=True, swept=swept)

        return await self._context.unit_of_work.run(leader.actor, attempt)

    async def status(self, leader: Leader, worker_id: str, write: WorkerStatusUpdate) -> Worker:
        """Store what the controller observed or did, with the decision behind it.

        A loss that is one too many is not stored: the same commit opens the breaker of the region instead.
        """
        settings = await self._context.settings()
        leak = _LicenseLeak()

        async def attempt(tx: Transaction) -> Worker | ProblemError:
            worker = await tx.worker(worker_id)
            if write.unless_held:
                await check_not_held(tx)
            after = status_writes.apply_status(worker, write, settings.discovery.drift_policy, tx.now)
            after = await _keep_accepted(tx, worker, after)
            if is_loss(worker, write):
                refusal = await count_loss(tx, worker, write) if settings.discovery.breaker_enabled else None
                if refusal is not None:
                    return refusal
            elif after.status is WorkerStatus.TERMINATED or status_writes.is_seen_again(worker, after):
                await forget_loss(tx, worker)
            if write.decision is not None:
                await store_decision(tx, leader, after, write.decision)
            leak.audit(tx, worker, write.reason, leaked=status_writes.leaks_license(worker, write))
            label = status_writes.audit_label(worker, write)
            if label:
                tx.audit(label, worker_id, write.reason, instance_id=after.instance_id)
            if after.status is WorkerStatus.TERMINATED and await withdraw_secrets(tx, worker_id):
                after = after.model_copy(update={"has_license_token": False})
            after = await measure_launch(tx, worker, after)
            event = status_writes.activity_event(worker, write)
            details = {"status": write.status.value} | ({} if event is None else {"event": event.value})
            return tx.save_worker(after, "status_reported", write.reason, **details)

        result = await self._run_fenced(leader, attempt)
        if isinstance(result, ProblemError):
            raise result
        return leak.count(result)

    async def decisions(self, leader: Leader, batch: DecisionBatch) -> BatchResult:
        """Store the decisions for many workers, in one commit."""
        return await self._run_fenced(leader, lambda tx: store_decisions(tx, leader, batch.items))

    async def launch(self, leader: Leader, worker_id: str, write: LaunchIntentRequest) -> Worker:
        """Store the launch intent, before the launch call."""

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id)
            if write.unless_held:
                await check_not_held(tx)
            stored = None if worker.template_name is None else await tx.store.get(TEMPLATES, worker.template_name)
            template = None if stored is None else WorkerTemplate.model_validate_json(stored.body)
            after = status_writes.apply_launch_intent(worker, write, tx.now, template)
            return tx.save_worker(after, "launch_intended", attempt=write.attempt)

        return await self._run_fenced(leader, attempt)

    async def license_status(self, leader: Leader, worker_id: str, write: LicenseStatusUpdate) -> Worker:
        """Store the license status that CML reports."""
        leak = _LicenseLeak()

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id)
            if write.unless_held:
                await check_not_held(tx)
            after = status_writes.apply_license_status(worker, write, tx.now)
            if write.status is LicenseStatus.DEREGISTERED and worker.has_license_token:
                await store_secrets(tx, self._context.secret_box, worker_id, {LICENSE_TOKEN: None})
            leak.audit(tx, worker, write.message, leaked=write.leaked)
            return tx.save_worker(after, "license_reported", write.message, status=write.status.value)

        return leak.count(await self._run_fenced(leader, attempt))

    async def detect_idle(self, leader: Leader, worker_id: str, request: IdleDetectionRequest) -> IdleDetectionResult:
        """Run the four steps of idle detection."""
        settings = await self._context.settings()
        return await self._run_fenced(leader, lambda tx: detect_idle(tx, worker_id, request, settings))

    async def drain(self, leader: Leader, worker_id: str, reason: str) -> Worker:
        """Drain a worker on behalf of scale-down."""
        settings = await self._context.settings()
        return await self._run_fenced(leader, lambda tx: scale_down(tx, worker_id, settings, reason))

    async def maintenance(self, leader: Leader, worker_id: str, request: MaintenanceRequest) -> Worker:
        """Stop a worker for maintenance, or start it again after it."""
        settings = await self._context.settings()
        return await self._run_fenced(leader, lambda tx: change_host(tx, worker_id, request, settings))

    async def schedule_step(self, leader: Leader, worker_id: str, request: ScheduleStepRequest) -> Worker:
        """Stop a worker outside the windows of its schedules, or start it again."""
        return await self._run_fenced(leader, lambda tx: apply_schedule_step(tx, worker_id, request))

    async def scale_up(self, leader: Leader, request: ScaleUpRequest) -> Worker:
        """Provide one more worker. A rejection is also stored in the audit."""
        region = self._context.region(request.aws_region)
        settings = await self._context.settings()
        worker_id, token = clock.new_id("w"), self._context.scale_up_license

        async def attempt(tx: Transaction) -> Worker:
            template = await read_template(tx.store, request.template)
            plan = ScaleUpPlan(request, template, region, worker_id, licensed=token is not None)
            worker = await scale_up(tx, plan, settings)
            if token is not None and worker.id == worker_id:
                await store_secrets(tx, self._context.secret_box, worker_id, {LICENSE_TOKEN: token.get_secret_value()})
            return worker

        try:
            return await self._run_fenced(leader, attempt)
        except ProblemError as problem:
            if problem.code is not ProblemCode.STALE_LEADER:
                await self.audit(leader, "scale_up_rejected", request.requested_for or request.template, problem.detail)
            raise

    async def audit(self, leader: Leader, action: str, subject: str, reason: str = "") -> None:
        """Store an audit entry for a decision that changes no record."""

        async def attempt(tx: Transaction) -> None:
            tx.audit(action, subject, reason)

        await self._run_fenced(leader, attempt)

    async def import_worker(self, leader: Leader, request: ImportWorkerRequest) -> tuple[Worker, bool]:
        """Create a worker for a discovered instance, or return the one that has it; the flag says whether it is new."""
        worker_id = clock.new_id("w")
        region = self._context.region(request.aws_region)

        async def attempt(tx: Transaction) -> tuple[Worker, bool]:
            existing = await tx.store.get_unique(WORKERS, "instance_id", request.instance_id)
            if existing is not None:
                return await complete_import(tx, Worker.model_validate_json(existing.body), request), False
            return await import_worker(tx, request, worker_id, region), True

        try:
            return await self._run_fenced(leader, attempt)
        except ProblemError as problem:
            if problem.current is None or "worker_id" not in problem.current:
                raise
            # Another import of the same instance committed first: return its worker.
            return await self._run_fenced(leader, attempt)


async def _keep_accepted(tx: Transaction, worker: Worker, after: Worker) -> Worker:
    """A stop from outside that is accepted counts like a person's: until the next boundary of its schedules."""
    if after.desired_status is worker.desired_status:
        return after
    by, reason = DriftPolicy.ACCEPT.value, status_writes.STOPPED_EXTERNALLY
    override = await boundary_override(tx.store, worker, after.desired_status, by, tx.now, reason)
    return after if override is None else after.model_copy(update={"override": override})


class _LicenseLeak:
    """A license that can no longer be deregistered: audited in the commit that gives it up, counted after it."""

    def __init__(self) -> None:
        self._leaked = False

    def audit(self, tx: Transaction, worker: Worker, reason: str, *, leaked: bool) -> None:
        self._leaked = leaked
        if leaked:
            tx.audit("license_leaked", worker.id, reason, instance_id=worker.instance_id)
            finding = Finding(worker_subject(worker), reason)
            tx.alert([AlertChange(AlertType.LICENSE_LEAKED, AlertState.RAISED, finding)])

    def count(self, worker: Worker) -> Worker:
        if self._leaked:
            LICENSES_LEAKED.inc()
        return worker
