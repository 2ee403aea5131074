"""How a lablet comes to its end: because somebody wants it, because its time is over, or because it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide.decision import ReleaseReservation, WriteStatus, end, then, wait
from lcm.controllers.lablet.decide.predicates import POLL_SECONDS, not_ready_reason
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


def find_ending(lablet: Lablet, now: datetime) -> tuple[LabletStatus, str] | None:
    """What it is to become and why, if it is to end."""
    if lablet.ending is not None:
        return lablet.ending, lablet.ending_reason or "it is to end"
    if not lablet.wanted:
        return LabletStatus.TERMINATED, "it is not wanted any more"
    over = lablet.over_at
    if over is not None and over <= now:
        return LabletStatus.EXPIRED, f"its time was over at {over:%Y-%m-%d %H:%M:%S} UTC"
    return None


def seconds_until_end(lablet: Lablet, now: datetime) -> float | None:
    """Until its time is over; None: it has no end."""
    over = lablet.over_at
    return None if over is None else (over - now).total_seconds()


def begin_ending(lablet: Lablet, becomes: LabletStatus, reason: str) -> Decision:
    """Nothing was asked of CML for one that is SCHEDULED; any other may have a lab, which goes first."""
    if lablet.status is LabletStatus.SCHEDULED:
        return end("scheduled.end", reason, ReleaseReservation(becomes, reason))
    write = WriteStatus(LabletStatus.STOPPING, reason, ActionKind.INTENT, {"ending": becomes})
    return then(f"{lablet.status.value.lower()}.end", reason, write)


def fail_lablet(rule: str, reason: str) -> Decision:
    """It does not come up: what there is of it is removed, then it has failed."""
    write = WriteStatus(LabletStatus.STOPPING, reason, ActionKind.INTENT, {"ending": LabletStatus.FAILED})
    return then(rule, reason, write, message=reason)


def release_lablet(
    lablet: Lablet,
    rule: str,
    why: str,
    now: datetime,
    nature: ActionKind = ActionKind.RECORD,
    *,
    left_behind: bool = False,
) -> Decision:
    """Its lab is gone, or out of reach for good: it ends if it was to end, else its own policy says what follows."""
    ends = find_ending(lablet, now)
    if ends is not None:
        status = ends[0]
    elif lablet.status is LabletStatus.STOPPING:
        status = LabletStatus.TERMINATED
    elif lablet.lost_worker_policy is LostWorkerPolicy.RESCHEDULE:
        status = LabletStatus.PENDING_SCHEDULING
    else:
        status = LabletStatus.FAILED
    return end(rule, why, ReleaseReservation(status, why, nature, left_behind))


def wait_for_worker(lablet: Lablet, worker: Worker, seen: Observation, policy: LabletPolicy, now: datetime) -> Decision:
    """A worker that is not ready is not dialled: it is waited for, but not for ever."""
    why = not_ready_reason(worker)
    rule = lablet.status.value.lower()
    if lablet.status is LabletStatus.SCHEDULED and worker.desired_status is not DesiredStatus.RUNNING:
        # Nothing was made yet and nothing ever will be there: whatever the policy says, another worker serves as well.
        reason = f"worker {worker.name} takes no lablets any more: {why}"
        return end("scheduled.leaving", reason, ReleaseReservation(LabletStatus.PENDING_SCHEDULING, reason))
    waited = 0.0 if seen.unready_since is None else (now - seen.unready_since).total_seconds()
    left = policy.worker_timeout - waited
    if left <= 0:
        reason = f"worker {worker.name} has not been ready for {policy.worker_timeout:g} s: {why}"
        begun = lablet.status is not LabletStatus.SCHEDULED
        return release_lablet(lablet, f"{rule}.unready_too_long", reason, now, ActionKind.LOSS, left_behind=begun)
    message = f"waits for worker {worker.name}: {why}"
    return wait(
        f"{rule}.unready", f"{message}; at most {left:.0f} s more", after=min(left, POLL_SECONDS), message=message
    )
