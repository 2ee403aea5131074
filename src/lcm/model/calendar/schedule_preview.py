"""What a schedule is now, and what it would do: computed for pages, command line and dialogs. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from lcm.model.base import CARRIED, LenientModel, UtcDatetime
from lcm.model.calendar.schedule import OutsideAction, Schedule, next_scheduled_change
from lcm.model.formatting import count_of, format_clock_time
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.worker.record import Worker

PREVIEWED_FOR: Final = timedelta(days=7)
MAX_PREVIEWED: Final = 100
MAX_OPENINGS: Final = 200


class ScheduleStatus(LenientModel):
    """A schedule, whether its windows are open now, and when that changes."""

    schedule: Schedule
    is_open: bool = False
    rule: str = Field(default="", description="The window or exception that says so.")
    next_boundary: UtcDatetime | None = Field(
        default=None, description="When its windows open or close next; null if that is not within two years."
    )
    problem: str = Field(default="", description="Why it cannot be evaluated; nothing is done then.")
    team_names: dict[str, str] = Field(
        default_factory=dict, description="The names of the teams in its selector, by id; none for one that is gone."
    )

    @property
    def workers_text(self) -> str:
        """Which workers it selects, in words."""
        return self.schedule.selector.describe(self.team_names)

    @property
    def state(self) -> str:
        """One word for lists."""
        if not self.schedule.enabled:
            return "disabled"
        if self.problem:
            return "unknown"
        return "open" if self.is_open else "closed"


class ScheduledOpening(LenientModel):
    """One time during which windows are open."""

    start: UtcDatetime
    end: UtcDatetime
    rule: str


class ScheduledWorker(LenientModel):
    """A worker that a schedule selects, and what all its schedules will do with it next."""

    worker_id: str
    name: str
    status: Annotated[WorkerStatus, CARRIED]
    desired_status: Annotated[DesiredStatus, CARRIED]
    change_to: Annotated[DesiredStatus, CARRIED] | None = Field(
        default=None, description="What it will be next; null if nothing is known to change."
    )
    change_at: UtcDatetime | None = Field(default=None, description="When; a time that is over means at once.")
    reason: str = ""


class SchedulePreview(LenientModel):
    """What a schedule selects, and what it would do. Nothing is written."""

    status: ScheduleStatus
    previewed_at: UtcDatetime
    openings: tuple[ScheduledOpening, ...] = Field(default=(), description="When it is open within seven days.")
    workers: Annotated[tuple[ScheduledWorker, ...], Field(max_length=MAX_PREVIEWED)] = ()
    workers_total: int = 0
    stops_now: int = Field(default=0, description="How many workers would be stopped as soon as they are not in use.")
    starts_now: int = 0
    effect: str = Field(default="", description="What would happen, as sentences for people.")


def schedule_status(schedule: Schedule, now: datetime) -> ScheduleStatus:
    """What a schedule is now."""
    timetable = schedule.timetable
    if timetable is None:
        problem = f"this host does not know the time zone {schedule.zone}, or cannot read the windows"
        return ScheduleStatus(schedule=schedule, problem=problem)
    state = timetable.state(now)
    return ScheduleStatus(schedule=schedule, is_open=state.is_open, rule=state.rule, next_boundary=state.next_boundary)


def make_preview(
    schedule: Schedule,
    selected: Sequence[Worker],
    in_force: Sequence[Schedule],
    now: datetime,
    *,
    removed: bool = False,
) -> SchedulePreview:
    """What a schedule does to the workers that it selects, beside all others that are in force."""
    timetable = schedule.timetable
    openings = [] if timetable is None else timetable.openings(now, now + PREVIEWED_FOR)[:MAX_OPENINGS]
    workers = [_scheduled_worker(worker, in_force, now) for worker in selected]
    stops, starts = (
        sum(each.change_to is desired and each.change_at is not None and each.change_at <= now for each in workers)
        for desired in (DesiredStatus.STOPPED, DesiredStatus.RUNNING)
    )
    preview = SchedulePreview(
        status=schedule_status(schedule, now),
        previewed_at=now,
        openings=tuple(ScheduledOpening(start=each.start, end=each.end, rule=each.rule) for each in openings),
        workers=tuple(workers[:MAX_PREVIEWED]),
        workers_total=len(workers),
        stops_now=stops,
        starts_now=starts,
    )
    return preview.model_copy(update={"effect": _removal(selected, schedule) if removed else _effect(preview)})


def _scheduled_worker(worker: Worker, in_force: Sequence[Schedule], now: datetime) -> ScheduledWorker:
    change = next_scheduled_change(worker, in_force, now)
    found = ScheduledWorker(
        worker_id=worker.id, name=worker.name, status=worker.status, desired_status=worker.desired_status
    )
    if change is None:
        return found
    return found.model_copy(update={"change_to": change.desired, "change_at": change.at, "reason": change.reason})


def _effect(preview: SchedulePreview) -> str:
    status, now = preview.status, preview.previewed_at
    if not status.schedule.enabled:
        return f"It is disabled and does nothing. It selects {count_of(preview.workers_total, 'worker')}."
    if status.problem:
        return f"It does nothing: {status.problem}."
    if not preview.workers_total:
        return "It selects no worker at present."
    until = "" if status.next_boundary is None else f" until {format_clock_time(status.next_boundary, now)}"
    sentences = [f"It is {'open' if status.is_open else 'closed'}{until} for {_workers(preview.workers_total)}."]
    if preview.stops_now:
        unused = "it is" if preview.stops_now == 1 else "they are"
        sentences.append(f"{_will_be(preview.stops_now)} stopped as soon as {unused} not in use.")
    if preview.starts_now:
        sentences.append(f"{_will_be(preview.starts_now)} started.")
    if not status.is_open and status.schedule.outside is OutsideAction.NOTHING:
        sentences.append("It does nothing outside its windows.")
    return " ".join(sentences)


def _removal(selected: Sequence[Worker], schedule: Schedule) -> str:
    stopped = sum(
        worker.desired_status is DesiredStatus.STOPPED and worker.pause_reason == schedule.pause_reason
        for worker in selected
    )
    if not selected:
        return "It selects no worker at present."
    if not stopped:
        unchanged = "it stays as it is" if len(selected) == 1 else "they stay as they are"
        return f"It selects {_workers(len(selected))}; {unchanged}."
    return f"{_workers(stopped)} that it stopped will stay stopped; start {_them(stopped)} if needed."


def _workers(count: int) -> str:
    return count_of(count, "worker")


def _will_be(count: int) -> str:
    return f"{_workers(count)} will be"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
