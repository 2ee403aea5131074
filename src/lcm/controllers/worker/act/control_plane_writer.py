"""Writes to the control plane in the name of the current leader, each fenced by its term.

Decisions that no status write carries are reported separately, in batches.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.forecast import planned_actions
from lcm.controllers.worker.decision import CheckIdle
from lcm.core import clock
from lcm.core.text import single_line
from lcm.model.audit import DecisionReport
from lcm.model.worker.conditions import find_condition, with_condition, without_condition
from lcm.model.worker.requests import (
    DecisionBatch,
    LaunchIntentRequest,
    LicenseStatusUpdate,
    MaintenanceRequest,
    ScheduleStepRequest,
    WorkerDecision,
    WorkerStatusUpdate,
)
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.worker.decision import (
        Action,
        ChangeHost,
        ConditionUpdate,
        Decision,
        FollowSchedule,
        StoreLaunchIntent,
        WriteLicenseStatus,
        WriteStatus,
    )
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.idle import IdleDetectionResult
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import IdleDetectionRequest

log = structlog.get_logger(__name__)

REPORT_INTERVAL: Final = 1.0
MAX_BATCH: Final = 500
_MAX_REASON, _MAX_MESSAGE, _MAX_TEXT = 500, 1000, 300


class ControlPlaneWriter:
    """The writes of the worker controller. A write of an outdated leader raises `StaleTermError`."""

    def __init__(self, internal: InternalApi, leader: Callable[[], Leader]) -> None:
        self.internal = internal
        self._leader = leader

    async def status(
        self,
        worker: Worker,
        write: WriteStatus,
        *,
        conditions: tuple[Condition, ...] | None = None,
        decision: DecisionReport | None = None,
    ) -> Worker:
        """Write a status. Returns the worker after the write."""
        fields = dict(write.fields)
        for name in ("terminated_by", "terminated_reason"):
            if fields.get(name) is not None:
                fields[name] = single_line(str(fields[name]), _MAX_TEXT if name == "terminated_reason" else 100)
        if conditions is not None:
            fields["conditions"] = conditions
        if decision is not None:
            fields["decision"] = decision
        if write.kind is ActionKind.INTENT:
            fields["unless_held"] = True
        body = WorkerStatusUpdate(
            status=write.status, version=worker.version, reason=_reason_text(write.reason), **fields
        )
        return await self.internal.write_status(self._leader(), worker.id, body)

    async def intent(self, worker: Worker, intent: StoreLaunchIntent) -> Worker:
        """Store the parameters of a launch before the call."""
        body = LaunchIntentRequest(
            version=worker.version, attempt=intent.attempt, parameters=intent.parameters.to_json(), unless_held=True
        )
        return await self.internal.write_launch(self._leader(), worker.id, body)

    async def license(self, worker: Worker, write: WriteLicenseStatus) -> Worker:
        """Write the license status."""
        body = LicenseStatusUpdate(
            status=write.status,
            version=worker.version,
            clear_pending=write.clear_pending,
            leaked=write.leaked,
            deregistered=write.deregistered,
            message=single_line(write.message, _MAX_MESSAGE),
            unless_held=write.kind is ActionKind.INTENT,
        )
        return await self.internal.write_license_status(self._leader(), worker.id, body)

    async def detect_idle(self, worker: Worker, body: IdleDetectionRequest) -> IdleDetectionResult:
        """Send activity events. Returns what the control plane concluded."""
        return await self.internal.detect_idle(self._leader(), worker.id, body)

    async def drain(self, worker: Worker, reason: str) -> Worker:
        """Drain a worker."""
        return await self.internal.drain(self._leader(), worker.id, _reason_text(reason))

    async def change_host(self, worker: Worker, change: ChangeHost) -> Worker:
        """Begin or end the move of a worker to another host."""
        body = MaintenanceRequest(step=change.step.value, version=worker.version, reason=_reason_text(change.reason))
        return await self.internal.write_maintenance(self._leader(), worker.id, body)

    async def follow_schedule(self, worker: Worker, action: FollowSchedule) -> Worker:
        """Let a schedule stop or start the worker."""
        step: Literal["start", "stop"] = "start" if action.desired is DesiredStatus.RUNNING else "stop"
        body = ScheduleStepRequest(step=step, version=worker.version, reason=_reason_text(action.reason))
        return await self.internal.write_schedule_step(self._leader(), worker.id, body)

    async def audit(self, worker: Worker, label: str, reason: str) -> None:
        """Write a decision that changes no record to the audit log."""
        await self.internal.audit(self._leader(), label, worker.id, _reason_text(reason))


def decision_report(
    decision: Decision, now: datetime, worker: Worker, following: Sequence[Action] | None = None
) -> DecisionReport:
    """A decision in the form in which it is stored and shown. `following` are the actions of the next pass, if known.

    With a status write, the control plane replaces the version by that of the written record.
    """
    after = decision.after
    return DecisionReport(
        rule=decision.rule,
        reason=single_line(decision.reason, _MAX_MESSAGE),
        inputs=dict(decision.inputs),
        # An idle check is part of every pass and changes nothing.
        actions=tuple(single_line(str(a), _MAX_TEXT) for a in decision.actions if not isinstance(a, CheckIdle)),
        held_actions=planned_actions(decision.held),
        next_actions=None if following is None else planned_actions(following),
        decided_at=now,
        next_look_at=None if after is None else now + timedelta(seconds=after),
        generation=worker.generation,
        version=worker.version,
    )


def _reason_text(text: str) -> str:
    return single_line(text, _MAX_REASON) or "no reason given"


def merge_conditions(
    conditions: tuple[Condition, ...], updates: Iterable[ConditionUpdate], now: datetime
) -> tuple[Condition, ...] | None:
    """The conditions after the updates; None if none differs enough to be written.

    A new message alone is not written unless it is exact: it may count minutes, and a fleet at rest writes nothing.
    """
    after, differs = conditions, False
    for update in updates:
        present = find_condition(after, update.type)
        if update.status is None:
            if present is not None:
                after, differs = without_condition(after, update.type), True
            continue
        message = single_line(update.message, _MAX_MESSAGE)
        same = present is not None and (present.status, present.reason) == (update.status, update.reason)
        if same and present is not None and (not update.exact or present.message == message):
            continue
        after = with_condition(after, update.type, update.status, now=now, reason=update.reason, message=message)
        differs = True
    return after if differs else None


class DecisionReporter:
    """Decisions that wait to be reported. A newer decision about a worker replaces its older one."""

    def __init__(self, internal: InternalApi, leader: Callable[[], Leader]) -> None:
        self._internal = internal
        self._leader = leader
        self._waiting: dict[str, DecisionReport] = {}
        self._has_waiting = asyncio.Event()

    def report(
        self, worker: Worker, memory: WorkerMemory, decision: Decision, following: Sequence[Action] | None = None
    ) -> None:
        """Report a decision, unless the same one was reported before for the same state of the record."""
        key = _decision_key(decision, worker, following)
        if memory.reported_key != key:
            memory.reported_key = key
            self._waiting[worker.id] = decision_report(decision, clock.now(), worker, following)
            self._has_waiting.set()

    def recorded(
        self, worker: Worker, memory: WorkerMemory, decision: Decision, following: Sequence[Action] | None = None
    ) -> None:
        """A status write has carried the decision; `worker` is the record after it."""
        memory.reported_key = _decision_key(decision, worker, following)
        self._waiting.pop(worker.id, None)

    def forget(self) -> None:
        """Drop waiting decisions: another leader reports its own."""
        self._waiting.clear()

    async def run(self) -> None:
        """Send waiting decisions, until cancelled."""
        while True:
            await self._has_waiting.wait()
            await asyncio.sleep(REPORT_INTERVAL)
            self._has_waiting.clear()
            while self._waiting:
                batch = dict(list(self._waiting.items())[:MAX_BATCH])
                try:
                    await self._send(batch)
                except ClientError as error:
                    log.info("decisions cannot be reported now", waiting=len(self._waiting), error=str(error))
                    self._has_waiting.set()
                    await asyncio.sleep(REPORT_INTERVAL * 10)
                    break
                for worker_id, report in batch.items():
                    if self._waiting.get(worker_id) is report:
                        del self._waiting[worker_id]

    async def _send(self, batch: dict[str, DecisionReport]) -> None:
        items = tuple(WorkerDecision(worker_id=worker_id, decision=report) for worker_id, report in batch.items())
        await self._internal.write_decisions(self._leader(), DecisionBatch(items=items))


def _decision_key(decision: Decision, worker: Worker, following: Sequence[Action] | None) -> tuple[object, ...]:
    """What makes a decision differ from another: not its reason, which may count minutes."""
    actions = tuple(str(action) for action in decision.actions if not isinstance(action, CheckIdle))
    held = tuple(str(action) for action in decision.held)
    later = None if following is None else tuple(str(each) for each in following if not isinstance(each, CheckIdle))
    return (decision.rule, actions, held, later, worker.version, worker.generation)
