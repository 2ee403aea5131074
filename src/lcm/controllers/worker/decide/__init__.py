"""Decides what to do with a worker: a pure function of its record, an observation, the policy and the time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.controllers.worker.decide import (
    draining,
    failed,
    pending,
    provisioning,
    running,
    starting,
    stopped,
    stopping,
    terminating,
    unknown,
)
from lcm.controllers.worker.decide.shared.conditions import decision_inputs, instance_visibility
from lcm.controllers.worker.decide.shared.hold import apply_hold
from lcm.controllers.worker.decide.shared.license import deregistration_result
from lcm.controllers.worker.decide.shared.license_release import note_hold
from lcm.controllers.worker.decide.shared.maintenance import note_health
from lcm.controllers.worker.decide.shared.schedule import with_schedule
from lcm.controllers.worker.decide.shared.waiting import bound_wait, note_blindness
from lcm.controllers.worker.decision import WriteLicenseStatus, skip
from lcm.controllers.worker.observe.observation import InstanceObservation, LossVerdict, Visibility
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

__all__ = ["decide"]

HANDLERS: dict[WorkerStatus, Callable[[Worker, Observation, Policy, datetime], Decision]] = {
    WorkerStatus.PENDING: pending.decide,
    WorkerStatus.PROVISIONING: provisioning.decide,
    WorkerStatus.STARTING: starting.decide,
    WorkerStatus.RUNNING: running.decide,
    WorkerStatus.DRAINING: draining.decide,
    WorkerStatus.STOPPING: stopping.decide,
    WorkerStatus.STOPPED: stopped.decide,
    WorkerStatus.TERMINATING: terminating.decide,
    WorkerStatus.FAILED: failed.decide,
    WorkerStatus.UNKNOWN: unknown.decide,
}
NEWER_RECORD = "newer_record.skip"
_NO_INSTANCE = InstanceObservation(Visibility.GONE)


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Decide what to do now, and why."""
    if worker.unknown_words:
        reason = f"this version of LCM does not know {', '.join(worker.unknown_words)}: a newer one has to decide"
        return skip(NEWER_RECORD, reason)
    handler = HANDLERS.get(worker.status)
    if handler is None:
        return skip("terminated.skip", f"nothing to do for a {worker.status} worker")
    if worker.instance_id is None and worker.status is not WorkerStatus.PENDING:
        # Without an instance there is nothing to observe and nothing to lose.
        observed = replace(observed, instance=_NO_INSTANCE, loss_verdict=LossVerdict.ALLOWED)
    decided = handler(worker, observed, policy, now)
    decided = with_schedule(worker, observed, policy, now, decided)
    license_write = deregistration_result(worker, observed)
    if license_write is not None and not any(isinstance(action, WriteLicenseStatus) for action in decided.actions):
        decided = replace(decided, actions=(license_write, *decided.actions))
    visibility = instance_visibility(worker, observed.instance)
    if visibility is not None and not any(each.type is visibility.type for each in decided.conditions):
        decided = decided.with_added(conditions=(visibility,))
    decided = note_health(worker, observed, decided)
    decided = bound_wait(worker, note_blindness(worker, observed, decided), policy, now)
    decided = replace(decided, inputs={**decision_inputs(worker, observed), **decided.inputs})
    hold = policy.hold_on(worker, now)
    return decided if hold is None else note_hold(worker, apply_hold(decided, hold, now))
