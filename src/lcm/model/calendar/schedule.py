"""Schedules: when workers are up, which workers, and what a schedule wants of one of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from lcm.model.base import CARRIED, CaseInsensitiveEnum, Record, ResourceName, SingleLineText, UtcDatetime
from lcm.model.calendar.precedence import Authority, Claim, OtherClaims, decide_desired
from lcm.model.calendar.windows import make_timetable
from lcm.model.calendar.zones import ZoneRules
from lcm.model.formatting import format_clock_time
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lcm.model.calendar.windows import Timetable
    from lcm.model.worker.record import Worker

PAUSE_REASON_PREFIX: Final = "schedule:"
MAX_SELECTED: Final = 100
_MAX_STEPS: Final = 200
_Name = Annotated[SingleLineText, Field(min_length=1, max_length=256)]


class OutsideAction(CaseInsensitiveEnum):
    """What is done with workers while no window is open."""

    STOP = "stop"
    NOTHING = "nothing"


class WorkerSelector(Record):
    """Which workers a schedule is for: all given conditions must match."""

    names: Annotated[tuple[_Name, ...], Field(max_length=MAX_SELECTED)] = ()
    templates: Annotated[tuple[_Name, ...], Field(max_length=MAX_SELECTED)] = ()
    teams: Annotated[tuple[_Name, ...], Field(max_length=MAX_SELECTED)] = Field(
        default=(), description="Workers that are dedicated to one of these teams. Give names; ids are stored."
    )
    tags: Annotated[dict[_Name, Annotated[SingleLineText, Field(max_length=256)]], Field(max_length=MAX_SELECTED)] = (
        Field(default_factory=dict)
    )

    @property
    def is_empty(self) -> bool:
        """Whether it has no condition."""
        return not (self.names or self.templates or self.teams or self.tags)

    def matches(self, worker: Worker) -> bool:
        """Whether the schedule is for this worker. An empty selector matches none."""
        return (
            not self.is_empty
            and (not self.names or worker.name in self.names)
            and (not self.templates or worker.template_name in self.templates)
            and (not self.teams or worker.team in self.teams)
            and all(worker.tags.get(name) == value for name, value in self.tags.items())
        )

    def matches_new(self, template_name: str) -> bool:
        """Whether the schedule is for every worker that scale-up launches from this template."""
        return template_name in self.templates and not (self.names or self.teams or self.tags)

    def describe(self, team_names: Mapping[str, str]) -> str:
        """The conditions in words. A team without a name is shown by its id."""
        parts = [f"name {' or '.join(self.names)}"] if self.names else []
        parts += [f"template {' or '.join(self.templates)}"] if self.templates else []
        parts += [f"team {' or '.join(team_names.get(each, each) for each in self.teams)}"] if self.teams else []
        parts += [f"tag {name}={value}" for name, value in sorted(self.tags.items())]
        return ", ".join(parts)

    def __str__(self) -> str:
        return self.describe({})


class Schedule(Record):
    """When workers are up. Times are stored as wall times with their zone."""

    id: str
    name: ResourceName
    zone: str
    windows: tuple[str, ...]
    exceptions: tuple[str, ...] = ()
    selector: WorkerSelector = WorkerSelector()
    outside: Annotated[OutsideAction, CARRIED] = OutsideAction.STOP
    enabled: bool = True
    zone_rules: ZoneRules | None = Field(
        default=None, description="The zone's offsets as they were known when the schedule was last evaluated."
    )
    version: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime

    @property
    def timetable(self) -> Timetable | None:
        """Its windows; None if this host does not know its zone, or a newer version wrote them."""
        try:
            return make_timetable(self.zone, self.windows, self.exceptions)
        except ValueError:
            return None

    @property
    def pause_reason(self) -> str:
        """What a stop by this schedule is recorded with."""
        return f"{PAUSE_REASON_PREFIX}{self.id}"

    def applies_to(self, worker: Worker) -> bool:
        """Whether it is in force for this worker."""
        return self.enabled and self.selector.matches(worker)


def schedule_claim(worker: Worker, schedules: Iterable[Schedule], now: datetime) -> Claim | None:
    """What the schedules of a worker want it to be now; None if they want nothing.

    An open window keeps the worker up. It starts the worker if its own schedule had stopped it, or if a person had
    stopped it for a time that is over and that the schedule has seen: a newer schedule starts nothing that was stopped
    before it existed. While no window is open, the worker is to be stopped.
    """
    own = [each for each in schedules if each.applies_to(worker)]
    readable = [(each, timetable) for each in own if (timetable := each.timetable) is not None]
    opened = [(each, timetable.state(now)) for each, timetable in readable if timetable.state(now).is_open]
    timetables = [timetable for _, timetable in readable]
    if opened:
        if not _is_kept_up(worker, [each for each, _ in opened], now):
            return None
        schedule, state = opened[0]
        until = next_change(timetables, now)
        end = "" if until is None else f" until {format_clock_time(until, now)}"
        reason = f"schedule {schedule.name} is open{end} ({state.rule}, {schedule.zone})"
        return Claim(Authority.SCHEDULE, DesiredStatus.RUNNING, reason, until)
    stopping = [(each, timetable) for each, timetable in readable if each.outside is OutsideAction.STOP]
    if not stopping or len(readable) < len(own):
        return None  # one that cannot be evaluated may be open
    return _closed_claim(stopping, next_change(timetables, now), now)


def _is_kept_up(worker: Worker, opened: Sequence[Schedule], now: datetime) -> bool:
    if worker.desired_status is DesiredStatus.RUNNING:
        return True
    if worker.paused_by_policy:
        return worker.pause_reason in {each.pause_reason for each in opened}
    if worker.override is None or worker.override.until is None or worker.override.active(now):
        return False
    return any(each.created_at < worker.override.until for each in opened)


def _closed_claim(stopping: Sequence[tuple[Schedule, Timetable]], until: datetime | None, now: datetime) -> Claim:
    """Recorded is the schedule that opens first: it is the one that will start the worker again."""
    far = datetime.max.replace(tzinfo=UTC)
    schedule, state = min(
        ((each, timetable.state(now)) for each, timetable in stopping),
        key=lambda found: (found[1].next_boundary or far, found[0].id),
    )
    opens = "" if state.next_boundary is None else f", and opens at {format_clock_time(state.next_boundary, now)}"
    reason = f"schedule {schedule.name} is closed ({state.rule}, {schedule.zone}){opens}"
    return Claim(Authority.SCHEDULE, DesiredStatus.STOPPED, reason, until, schedule.pause_reason)


def next_change(timetables: Sequence[Timetable], now: datetime) -> datetime | None:
    """When the first of these opens, or the last of those that are open closes; None if neither is known."""
    was_open = any(each.state(now).is_open for each in timetables)
    moment = now
    for _ in range(_MAX_STEPS):
        boundaries = [boundary for each in timetables if (boundary := each.state(moment).next_boundary) is not None]
        if not boundaries:
            return None
        moment = min(boundaries)
        if any(each.state(moment).is_open for each in timetables) is not was_open:
            return moment
    return None


def first_boundary(schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """When the windows of any of these open or close next."""
    timetables = [each.timetable for each in schedules if each.enabled]
    found = [each.state(now).next_boundary for each in timetables if each is not None]
    return min((each for each in found if each is not None), default=None)


def next_boundary(worker: Worker, schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """When the worker's windows next open or close: until then a person's start or stop counts."""
    found = [each.timetable for each in schedules if each.applies_to(worker)]
    return next_change([each for each in found if each is not None], now)


@dataclass(frozen=True, slots=True)
class ScheduledChange:
    """What the schedules of a worker will do next: stop it or start it, when, and why."""

    desired: DesiredStatus
    at: datetime
    reason: str


def next_scheduled_change(worker: Worker, schedules: Sequence[Schedule], now: datetime) -> ScheduledChange | None:
    """The next stop or start by a schedule if nothing else changes; None if none is known. Holds are left out."""
    worker = worker.model_copy(update={"hold": None})
    timetables = [timetable for each in schedules if each.applies_to(worker) and (timetable := each.timetable)]
    override, moment = worker.override, now
    for _ in range(_MAX_STEPS):
        claim = schedule_claim(worker, schedules, moment)
        winner = decide_desired(worker, moment, OtherClaims(schedule=claim))
        if winner is claim and claim.desired is not worker.desired_status:
            return ScheduledChange(claim.desired, moment, claim.reason)
        ends = [each.state(moment).next_boundary for each in timetables]
        if override is not None and override.active(moment):
            ends.append(override.until)
        if worker.is_booked(moment):
            ends.append(worker.booked_until)
        known = [each for each in ends if each is not None]
        if not known:
            return None
        moment = min(known)
    return None


def due_change(
    worker: Worker, schedules: Sequence[Schedule], now: datetime, others: OtherClaims | None = None
) -> Claim | None:
    """The claim of the schedules, if it wins and wants another desired status than the present one.

    Holds are left out: what a hold keeps from being done is still to be done.
    """
    claim = schedule_claim(worker, schedules, now) if schedules else None
    if claim is None or claim.desired is worker.desired_status:
        return None
    free = worker if worker.hold is None else worker.model_copy(update={"hold": None})
    winner = decide_desired(free, now, replace(others or OtherClaims(), schedule=claim))
    return claim if winner is claim else None


def closed_reason(
    worker: Worker, schedules: Sequence[Schedule], now: datetime, others: OtherClaims | None = None
) -> str | None:
    """Why the worker takes no new lablets: it is outside its windows, and nobody with more authority wants it up."""
    claim = schedule_claim(worker, schedules, now) if schedules else None
    if claim is None or claim.desired is not DesiredStatus.STOPPED:
        return None
    winner = decide_desired(worker, now, replace(others or OtherClaims(), schedule=claim))
    return claim.reason if winner is claim else None


def closed_template_reason(template_name: str, schedules: Iterable[Schedule], now: datetime) -> str | None:
    """Why a new worker of the template would take no lablets now."""
    own = [each for each in schedules if each.enabled and each.selector.matches_new(template_name)]
    readable = [(each, timetable) for each in own if (timetable := each.timetable) is not None]
    stopping = [(each, timetable) for each, timetable in readable if each.outside is OutsideAction.STOP]
    if not stopping or any(timetable.state(now).is_open for _, timetable in readable):
        return None
    return _closed_claim(stopping, None, now).reason
