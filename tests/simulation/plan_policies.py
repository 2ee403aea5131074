"""Changes of desired statuses in a trial: policies change none that the plan does not name, and all that it does."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.core import clock
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.fleet.plan import PlannedScheduleChange
    from lcm.model.worker.record import Worker
    from tests.simulation.plan_fleet import Trial
    from tests.simulation.plan_trial import Snapshot, TrialResult

_SCHEDULE, _MAINTENANCE = "schedule:", "maintenance"
HORIZON = 100.0
"""Seconds after the plan in which actions are compared: three checks of each worker."""
_CHECKED = timedelta(seconds=35)
"""Within this time after a boundary each worker is checked."""
_WAITING = (["schedule.waits"], ["maintenance.waits"])
_FOLLOWING = (WorkerStatus.RUNNING, WorkerStatus.STOPPED, WorkerStatus.PENDING)


async def compare_policies(trial: Trial, seen: Snapshot, result: TrialResult) -> None:
    """Compare desired statuses then and now with what the plan says about policies."""
    result.contradictions.extend([each async for each in _contradictions(trial, seen, result)])


async def _contradictions(trial: Trial, seen: Snapshot, result: TrialResult) -> AsyncIterator[str]:
    for before in seen.workers.values():
        after = await trial.fleet.worker(before.id)
        policy = _policy_of(before, after)
        if policy:
            result.counts[f"policy acted: {policy}"] += 1
            if not _is_planned(seen, before, policy):
                yield f"{before.name}: {policy} made it {after.desired_status}, which the plan does not say"
    for change in seen.plan.schedule_changes:
        missed = await _missed(trial, seen, change, released=result.released)
        if missed:
            yield missed
        elif change.at <= clock.now():
            result.counts["schedule changes that were due"] += 1


def _policy_of(before: Worker, after: Worker) -> str:
    """Which policy changed the desired status since; empty if none did."""
    if before.desired_status is after.desired_status:
        return ""
    if after.desired_status is DesiredStatus.STOPPED:
        reason = after.pause_reason or "?"
        return "schedule stop" if reason.startswith(_SCHEDULE) else reason
    reason = before.pause_reason or "?"
    if reason.startswith(_SCHEDULE):
        return "schedule start"
    return "maintenance start" if reason == _MAINTENANCE else "start"


def _is_planned(seen: Snapshot, before: Worker, policy: str) -> bool:
    now = clock.now()
    if policy.startswith("schedule"):
        return any(each.worker_id == before.id and each.at <= now for each in seen.plan.schedule_changes)
    if policy.startswith(_MAINTENANCE):
        item = seen.items.get(before.id)
        unknown = before.maintenance is None  # EC2 announced it, or its checks failed, after the plan
        return unknown or (item is not None and any(each.type == "change_host" for each in item.actions))
    if policy == "start":  # by scale-up, or by a schedule after the end of a person's stop
        assert seen.plan.lablets is not None
        scheduled = any(each.worker_id == before.id and each.at <= now for each in seen.plan.schedule_changes)
        booked = any(before.id in each.workers for each in seen.plan.booking_steps)
        return scheduled or booked or any(each.worker_id == before.id for each in seen.plan.lablets.scale_ups)
    return any(each.worker_id == before.id and each.at <= now for each in seen.plan.pauses)


async def _missed(trial: Trial, seen: Snapshot, change: PlannedScheduleChange, *, released: bool) -> str:
    """What the plan said that a schedule does, and was not done."""
    before, after = seen.workers[change.worker_id], await trial.fleet.worker(change.worker_id)
    held = seen.plan.hold is not None and not released
    if change.at > clock.now() - _CHECKED or held or after.hold is not None or before.status not in _FOLLOWING:
        return ""
    if after.desired_status is change.desired_status or after.status not in _FOLLOWING or after.updated_at > change.at:
        return ""
    if any(change.at < each.at <= change.at + _CHECKED for each in seen.plan.schedule_boundaries):
        return ""  # a window opens or closes before each worker is checked
    passes = [each.rule for each in trial.passes if each.worker.id == after.id and each.began > seen.time]
    was_due = change.at <= clock.now() - timedelta(seconds=HORIZON)
    if passes[-1:] in _WAITING and (change.waits or not was_due):
        return ""
    return (
        f"{before.name}: a schedule was to make it {change.desired_status} at {change.at} ({change.reason}),"
        f" but it is {after.status}/{after.desired_status} at {clock.now()} after {passes}"
    )
