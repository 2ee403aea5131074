"""What to do with a worker: a pure function of its record, what was seen, the policy and the time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.model.status import WorkerStatus
from lcm.worker_controller.decide import (
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
from lcm.worker_controller.decide.facts import inputs_of
from lcm.worker_controller.decide.held import under_hold
from lcm.worker_controller.decide.licence import given_back
from lcm.worker_controller.decision import WriteLicence, skip
from lcm.worker_controller.observation import Loss, Sight, Visibility

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.model.worker import Worker
    from lcm.worker_controller.decision import Decision
    from lcm.worker_controller.observation import Observation
    from lcm.worker_controller.policy import Policy

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
_NO_INSTANCE = Sight(Visibility.GONE)


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """What to do now, and why."""
    handler = HANDLERS.get(worker.status)
    if handler is None:
        return skip("terminated.skip", f"nothing is done with a worker that is {worker.status}")
    if worker.instance_id is None and worker.status is not WorkerStatus.PENDING:
        # There is nothing to be seen, and nothing that could be lost.
        seen = replace(seen, sight=_NO_INSTANCE, loss=Loss.ALLOWED)
    decided = handler(worker, seen, policy, now)
    given = given_back(worker, seen)
    if given is not None and not any(isinstance(action, WriteLicence) for action in decided.actions):
        decided = replace(decided, actions=(given, *decided.actions))
    decided = replace(decided, inputs={**inputs_of(worker, seen), **decided.inputs})
    hold = policy.hold_on(worker, now)
    return decided if hold is None else under_hold(decided, hold, now)
