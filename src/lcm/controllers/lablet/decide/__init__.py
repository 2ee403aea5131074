"""Decides what to do for a lablet: a pure function of its record, the observation, the policy and the time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.controllers.lablet.decide import instantiating, running, scheduled, stopping
from lcm.controllers.lablet.decide.decision import apply_hold, skip, wait
from lcm.controllers.lablet.decide.ending import (
    begin_ending,
    find_ending,
    release_lablet,
    seconds_until_end,
    wait_for_newer_version,
    wait_for_worker,
)
from lcm.controllers.lablet.decide.predicates import POLL_SECONDS, is_reachable, worker_lost_reason
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, LabletStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

__all__ = ["decide"]

HANDLERS: dict[LabletStatus, Callable[[Lablet, Worker, Observation, LabletPolicy, datetime], Decision]] = {
    LabletStatus.SCHEDULED: scheduled.decide,
    LabletStatus.INSTANTIATING: instantiating.decide,
    LabletStatus.RUNNING: running.decide,
    LabletStatus.STOPPING: stopping.decide,
}


def decide(lablet: Lablet, observed: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """Decide what to do now, and why."""
    if lablet.status not in ASSIGNED_LABLET_STATUSES:
        return skip("unassigned.skip", f"no action for a lablet that is {lablet.status}")
    decided = _decide_without_hold(lablet, observed, policy, now)
    left = seconds_until_end(lablet, now)
    if decided.after is not None and left is not None and 0 < left < decided.after:
        decided = replace(decided, after=left)  # do not sleep past its end
    hold = policy.hold_on(observed.worker, now)
    return decided if hold is None else apply_hold(decided, hold)


def _decide_without_hold(lablet: Lablet, observed: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """The order matters: first words of a newer version, then a lost worker, the end of the lablet, a usable worker."""
    worker = observed.worker
    if worker is not None and worker.unknown_words:
        return wait_for_newer_version(lablet, worker, observed, policy, now)
    why = worker_lost_reason(lablet, worker)
    if why or worker is None:
        return release_lablet(lablet, f"{lablet.status.value.lower()}.lost", why, now)
    ends = find_ending(lablet, now)
    if ends is not None and lablet.status is not LabletStatus.STOPPING:
        return begin_ending(lablet, *ends)
    if not policy.workers_verified:
        reason = "the worker controller has not verified its workers yet"
        return wait(f"{lablet.status.value.lower()}.unverified", reason, after=POLL_SECONDS)
    removing = lablet.status is LabletStatus.STOPPING and is_reachable(worker)
    if not worker.ready and not removing:
        return wait_for_worker(lablet, worker, observed, policy, now)
    return HANDLERS[lablet.status](lablet, worker, observed, policy, now)
