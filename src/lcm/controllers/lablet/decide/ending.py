"""How a lablet ends, fails, or is released from a worker that is lost or not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide.decision import ReleaseReservation, WriteStatus, act_and_continue, end, wait
from lcm.controllers.lablet.decide.predicates import NEWER_VERSION_RECHECK_SECONDS, POLL_SECONDS, not_ready_reason
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.lablet.urgency import STUCK_PREFIX
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.observation import Observation
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


def find_ending(lablet: Lablet, now: datetime) -> tuple[LabletStatus, str] | None:
    """The final status and its reason, if the lablet is to end."""
    if lablet.ending is not None:
        return lablet.ending, lablet.ending_reason or "termination was requested"
    if not lablet.wanted:
        return LabletStatus.TERMINATED, "it is no longer desired"
    over = lablet.expires_at
    if over is not None and over <= now:
        return LabletStatus.EXPIRED, f"it expired at {over:%Y-%m-%d %H:%M:%S} UTC"
    return None


def seconds_until_end(lablet: Lablet, now: datetime) -> float | None:
    """The seconds until it expires; None if it has no end."""
    over = lablet.expires_at
    return None if over is None else (over - now).total_seconds()


def begin_ending(lablet: Lablet, becomes: LabletStatus, reason: str) -> Decision:
    """A SCHEDULED lablet has no lab and ends at once; any other may have one, which is removed first."""
    if lablet.status is LabletStatus.SCHEDULED:
        return end("scheduled.end", reason, ReleaseReservation(becomes, reason))
    write = WriteStatus(LabletStatus.STOPPING, reason, ActionKind.INTENT, {"ending": becomes})
    return act_and_continue(f"{lablet.status.value.lower()}.end", reason, write)


def fail_lablet(rule: str, reason: str) -> Decision:
    """Fail a lablet that cannot be started: its lab is removed first."""
    write = WriteStatus(LabletStatus.STOPPING, reason, ActionKind.INTENT, {"ending": LabletStatus.FAILED})
    return act_and_continue(rule, reason, write, message=reason)


def release_lablet(
    lablet: Lablet,
    rule: str,
    why: str,
    now: datetime,
    kind: ActionKind = ActionKind.RECORD,
    *,
    left_behind: bool = False,
) -> Decision:
    """Release a lablet whose lab is gone or unreachable: it ends if it was to end, else its policy decides."""
    ends = find_ending(lablet, now)
    if ends is not None:
        status = ends[0]
    elif lablet.status is LabletStatus.STOPPING:
        status = LabletStatus.TERMINATED
    elif lablet.lost_worker_policy is LostWorkerPolicy.RESCHEDULE:
        status = LabletStatus.PENDING_SCHEDULING
    else:
        status = LabletStatus.FAILED
    return end(rule, why, ReleaseReservation(status, why, kind, left_behind))


def wait_for_worker(
    lablet: Lablet, worker: Worker, observed: Observation, policy: LabletPolicy, now: datetime
) -> Decision:
    """Wait for a worker that is not ready, up to a timeout. Its CML is not called."""
    why = not_ready_reason(worker)
    rule = lablet.status.value.lower()
    if lablet.status is LabletStatus.SCHEDULED and worker.desired_status is not DesiredStatus.RUNNING:
        # No lab was created and none will be: whatever the policy says, another worker serves as well.
        reason = f"worker {worker.name} no longer accepts lablets: {why}"
        return end("scheduled.leaving", reason, ReleaseReservation(LabletStatus.PENDING_SCHEDULING, reason))
    waited = 0.0 if observed.unready_since is None else (now - observed.unready_since).total_seconds()
    left = policy.worker_timeout - waited
    if left <= 0:
        reason = f"worker {worker.name} has not been ready for {policy.worker_timeout:g} s: {why}"
        begun = lablet.status is not LabletStatus.SCHEDULED
        return release_lablet(lablet, f"{rule}.unready_too_long", reason, now, ActionKind.LOSS, left_behind=begun)
    message = f"waiting for worker {worker.name}: {why}"
    return wait(
        f"{rule}.unready", f"{message}; timeout in {left:.0f} s", after=min(left, POLL_SECONDS), message=message
    )


def wait_for_newer_version(
    lablet: Lablet, worker: Worker, observed: Observation, policy: LabletPolicy, now: datetime
) -> Decision:
    """Wait while the record of the worker has words of a newer version. Changes of a worker do not wake its lablets."""
    words = ", ".join(worker.unknown_words)
    message = f"this version of LCM does not know {words} of worker {worker.name}: a newer one has to decide"
    waited = 0.0 if observed.unknown_since is None else (now - observed.unknown_since).total_seconds()
    prefix = STUCK_PREFIX if waited > policy.worker_timeout else ""
    return wait(
        f"{lablet.status.value.lower()}.newer_worker",
        message,
        after=NEWER_VERSION_RECHECK_SECONDS,
        message=prefix + message,
    )
