"""Writes to the control plane in the name of the present leader, each fenced by its term."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.controllers.common.base import told
from lcm.controllers.worker import decision as decided
from lcm.core.text import one_line
from lcm.model.decision import DecisionReport
from lcm.model.worker.requests import LaunchWrite, LicenseStatusWrite, StatusWrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.client.base import Leader
    from lcm.client.resources.client_internal import Internal
    from lcm.controllers.worker.decision import Decision, StoreIntent, WriteLicence, WriteStatus
    from lcm.model.worker.conditions import Condition
    from lcm.model.worker.idle import DetectionResult
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import DetectIdle

_REASON, _MESSAGE, _LONG = 500, 1000, 300


class Writes:
    """What a controller writes. A refusal as stale is told as `StaleTerm`, so that whoever leads steps down."""

    def __init__(self, internal: Internal, leader: Callable[[], Leader]) -> None:
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
                fields[name] = one_line(str(fields[name]), _LONG if name == "terminated_reason" else 100)
        if conditions is not None:
            fields["conditions"] = conditions
        if decision is not None:
            fields["decision"] = decision
        body = StatusWrite(status=write.status, version=worker.version, reason=_reason(write.reason), **fields)
        return await told(self._internal.write_status(self._leader(), worker.id, body))

    async def intent(self, worker: Worker, intent: StoreIntent) -> Worker:
        """Keep what is about to be launched."""
        body = LaunchWrite(version=worker.version, attempt=intent.attempt, parameters=intent.parameters.to_json())
        return await told(self._internal.write_launch(self._leader(), worker.id, body))

    async def licence(self, worker: Worker, write: WriteLicence) -> Worker:
        """Write down where the licence stands."""
        body = LicenseStatusWrite(
            status=write.status,
            version=worker.version,
            clear_pending=write.clear_pending,
            leaked=write.leaked,
            message=one_line(write.message, _MESSAGE),
        )
        return await told(self._internal.write_license_status(self._leader(), worker.id, body))

    async def detect_idle(self, worker: Worker, body: DetectIdle) -> DetectionResult:
        """Send telemetry, and hear what followed from it."""
        return await told(self._internal.detect_idle(self._leader(), worker.id, body))

    async def drain(self, worker: Worker, reason: str) -> Worker:
        """Take a worker out of service."""
        return await told(self._internal.drain(self._leader(), worker.id, _reason(reason)))

    async def audit(self, worker: Worker, label: str, reason: str) -> None:
        """Keep a decision that changes no record."""
        await told(self._internal.audit(self._leader(), label, worker.id, _reason(reason)))


def report_of(decision: Decision, now: datetime) -> DecisionReport:
    """A decision as it is told to people."""
    after = decision.after
    return DecisionReport(
        rule=decision.rule,
        reason=one_line(decision.reason, _MESSAGE),
        inputs=dict(decision.inputs),
        # To look whether anybody uses it is a part of every look, and nothing that is done to the worker.
        actions=tuple(one_line(str(a), _LONG) for a in decision.actions if not isinstance(a, decided.DetectIdle)),
        decided_at=now,
        next_look_at=None if after is None else now + timedelta(seconds=after),
    )


def _reason(text: str) -> str:
    return one_line(text, _REASON) or "no reason was given"
