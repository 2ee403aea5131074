"""Writes to the control plane in the name of the present leader, each fenced by its term."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.controllers.common.base import as_stale_term
from lcm.controllers.worker import decision as decided
from lcm.core.text import single_line
from lcm.model.decision import DecisionReport
from lcm.model.worker.conditions import find_condition, with_condition, without_condition
from lcm.model.worker.requests import LaunchIntentRequest, LicenseStatusUpdate, WorkerStatusUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.worker.decision import (
        ConditionUpdate,
        Decision,
        StoreLaunchIntent,
        WriteLicenseStatus,
        WriteStatus,
    )
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.idle import IdleDetectionResult
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import IdleDetectionRequest


_MAX_REASON, _MAX_MESSAGE, _MAX_TEXT = 500, 1000, 300


class ControlPlaneWriter:
    """What a controller writes. A refusal as stale is told as `StaleTermError`, so that whoever leads steps down."""

    def __init__(self, internal: InternalApi, leader: Callable[[], Leader]) -> None:
        self._internal = internal
        self._leader = leader

    async def status(
        self,
        worker: Worker,
        write: WriteStatus,
        *,
        conditions: tuple[Condition, ...] | None = None,
        decision: DecisionReport | None = None,
    ) -> Worker:
        """Write a status; the answer is the worker after it."""
        fields = dict(write.fields)
        for name in ("terminated_by", "terminated_reason"):
            if fields.get(name) is not None:
                fields[name] = single_line(str(fields[name]), _MAX_TEXT if name == "terminated_reason" else 100)
        if conditions is not None:
            fields["conditions"] = conditions
        if decision is not None:
            fields["decision"] = decision
        body = WorkerStatusUpdate(
            status=write.status, version=worker.version, reason=_reason_text(write.reason), **fields
        )
        return await as_stale_term(self._internal.write_status(self._leader(), worker.id, body))

    async def intent(self, worker: Worker, intent: StoreLaunchIntent) -> Worker:
        """Keep what is about to be launched."""
        body = LaunchIntentRequest(
            version=worker.version, attempt=intent.attempt, parameters=intent.parameters.to_json()
        )
        return await as_stale_term(self._internal.write_launch(self._leader(), worker.id, body))

    async def licence(self, worker: Worker, write: WriteLicenseStatus) -> Worker:
        """Write down where the licence stands."""
        body = LicenseStatusUpdate(
            status=write.status,
            version=worker.version,
            clear_pending=write.clear_pending,
            leaked=write.leaked,
            message=single_line(write.message, _MAX_MESSAGE),
        )
        return await as_stale_term(self._internal.write_license_status(self._leader(), worker.id, body))

    async def detect_idle(self, worker: Worker, body: IdleDetectionRequest) -> IdleDetectionResult:
        """Send telemetry, and hear what followed from it."""
        return await as_stale_term(self._internal.detect_idle(self._leader(), worker.id, body))

    async def drain(self, worker: Worker, reason: str) -> Worker:
        """Take a worker out of service."""
        return await as_stale_term(self._internal.drain(self._leader(), worker.id, _reason_text(reason)))

    async def audit(self, worker: Worker, label: str, reason: str) -> None:
        """Keep a decision that changes no record."""
        await as_stale_term(self._internal.audit(self._leader(), label, worker.id, _reason_text(reason)))


def decision_report(decision: Decision, now: datetime) -> DecisionReport:
    """A decision as it is told to people."""
    after = decision.after
    return DecisionReport(
        rule=decision.rule,
        reason=single_line(decision.reason, _MAX_MESSAGE),
        inputs=dict(decision.inputs),
        # To look whether anybody uses it is a part of every look, and nothing that is done to the worker.
        actions=tuple(single_line(str(a), _MAX_TEXT) for a in decision.actions if not isinstance(a, decided.CheckIdle)),
        decided_at=now,
        next_look_at=None if after is None else now + timedelta(seconds=after),
    )


def _reason_text(text: str) -> str:
    return single_line(text, _MAX_REASON) or "no reason was given"


_MAX_CONDITION_MESSAGE = 1000


def merge_conditions(
    present: tuple[Condition, ...], wanted: Iterable[ConditionUpdate], now: datetime
) -> tuple[Condition, ...] | None:
    """The conditions after what is wanted; None: nothing that matters differs, so nothing needs to be written.

    A message alone does not matter: it may count minutes, and a fleet at rest writes nothing.
    """
    after, differs = present, False
    for want in wanted:
        known = find_condition(after, want.type)
        if want.status is None:
            if known is not None:
                after, differs = without_condition(after, want.type), True
            continue
        if known is not None and (known.status, known.reason) == (want.status, want.reason):
            continue
        message = single_line(want.message, _MAX_CONDITION_MESSAGE)
        after = with_condition(after, want.type, want.status, now=now, reason=want.reason, message=message)
        differs = True
    return after if differs else None
