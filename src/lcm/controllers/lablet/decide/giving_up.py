"""A worker that is lost, or that cannot be used for too long: its lablets move on or fail, as each of them says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import Nature
from lcm.controllers.lablet.decide.decision import Release, end, wait
from lcm.controllers.lablet.decide.ending import ending_of
from lcm.controllers.lablet.decide.predicates import SOON, why_not_ready
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import Policy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


def give_up(
    lablet: Lablet,
    rule: str,
    why: str,
    now: datetime,
    nature: Nature = Nature.RECORD,
    *,
    left_behind: bool = False,
) -> Decision:
    """Its lab is gone, or out of reach for good: it ends if it was to end, else its own policy says what follows."""
    ends = ending_of(lablet, now)
    if ends is not None:
        status = ends[0]
    elif lablet.status is LabletStatus.STOPPING:
        status = LabletStatus.TERMINATED
    elif lablet.lost_worker_policy is LostWorkerPolicy.RESCHEDULE:
        status = LabletStatus.PENDING_SCHEDULING
    else:
        status = LabletStatus.FAILED
    return end(rule, why, Release(status, why, nature, left_behind))


def not_ready(lablet: Lablet, worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """A worker that is not ready is not dialled: it is waited for, but not for ever."""
    why = why_not_ready(worker)
    rule = lablet.status.value.lower()
    if lablet.status is LabletStatus.SCHEDULED and worker.desired_status is not DesiredStatus.RUNNING:
        # Nothing was made yet and nothing ever will be there: whatever the policy says, another worker serves as well.
        reason = f"worker {worker.name} takes no lablets any more: {why}"
        return end("scheduled.leaving", reason, Release(LabletStatus.PENDING_SCHEDULING, reason))
    waited = 0.0 if seen.unready_since is None else (now - seen.unready_since).total_seconds()
    left = policy.worker_timeout - waited
    if left <= 0:
        reason = f"worker {worker.name} has not been ready for {policy.worker_timeout:g} s: {why}"
        begun = lablet.status is not LabletStatus.SCHEDULED
        return give_up(lablet, f"{rule}.unready_too_long", reason, now, Nature.LOSS, left_behind=begun)
    message = f"waits for worker {worker.name}: {why}"
    return wait(f"{rule}.unready", f"{message}; at most {left:.0f} s more", after=min(left, SOON), message=message)
