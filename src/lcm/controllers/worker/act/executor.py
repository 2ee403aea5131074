"""Executes decisions: writes to the control plane and calls to the cloud, in the decided order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lcm.controllers.common.actions import ActionKind, PassInterruptedError, requeue_if_interrupted
from lcm.controllers.worker.act.control_plane_writer import decision_report, merge_conditions
from lcm.controllers.worker.act.desired_status import DesiredStatusChanger
from lcm.controllers.worker.act.instance_calls import InstanceCaller
from lcm.controllers.worker.act.reconcile_pass import ReconcilePass
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.decide.shared.forecast import forecast
from lcm.controllers.worker.decide.shared.instance import BY_DISCOVERY
from lcm.controllers.worker.decide.shared.license_release import MAX_RELEASES_PER_REGION
from lcm.controllers.worker.decide.shared.waiting import bound_wait
from lcm.controllers.worker.decision import (
    ChangeHost,
    ChangeInstance,
    CheckIdle,
    DeregisterLicense,
    Drain,
    FollowSchedule,
    Launch,
    RegisterLicense,
    StoreLaunchIntent,
    WriteAuditEntry,
    WriteLicenseStatus,
    WriteStatus,
)
from lcm.core import clock
from lcm.core.authorization import authorized
from lcm.core.controller.resources import ReconciliationResult
from lcm.model.worker.status import LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter, DecisionReporter
    from lcm.controllers.worker.act.idle_check import IdleChecker
    from lcm.controllers.worker.act.license_tasks import LicenseTasks
    from lcm.controllers.worker.act.reconcile_pass import CloudCalls
    from lcm.controllers.worker.decision import Action, Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.fleet_cache import FleetCache
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.controllers.worker.metrics.prometheus import Counters
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)


class ActionExecutor:
    """Executes the actions of decisions, one pass at a time per worker."""

    def __init__(
        self,
        calls: CloudCalls,
        writer: ControlPlaneWriter,
        cache: FleetCache,
        *,
        license_tasks: LicenseTasks,
        idle_checker: IdleChecker,
        decision_reporter: DecisionReporter,
        counters: Counters,
        policy: Callable[[], Policy],
    ) -> None:
        self._calls = calls
        self._writer = writer
        self._instances = InstanceCaller(calls, writer, counters, self._write_status)
        self._desired_status = DesiredStatusChanger(writer)
        self._cache = cache
        self._license_tasks = license_tasks
        self._idle_checker = idle_checker
        self._decision_reporter = decision_reporter
        self._counters = counters
        self._policy = policy

    async def execute(
        self,
        worker: Worker,
        decision: Decision,
        memory: WorkerMemory,
        term_began: float,
        observed: Observation | None = None,
    ) -> ReconciliationResult:
        """Execute a decision. What follows from its calls may be decided and executed in the same pass."""
        current = ReconcilePass(worker, memory, term_began, observed=observed)
        return await requeue_if_interrupted(self._run(current, decision))

    async def _run(self, current: ReconcilePass, decision: Decision) -> ReconciliationResult:
        writes = [number for number, action in enumerate(decision.actions) if isinstance(action, WriteStatus)]
        for number, action in enumerate(decision.actions):
            if isinstance(action, CheckIdle) and not self._idle_checker.prepare(current.worker, current.memory):
                continue
            current.read_only = False
            current.outdated = current.outdated or not isinstance(action, CheckIdle | WriteStatus)
            await self._check_before(current, action)
            if isinstance(action, WriteStatus):
                await self._write_status(current, action, decision if number == writes[-1] else None)
                continue
            if isinstance(action, CheckIdle):
                checked = await self._check_idle(current)
                if checked is not None and checked.after is not None:
                    return ReconciliationResult(checked.outcome, checked.reason, checked.after)
                if checked is not None:
                    decision = decision.with_added(conditions=checked.conditions)
                continue
            follows = await self._execute_action(current, action)
            if follows is not None:
                self._decision_reporter.report(current.worker, current.memory, decision)
                return await self._run(current, bound_wait(current.worker, follows, self._policy(), clock.now()))
        if not writes:
            await self._record_conditions(current, decision)
        elif not current.outdated:
            following = self._following(current, decision, current.worker.conditions)
            self._decision_reporter.report(current.worker, current.memory, decision, following)
        # If it is known when the next pass is due, or that it does nothing, own writes that come back need none.
        version = current.worker.version if current.settled or decision.after is not None else None
        return ReconciliationResult(decision.outcome, decision.reason, decision.after, current.read_only, version)

    async def _execute_action(self, current: ReconcilePass, action: Action) -> Decision | None:
        match action:
            case StoreLaunchIntent():
                current.worker = await self._writer.intent(current.worker, action)
                current.intent_stored = True
            case Launch():
                return await self._instances.launch(current, action)
            case ChangeInstance():
                return await self._instances.change(current, action.call)
            case WriteLicenseStatus():
                current.worker = await self._writer.license(current.worker, action)
                self._count_license(action)
            case RegisterLicense():
                with authorized(current.authorization):
                    self._license_tasks.register(current.worker)
            case DeregisterLicense():
                with authorized(current.authorization):
                    self._license_tasks.deregister(current.worker)
            case Drain():
                return await self._idle_checker.drain(current.worker, action)
            case ChangeHost() | FollowSchedule():
                return await self._desired_status.change(current, action)
            case WriteAuditEntry():
                await self._writer.audit(current.worker, action.label, action.reason)
        return None

    async def _check_idle(self, current: ReconcilePass) -> Decision | None:
        """Check idleness and let scale-down act on the result: a skip is recorded, a drain ends the pass."""
        decision = await self._idle_checker.check(current.worker, current.memory)
        for action in () if decision is None else decision.actions:
            await self._check_before(current, action)
            follows = await self._execute_action(current, action)
            if follows is not None:
                for consequence in follows.actions:
                    await self._execute_action(current, consequence)
                return follows
        return decision

    # Records

    async def _write_status(self, current: ReconcilePass, action: WriteStatus, decision: Decision | None) -> None:
        before = current.worker
        conditions = None if decision is None else merge_conditions(before.conditions, decision.conditions, clock.now())
        report = None if decision is None else decision_report(decision, clock.now(), before)
        current.worker = await self._writer.status(before, action, conditions=conditions, decision=report)
        if decision is not None:
            self._decision_reporter.recorded(current.worker, current.memory, decision)
        if current.worker.status is not before.status:
            current.outdated = True
            current.memory.status, current.memory.since = current.worker.status, current.worker.status_since
            # Whoever writes RUNNING has seen it run.
            current.memory.has_started = current.worker.status is WorkerStatus.RUNNING
            current.memory.changed_at = clock.boottime()
            log.info(
                "status written",
                worker=before.id,
                name=before.name,
                before=before.status.value,
                status=action.status.value,
                reason=action.reason,
            )
            self._count_status(before, action)

    async def _record_conditions(self, current: ReconcilePass, decision: Decision) -> None:
        """Write changed conditions with the decision; without changes the decision is reported later, in a batch."""
        now = clock.now()
        conditions = merge_conditions(current.worker.conditions, decision.conditions, now)
        if conditions is not None:
            current.read_only = False
            write = WriteStatus(current.worker.status, decision.reason)
            following = self._following(current, decision, conditions)
            report = decision_report(decision, now, current.worker, following)
            current.worker = await self._writer.status(current.worker, write, conditions=conditions, decision=report)
            self._decision_reporter.recorded(current.worker, current.memory, decision, following)
            current.settled = following is not None and all(isinstance(action, CheckIdle) for action in following)
            return
        following = self._following(current, decision, current.worker.conditions)
        self._decision_reporter.report(current.worker, current.memory, decision, following)

    def _following(
        self, current: ReconcilePass, decision: Decision, conditions: tuple[Condition, ...]
    ) -> tuple[Action, ...] | None:
        """What the next pass will do if nothing changes until then; None if that has to be observed first."""
        if current.outdated or current.observed is None:
            return None
        worker, policy = current.worker, self._policy()
        if conditions is not worker.conditions:
            worker = worker.model_copy(update={"conditions": conditions})
        wait = policy.check_interval if decision.after is None else min(decision.after, policy.check_interval)
        return forecast(
            lambda observed, at: decide(worker, observed, policy, at), current.observed, clock.earliest_now(), wait
        )

    def _count_status(self, before: Worker, action: WriteStatus) -> None:
        """Count instances: a worker without one does not count, and a lost one has a counter of its own."""
        counters = self._counters
        if action.status is WorkerStatus.RUNNING:
            counters.started_count += 1
        elif before.instance_id is None:
            return
        elif action.status is WorkerStatus.STOPPED:
            counters.stopped_count += 1
        elif action.status is WorkerStatus.TERMINATED:
            if action.kind is ActionKind.LOSS and action.fields.get("terminated_by") == BY_DISCOVERY:
                counters.orphans_terminated_count += 1
                log.warning("worker lost", worker=before.id, instance_id=before.instance_id, region=before.aws_region)
            else:
                counters.terminated_count += 1

    def _count_license(self, action: WriteLicenseStatus) -> None:
        if action.status is LicenseStatus.REGISTERED:
            self._counters.license_registered_count += 1
        elif action.status is LicenseStatus.DEREGISTERED:
            self._counters.license_deregistered_count += 1

    # Calls

    async def _check_before(self, current: ReconcilePass, action: Action) -> None:
        if action.kind is ActionKind.RECORD:
            return
        if isinstance(action, WriteStatus) and "license_release_started_at" in action.fields:
            self._claim_license_release(current.worker)
        if action.kind is ActionKind.INTENT:
            # The write is rejected if the fleet is on hold or the record has changed, so nothing needs to be read here.
            self._check_no_hold()
            return
        if action.kind is ActionKind.WORLD:
            # Before the record is read: a call that is sent later than authorized would act on an outdated desire.
            current.authorization = self._calls.authorize()
        await self._check_unchanged(current)

    def _claim_license_release(self, worker: Worker) -> None:
        if not self._cache.claim_license_release(worker, MAX_RELEASES_PER_REGION):
            raise PassInterruptedError("other workers of the region deregister their licenses first")

    async def _check_unchanged(self, current: ReconcilePass) -> None:
        """Raise if a hold was placed or the worker was changed since the decision."""
        latest = await self._writer.internal.worker_context(current.worker.id)
        # Kept, or the next decision would be made without the hold that is found here.
        await self._cache.update_fleet(latest)
        self._check_no_hold()
        if latest.worker.version != current.worker.version:
            raise PassInterruptedError("the worker was changed meanwhile")

    def _check_no_hold(self) -> None:
        hold = self._cache.hold
        if hold is not None and hold.active(clock.earliest_now()):
            raise PassInterruptedError(f"the fleet is on hold by {hold.by}: {hold.reason}")
