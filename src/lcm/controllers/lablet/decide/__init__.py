"""What to do for a lablet: a pure function of its record, what was seen, the policy and the time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.controllers.lablet.decide import instantiating, running, scheduled, stopping
from lcm.controllers.lablet.decide.decision import skip, wait
from lcm.controllers.lablet.decide.ending import begin_end, ending_of, seconds_left
from lcm.controllers.lablet.decide.giving_up import give_up, not_ready
from lcm.controllers.lablet.decide.held import under_hold
from lcm.controllers.lablet.decide.predicates import SOON, lost, reachable
from lcm.model.lablet.status import ASSIGNED, LabletStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import Policy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

__all__ = ["decide"]

HANDLERS: dict[LabletStatus, Callable[[Lablet, Worker, Observation, Policy, datetime], Decision]] = {
    LabletStatus.SCHEDULED: scheduled.decide,
    LabletStatus.INSTANTIATING: instantiating.decide,
    LabletStatus.RUNNING: running.decide,
    LabletStatus.STOPPING: stopping.decide,
}


def decide(lablet: Lablet, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """What to do now, and why."""
    if lablet.status not in ASSIGNED:
        return skip("unassigned.skip", f"nothing is done for a lablet that is {lablet.status}")
    decided = _decide(lablet, seen, policy, now)
    left = seconds_left(lablet, now)
    if decided.after is not None and left is not None and 0 < left < decided.after:
        decided = replace(decided, after=left)  # its end is not to be slept through
    hold = policy.hold_on(seen.worker, now)
    return decided if hold is None else under_hold(decided, hold)


def _decide(lablet: Lablet, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """The order counts: a lost worker first, then the end of the lablet, then whether its worker can be used."""
    worker = seen.worker
    why = lost(lablet, worker)
    if why or worker is None:
        return give_up(lablet, f"{lablet.status.value.lower()}.lost", why, now)
    ends = ending_of(lablet, now)
    if ends is not None and lablet.status is not LabletStatus.STOPPING:
        return begin_end(lablet, *ends)
    if not policy.workers_verified:
        reason = "the worker controller has not verified its workers yet"
        return wait(f"{lablet.status.value.lower()}.unverified", reason, after=SOON)
    on_the_way_out = lablet.status is LabletStatus.STOPPING and reachable(worker)
    if not worker.ready and not on_the_way_out:
        return not_ready(lablet, worker, seen, policy, now)
    return HANDLERS[lablet.status](lablet, worker, seen, policy, now)
