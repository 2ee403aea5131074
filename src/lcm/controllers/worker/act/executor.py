"""Carrying out decisions: writes to the control plane, calls to the cloud, in the order in which they were decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import VersionConflict
from lcm.cloud.errors import CapacityLacking, CloudError, OutcomeUnknown, Refused, TokenMismatch, TokenSpent
from lcm.controllers.common.actions import Interrupted, Nature, uninterrupted
from lcm.controllers.worker.act.conditions import merged
from lcm.controllers.worker.act.control_plane_writer import report_of
from lcm.controllers.worker.decide.pending import launch_failed, launched
from lcm.controllers.worker.decide.shared.instance import BY_DISCOVERY
from lcm.controllers.worker.decide.shared.outcomes import call_failed
from lcm.controllers.worker.decision import (
    Audit,
    ChangeInstance,
    CloudCall,
    DetectIdle,
    Drain,
    Launch,
    RegisterLicence,
    ReleaseLicence,
    StoreIntent,
    WriteLicence,
    WriteStatus,
)
from lcm.controllers.worker.memory import Calls
from lcm.core import clock
from lcm.core.controller.effects import EffectTimeout
from lcm.core.controller.leader_election import NotLeader
from lcm.core.controller.resources import ReconciliationResult
from lcm.model.worker.status import LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.resources.client_internal import Internal
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import Instance, InstanceState
    from lcm.controllers.common.actions import Effect
    from lcm.controllers.worker.act.control_plane_writer import Writes
    from lcm.controllers.worker.act.decision_reporter import Telling
    from lcm.controllers.worker.act.idle_check import Idleness
    from lcm.controllers.worker.act.license_tasks import Licences
    from lcm.controllers.worker.decision import Action, Decision
    from lcm.controllers.worker.memory import Note
    from lcm.controllers.worker.metrics.prometheus import Counters
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Hold, Worker

log = structlog.get_logger(__name__)

_LAUNCH_WRITES = 10
_DEFINITE = (Refused, CapacityLacking, TokenSpent, TokenMismatch)


@dataclass(slots=True)
class Work:
    """One pass: the worker as it is now, and what is remembered of it."""

    worker: Worker
    note: Note
    intent_stored: bool = False
    only_looked: bool = True


class Acting:
    """The hands of the controller."""

    def __init__(
        self,
        *,
        internal: Internal,
        writes: Writes,
        cloud: CloudProviderSPI,
        effect: Effect,
        licences: Licences,
        idleness: Idleness,
        telling: Telling,
        counters: Counters,
        track: Callable[[str, str], None],
        began: Callable[[], float],
        standstill: Callable[[], Hold | None],
        heard: Callable[[FleetState], None],
    ) -> None:
        self._internal = internal
        self._writes = writes
        self._cloud = cloud
        self._effect = effect
        self._licences = licences
        self._idleness = idleness
        self._telling = telling
        self._counters = counters
        self._track = track
        self._began = began
        self._standstill = standstill
        self._heard = heard  # whoever decides next must know what was heard here, or it would be decided again

    async def carry_out(self, worker: Worker, decision: Decision, note: Note) -> ReconciliationResult:
        """Do what was decided; what comes of it may be decided and done in the same pass."""
        work = Work(worker, note)
        return await uninterrupted(self._run(work, decision))

    async def _run(self, work: Work, decision: Decision) -> ReconciliationResult:
        writes = [number for number, action in enumerate(decision.actions) if isinstance(action, WriteStatus)]
        for number, action in enumerate(decision.actions):
            if isinstance(action, DetectIdle) and not self._idleness.due(work.note):
                continue
            work.only_looked = False
            if action.nature is not Nature.RECORD:
                await self._make_sure(work)
            if isinstance(action, WriteStatus):
                await self._write(work, action, decision if number == writes[-1] else None)
                continue
            if isinstance(action, DetectIdle):
                checked = await self._check_idleness(work)
                if checked is not None and checked.after is not None:
                    return ReconciliationResult(checked.outcome, checked.reason, checked.after)
                if checked is not None:
                    decision = decision.adding(conditions=checked.conditions)
                continue
            follows = await self._do(work, action)
            if follows is not None:
                self._telling.note(work.worker, work.note, decision)
                return await self._run(work, follows)
        if not writes:
            await self._say(work, decision)
        return ReconciliationResult(decision.outcome, decision.reason, decision.after, work.only_looked)

    async def _do(self, work: Work, action: Action) -> Decision | None:
        match action:
            case StoreIntent():
                work.worker = await self._writes.intent(work.worker, action)
                work.intent_stored = True
            case Launch():
                return await self._launch(work, action)
            case ChangeInstance():
                return await self._change(work, action.call)
            case WriteLicence():
                work.worker = await self._writes.licence(work.worker, action)
                self._count_licence(action)
            case RegisterLicence():
                self._licences.register(work.worker)
            case ReleaseLicence():
                self._licences.release(work.worker)
            case Drain():
                return await self._idleness.drain(work.worker, action)
            case Audit():
                await self._writes.audit(work.worker, action.label, action.reason)
        return None

    async def _check_idleness(self, work: Work) -> Decision | None:
        """What was found, and whether scale-down acts on it: its skips are kept, its drain ends the pass."""
        found = await self._idleness.check(work.worker, work.note)
        for action in () if found is None else found.actions:
            if action.nature is not Nature.RECORD:
                await self._make_sure(work)
            follows = await self._do(work, action)
            if follows is not None:
                for consequence in follows.actions:
                    await self._do(work, consequence)
                return follows
        return found

    # The record

    async def _write(self, work: Work, action: WriteStatus, decision: Decision | None) -> None:
        before = work.worker
        conditions = None if decision is None else merged(before.conditions, decision.conditions, clock.now())
        report = None if decision is None else report_of(decision, clock.now())
        work.worker = await self._writes.status(before, action, conditions=conditions, decision=report)
        if decision is not None:
            self._telling.told(work.note, decision)
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

    async def _say(self, work: Work, decision: Decision) -> None:
        """Keep conditions that changed, with the decision; a decision alone is told with others, later."""
        now = clock.now()
        conditions = merged(work.worker.conditions, decision.conditions, now)
        if conditions is None:
            self._telling.note(work.worker, work.note, decision)
            return
        work.only_looked = False
        write = WriteStatus(work.worker.status, decision.reason)
        work.worker = await self._writes.status(
            work.worker, write, conditions=conditions, decision=report_of(decision, now)
        )
        self._telling.told(work.note, decision)

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
            if action.nature is Nature.LOSS and action.fields.get("terminated_by") == BY_DISCOVERY:
                counters.orphans_terminated_count += 1
            else:
                counters.terminated_count += 1

    def _count_licence(self, action: WriteLicence) -> None:
        if action.status is LicenseStatus.REGISTERED:
            self._counters.license_registered_count += 1
        elif action.status is LicenseStatus.DEREGISTERED:
            self._counters.license_deregistered_count += 1

    # The world

    async def _make_sure(self, work: Work) -> None:
        """Nobody has asked for anything else, and nobody has put a hold on it, up to a moment ago."""
        state = await self._internal.fleet()
        self._heard(state)
        now = clock.now()
        hold = self._standstill() or state.hold
        if hold is not None and hold.active(now):
            raise Interrupted(f"the fleet is on hold by {hold.by}: {hold.reason}")
        current = await self._internal.worker(work.worker.id)
        if current.version != work.worker.version:
            raise Interrupted("it was changed meanwhile")

    async def _change(self, work: Work, call: CloudCall) -> Decision | None:
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
        except NotLeader:
            raise
        except (CloudError, EffectTimeout) as error:
            log.warning("call failed", worker=worker.id, call=call.value, instance=instance_id, error=str(error))
            return call_failed(call, error)
        finally:
            self._track(worker.aws_region, instance_id)
        log.info("instance told", worker=worker.id, name=worker.name, call=call.value, instance=instance_id)
        return None

    async def _launch(self, work: Work, action: Launch) -> Decision:
        note = work.note
        if note.calls is None or note.calls.attempt != action.attempt:
            # An intent that another process stored may have been acted upon by it.
            note.calls = Calls(action.attempt, self._began(), unsure=not work.intent_stored)
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
        except NotLeader:
            calls.unsure = before
            raise
        except (CloudError, EffectTimeout) as error:
            if not isinstance(error, OutcomeUnknown | EffectTimeout | TokenMismatch):
                calls.unsure = before
            calls.refusal = error if isinstance(error, _DEFINITE) else None
            log.warning("launch failed", worker=work.worker.id, attempt=action.attempt, error=str(error))
            return launch_failed(work.worker, error, certain=not calls.unsure)
        return await self._launched(work, instance)

    async def _launched(self, work: Work, instance: Instance) -> Decision:
        """Keep the id of what was launched. Whoever changed the record meanwhile did not change that."""
        self._counters.provisioned_count += 1
        self._track(work.worker.aws_region, instance.id)
        log.info("instance launched", worker=work.worker.id, name=work.worker.name, instance=instance.id)
        decision = launched(instance, None)
        write = decision.actions[0]
        assert isinstance(write, WriteStatus)
        for _ in range(_LAUNCH_WRITES):
            try:
                await self._write(work, write, decision)
                break
            except VersionConflict:
                work.worker = await self._internal.worker(work.worker.id)
                if work.worker.instance_id is not None or work.worker.status is not WorkerStatus.PENDING:
                    raise
        return decision.without(write)
