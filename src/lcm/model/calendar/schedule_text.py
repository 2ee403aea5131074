"""What schedules mean for one worker, in sentences for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.model.calendar.precedence import OtherClaims, decide_desired
from lcm.model.calendar.schedule import PAUSE_REASON_PREFIX, next_boundary, next_scheduled_change, schedule_claim
from lcm.model.calendar.schedule_preview import schedule_status
from lcm.model.formatting import format_clock_time, humanize_until
from lcm.model.worker.maintenance import lablet_block
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from lcm.model.calendar.schedule import Schedule
    from lcm.model.worker.record import Worker


def schedule_sentences(worker: Worker, schedules: Sequence[Schedule], now: datetime) -> Iterator[str]:
    """Which schedule is in force, by which rule, and until when."""
    own = [each for each in schedules if each.applies_to(worker)]
    for status in (schedule_status(each, now) for each in own):
        if status.problem:
            yield f"Schedule {status.schedule.name} cannot be evaluated: {status.problem}; it stops nothing."
    claim = schedule_claim(worker, own, now)
    if claim is not None:
        yield f"Its {claim.reason}."
        free = worker.model_copy(update={"hold": None})
        winner = decide_desired(free, now, OtherClaims(schedule=claim))
        if winner is not claim and claim.desired is not worker.desired_status:
            yield f"That does not apply at present: {winner.reason}."
        return
    boundary = next_boundary(worker, own, now)
    if own and boundary is not None:
        names = ", ".join(each.name for each in own)
        at = format_clock_time(boundary, now)
        yield f"Schedule {names} does not change it now; its windows open or close at {at}."


def scheduled_step(worker: Worker, schedules: Sequence[Schedule], now: datetime) -> str | None:
    """What its schedules will do next with a worker that is as it should be; None if that is not known."""
    change = next_scheduled_change(worker, schedules, now) if schedules else None
    if change is None:
        return None
    starts = change.desired is DesiredStatus.RUNNING
    when = "now" if change.at <= now else f"at {format_clock_time(change.at, now)}, {humanize_until(change.at, now)}"
    if starts:
        return f"It will be started by its schedule {when}."
    block = lablet_block(worker)
    waits = f"; at present, {block}" if block else ""
    at_once = change.at <= now
    then = "as soon as it is not in use" if at_once else f"{when}, or as soon after that as it is not in use"
    return f"It will be stopped by its schedule {then}{waits}."


def stopping_schedule(worker: Worker, schedules: Sequence[Schedule]) -> str | None:
    """The schedule that stopped the worker, as words; None if none did."""
    reason = worker.pause_reason or ""
    if not worker.paused_by_policy or not reason.startswith(PAUSE_REASON_PREFIX):
        return None
    name = next((each.name for each in schedules if each.pause_reason == reason), None)
    return "a deleted schedule" if name is None else f"schedule {name}"
