"""Carrying out decisions: writes to the control plane, calls to the cloud, in the order in which they were decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import VersionConflictError
from lcm.cloud.errors import (
    CloudError,
    CloudOutcomeUnknownError,
    CloudRefusedError,
    InsufficientCapacityError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
)
from lcm.controllers.common.actions import ActionKind, PassInterruptedError, requeue_if_interrupted
from lcm.controllers.worker.act.control_plane_writer import decision_report, merge_conditions
from lcm.controllers.worker.decide.pending import launch_failed, launched
from lcm.controllers.worker.decide.shared.instance import BY_DISCOVERY, instance_call_failed
from lcm.controllers.worker.decision import (
    ChangeInstance,
    CheckIdle,
    CloudCall,
    DeregisterLicense,
    Drain,
    Launch,
    RegisterLicense,
    StoreLaunchIntent,
    WriteAuditEntry,
    WriteLicenseStatus,
    WriteStatus,
)
from lcm.controllers.worker.memory import AttemptCalls
from lcm.core import clock
from lcm.core.controller.effects import EffectTimeoutError
from lcm.core.controller.leader_election import NotLeaderError
from lcm.core.controller.resources import ReconciliationResult
from lcm.model.worker.status import LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.resources.internal import InternalApi
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import Instance, InstanceState
    from lcm.controllers.common.actions import Effect
    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
    from lcm.controllers.worker.act.decision_reporter import DecisionReporter
    from lcm.controllers.worker.act.idle_check import IdleChecker
    from lcm.controllers.worker.act.license_tasks import LicenseTasks
    from lcm.controllers.worker.decision import Action, Decision
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.controllers.worker.metrics.prometheus import Counters
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Hold, Worker

log = structlog.get_logger(__name__)

_MAX_LAUNCH_WRITES = 10
_DEFINITE_ERRORS = (CloudRefusedError, InsufficientCapacityError, LaunchTokenSpentError, LaunchTokenMismatchError)


@dataclass(slots=True)
class ReconcilePass:
    """One pass: the worker as it is now, and what is remembered of it."""

    worker: Worker
    note: WorkerMemory
    intent_stored: bool = False
    read_only: bool = True


class ActionExecutor:
    """The hands of the controller."""

    def __init__(
        self,
        *,
        internal: InternalApi,
        writes: ControlPlaneWriter,
        cloud: CloudProviderSPI,
        effect: Effect,
        licences: LicenseTasks,
        idleness: IdleChecker,
        telling: DecisionReporter,
        counters: Counters,
        track: Callable[[str, str], None],
        began: Callable[[], float],
        local_hold: Callable[[], Hold | None],
        heard: Callable[[FleetState], None],
    ) -> None:
        self._internal = internal
        self._writes = writes
        self._cloud = cloud
        self._effect = effect
        self._licences = licences
        self._idleness = idleness
        self._decision_reporter = telling
        self._counters = counters
        self._track = track
        self._began = began
        self._standstill = local_hold
        self._heard = heard  # whoever decides next must know what was heard here, or it would be decided again

    async def carry_out(self, worker: Worker, decision: Decision, note: WorkerMemory) -> ReconciliationResult:
        """Do what was decided; what comes of it may be decided and done in the same pass."""
        work = ReconcilePass(worker, note)
        return await requeue_if_interrupted(self._run(work, decision))

    async def _run(self, work: ReconcilePass, decision: Decision) -> ReconciliationResult:
        writes = [number for number, action in enumerate(decision.actions) if isinstance(action, WriteStatus)]
        for number, action in enumerate(decision.actions):
            if isinstance(action, CheckIdle) and not self._idleness.due(work.note):
                continue
            work.read_only = False
            if action.nature is not ActionKind.RECORD:
                await self._make_sure(work)
            if isinstance(action, WriteStatus):
                await self._write(work, action, decision if number == writes[-1] else None)
                continue
            if isinstance(action, CheckIdle):
                checked = await self._check_idleness(work)
                if checked is not None and checked.after is not None:
                    return ReconciliationResult(checked.outcome, checked.reason, checked.after)
                if checked is not None:
                    decision = decision.adding(conditions=checked.conditions)
                continue
            follows = await self._do(work, action)
            if follows is not None:
                self._decision_reporter.note(work.worker, work.note, decision)
                return await self._run(work, follows)
        if not writes:
            await self._say(work, decision)
        return ReconciliationResult(decision.outcome, decision.reason, decision.after, work.read_only)

    async def _do(self, work: ReconcilePass, action: Action) -> Decision | None:
        match action:
            case StoreLaunchIntent():
                work.worker = await self._writes.intent(work.worker, action)
                work.intent_stored = True
            case Launch():
                return await self._launch(work, action)
            case ChangeInstance():
                return await self._change(work, action.call)
            case WriteLicenseStatus():
                work.worker = await self._writes.licence(work.worker, action)
                self._count_licence(action)
            case RegisterLicense():
                self._licences.register(work.worker)
            case DeregisterLicense():
                self._licences.release(work.worker)
            case Drain():
                return await self._idleness.drain(work.worker, action)
            case WriteAuditEntry():
                await self._writes.audit(work.worker, action.label, action.reason)
        return None

    async def _check_idleness(self, work: ReconcilePass) -> Decision | None:
        """What was found, and whether scale-down acts on it: its skips are kept, its drain ends the pass."""
        found = await self._idleness.check(work.worker, work.note)
        for action in () if found is None else found.actions:
            if action.nature is not ActionKind.RECORD:
                await self._make_sure(work)
            follows = await self._do(work, action)
            if follows is not None:
                for consequence in follows.actions:
                    await self._do(work, consequence)
                return follows
        return found

    # The record

    async def _write(self, work: ReconcilePass, action: WriteStatus, decision: Decision | None) -> None:
        before = work.worker
        conditions = None if decision is None else merge_conditions(before.conditions, decision.conditions, clock.now())
        report = None if decision is None else decision_report(decision, clock.now())
        work.worker = await self._writes.status(before, action, conditions=conditions, decision=report)
        if decision is not None:
            self._decision_reporter.recorded(work.note, decision)
        if work.worker.status is not before.status:
            work.note.status, work.note.since = work.worker.status, work.worker.status_since
            work.note.moved = False
            work.note.touched = clock.boottime()
            log.info(
                "status written",
                worker=before.id,
                name=before.name,
                before=before.status.value,
                status=action.status.value,
                reason=action.reason,
            )
            self._count_status(before, action)

    async def _say(self, work: ReconcilePass, decision: Decision) -> None:
        """Keep conditions that changed, with the decision; a decision alone is told with others, later."""
        now = clock.now()
        conditions = merge_conditions(work.worker.conditions, decision.conditions, now)
        if conditions is None:
            self._decision_reporter.note(work.worker, work.note, decision)
            return
        work.read_only = False
        write = WriteStatus(work.worker.status, decision.reason)
        work.worker = await self._writes.status(
            work.worker, write, conditions=conditions, decision=decision_report(decision, now)
        )
        self._decision_reporter.recorded(work.note, decision)

    def _count_status(self, before: Worker, action: WriteStatus) -> None:
        """Instances are counted: a worker that ends without one is none, and one that is only missing has a count."""
        counters = self._counters
        if action.status is WorkerStatus.RUNNING:
            counters.started_count += 1
        elif before.instance_id is None:
            return
        elif action.status is WorkerStatus.STOPPED:
            counters.stopped_count += 1
        elif action.status is WorkerStatus.TERMINATED:
            if action.nature is ActionKind.LOSS and action.fields.get("terminated_by") == BY_DISCOVERY:
                counters.orphans_terminated_count += 1
            else:
                counters.terminated_count += 1

    def _count_licence(self, action: WriteLicenseStatus) -> None:
        if action.status is LicenseStatus.REGISTERED:
            self._counters.license_registered_count += 1
        elif action.status is LicenseStatus.DEREGISTERED:
            self._counters.license_deregistered_count += 1

    # The world

    async def _make_sure(self, work: ReconcilePass) -> None:
        """Nobody has asked for anything else, and nobody has put a hold on it, up to a moment ago."""
        state = await self._internal.fleet()
        self._heard(state)
        now = clock.now()
        hold = self._standstill() or state.hold
        if hold is not None and hold.active(now):
            raise PassInterruptedError(f"the fleet is on hold by {hold.by}: {hold.reason}")
        current = await self._internal.worker(work.worker.id)
        if current.version != work.worker.version:
            raise PassInterruptedError("it was changed meanwhile")

    async def _change(self, work: ReconcilePass, call: CloudCall) -> Decision | None:
        worker = work.worker
        instance_id = worker.instance_id
        assert instance_id is not None

        async def change() -> InstanceState:
            try:
                if call is CloudCall.START:
                    return await self._cloud.start_instance(worker.aws_region, instance_id)
                if call is CloudCall.STOP:
                    return await self._cloud.stop_instance(worker.aws_region, instance_id)
                return await self._cloud.terminate_instance(worker.aws_region, instance_id)
            finally:
                work.note.touched = clock.boottime()

        try:
            await self._effect(change)
        except NotLeaderError:
            raise
        except (CloudError, EffectTimeoutError) as error:
            log.warning("call failed", worker=worker.id, call=call.value, instance=instance_id, error=str(error))
            return instance_call_failed(call, error)
        finally:
            self._track(worker.aws_region, instance_id)
        log.info("instance told", worker=worker.id, name=worker.name, call=call.value, instance=instance_id)
        return None

    async def _launch(self, work: ReconcilePass, action: Launch) -> Decision:
        note = work.note
        if note.calls is None or note.calls.attempt != action.attempt:
            # An intent that another process stored may have been acted upon by it.
            note.calls = AttemptCalls(action.attempt, self._began(), unsure=not work.intent_stored)
        calls, before = note.calls, note.calls.unsure

        async def launch() -> Instance:
            calls.deadline = float("inf")
            try:
                return await self._cloud.launch_instance(action.parameters)
            finally:
                calls.deadline = clock.boottime()

        calls.unsure = True  # until an answer says otherwise: this pass may be cut off before it hears one
        try:
            instance = await self._effect(launch)
        except NotLeaderError:
            calls.unsure = before
            raise
        except (CloudError, EffectTimeoutError) as error:
            if not isinstance(error, CloudOutcomeUnknownError | EffectTimeoutError | LaunchTokenMismatchError):
                calls.unsure = before
            calls.refusal = error if isinstance(error, _DEFINITE_ERRORS) else None
            log.warning("launch failed", worker=work.worker.id, attempt=action.attempt, error=str(error))
            return launch_failed(work.worker, error, certain=not calls.unsure)
        return await self._launched(work, instance)

    async def _launched(self, work: ReconcilePass, instance: Instance) -> Decision:
        """Keep the id of what was launched. Whoever changed the record meanwhile did not change that."""
        self._counters.provisioned_count += 1
        self._track(work.worker.aws_region, instance.id)
        log.info("instance launched", worker=work.worker.id, name=work.worker.name, instance=instance.id)
        decision = launched(instance, None)
        write = decision.actions[0]
        assert isinstance(write, WriteStatus)
        for _ in range(_MAX_LAUNCH_WRITES):
            try:
                await self._write(work, write, decision)
                break
            except VersionConflictError:
                work.worker = await self._internal.worker(work.worker.id)
                if work.worker.instance_id is not None or work.worker.status is not WorkerStatus.PENDING:
                    raise
        return decision.without(write)
