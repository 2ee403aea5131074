"""Whether bookings fit together: at every instant within the limits of workers, licenses and teams. Pure.

A booking takes workers of one template in one region, from its warm-up to its end. What exists counts too: a worker
takes up its place whether it is needed or not, and one that cannot serve a booking takes up another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from lcm.model.base import CaseInsensitiveEnum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FREE_TIMES: Final = 3
FREE_TIMES_WITHIN: Final = timedelta(days=14)
_INSTANT: Final = timedelta(microseconds=1)
_GRID: Final = timedelta(minutes=15)


OccurrencePlanner = Callable[[datetime], "Iterable[tuple[datetime, datetime]]"]
"""From a start of the first occurrence: when all of them would begin and end; nothing if it cannot be chosen."""


class Resource(CaseInsensitiveEnum):
    """What can be short."""

    WORKERS = "workers"
    LICENSES = "licenses"
    TEAM_SEATS = "team_seats"
    PORTS = "ports"
    TEMPLATES = "templates"


@dataclass(frozen=True, slots=True)
class BookedCapacity:
    """What one occurrence of a booking takes. `start` includes the warm-up of its workers."""

    start: datetime
    end: datetime
    region: str
    template: str
    workers: int
    licensed: bool = False
    team: str = ""
    seats: int = 0

    def moved(self, by: timedelta) -> BookedCapacity:
        """The same at another time."""
        return BookedCapacity(
            self.start + by,
            self.end + by,
            self.region,
            self.template,
            self.workers,
            self.licensed,
            self.team,
            self.seats,
        )


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker that is not TERMINATED, stopped ones included. `free_from`: when it can serve a booking; None: never.

    `team` is the team that it is dedicated to: it serves bookings of this team alone. `registers`: it is stopped, and
    takes a license when it is started.
    """

    region: str
    template: str
    free_from: datetime | None
    registered: bool = False
    team: str = ""
    registers: bool = False


@dataclass(frozen=True, slots=True)
class BookingLimits:
    """What must not be exceeded. A license pool of None, or a team that is not listed, has no limit."""

    max_workers_per_region: int
    license_pool: int | None = None
    team_seats: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is short, from when on, how many would be needed then and how many there may be."""

    resource: Resource
    at: datetime
    needed: int
    allowed: int

    def __str__(self) -> str:
        return f"{self.resource.value.replace('_', ' ')}: {self.needed} would be needed, {self.allowed} are allowed"


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to a request: confirmed if nothing is short. `free_times` are starts, warm-up included, that fit."""

    shortages: tuple[Shortage, ...] = ()
    free_times: tuple[datetime, ...] = ()

    @property
    def confirmed(self) -> bool:
        """Whether it fits."""
        return not self.shortages


def admit(
    occurrences: Sequence[BookedCapacity],
    booked: Sequence[BookedCapacity],
    live: Sequence[LiveWorker],
    limits: BookingLimits,
    *,
    preferred: Iterable[datetime] = (),
    plan_from: OccurrencePlanner | None = None,
) -> Admission:
    """Whether all occurrences of a booking fit beside what is booked; they are of one shape and do not overlap.

    A refusal has the first shortage of each resource, and up to three other starts of the first occurrence at which all
    of them would fit: of the `preferred` ones, such as the same time on other days, and the earliest free ones.
    `plan_from` says when the occurrences would be from another start on; without it, as far apart as they are now.
    """
    assert occurrences, "a booking has an occurrence"
    shape = occurrences[0]
    table = _UsageTable(shape, booked, live, limits)
    found: dict[Resource, Shortage] = {}
    for each in occurrences:
        for shortage in table.shortages(each.start, each.end):
            found.setdefault(shortage.resource, shortage)
    if not found:
        return Admission()
    return Admission(
        tuple(sorted(found.values(), key=lambda each: (each.at, each.resource))),
        tuple(islice(_free_times(table, occurrences, preferred, plan_from), FREE_TIMES)),
    )


@dataclass(frozen=True, slots=True)
class AddedShortage:
    """What is short, or shorter than before, and until when."""

    shortage: Shortage
    until: datetime


def added_shortages(
    booked: Sequence[BookedCapacity],
    before: Sequence[LiveWorker],
    after: Sequence[LiveWorker],
    limits: BookingLimits,
    region: str,
    now: datetime,
) -> Iterator[AddedShortage]:
    """When from now on more would be needed than there may be, and more than before.

    `before` and `after` are the live workers before and after somebody else than a booking uses one more of them.
    """
    pool = limits.license_pool is not None  # workers of all regions take licenses of one pool
    ends = [each.end for each in booked if (each.region == region or (pool and each.licensed)) and each.end > now]
    if not ends:
        return
    nothing = BookedCapacity(now, max(ends), region, "", 0, licensed=True)
    was, will_be = (_UsageTable(nothing, booked, live, limits) for live in (before, after))
    moments = sorted({now, *was.changes(now, max(ends)), *will_be.changes(now, max(ends))})
    for moment, until in pairwise(moments):
        already = {each.resource: each.needed for each in was.shortages(moment, moment + _INSTANT)}
        for shortage in will_be.shortages(moment, moment + _INSTANT):
            if shortage.needed > already.get(shortage.resource, 0):
                yield AddedShortage(shortage, until)
                break


def _free_times(
    table: _UsageTable,
    occurrences: Sequence[BookedCapacity],
    preferred: Iterable[datetime],
    plan_from: OccurrencePlanner | None,
) -> Iterator[datetime]:
    """Later starts of the first occurrence at which all fit. One that was not free becomes so only when it changes."""
    first, last = occurrences[0].start, occurrences[0].start + FREE_TIMES_WITHIN
    length = occurrences[0].end - first
    offsets = [each.start - first for each in occurrences]
    changes = {
        _next_quarter(moment - offset) for offset in offsets for moment in table.changes(first + offset, last + offset)
    }
    for start in sorted(each for each in {*changes, *preferred} if first < each <= last):
        if not table.is_free(start, start + length):
            continue
        times = [(start + offset, start + offset + length) for offset in offsets]
        if plan_from is not None:
            times = list(plan_from(start))
        if times and all(table.is_free(begin, end) for begin, end in times):
            yield start


def _next_quarter(moment: datetime) -> datetime:
    """The same time if it is a quarter of an hour, else the next one."""
    late = timedelta(minutes=moment.minute % 15, seconds=moment.second, microseconds=moment.microsecond)
    return moment + (_GRID - late if late else timedelta())


_Kind = tuple[str, str, str]
"""Region, template and team: of a booking, or of a worker that is dedicated to the team."""


@dataclass(slots=True)
class _Usage:
    """What is taken during one segment of time, with the booking that is asked for."""

    need: dict[_Kind, int]  # workers of the region
    usable: dict[_Kind, int]
    licensed_need: dict[_Kind, int]  # workers of all regions that need a license
    registered: dict[_Kind, int]  # usable ones that have one
    team_seats: int
    unlicensed_need: dict[_Kind, int] = field(default_factory=dict)  # workers of all regions that need none
    plain: dict[_Kind, int] = field(default_factory=dict)  # usable ones that neither have a license nor take one
    registering: dict[_Kind, int] = field(default_factory=dict)  # usable ones that take one when they are started


class _UsageTable:
    """What is taken in every segment between two changes, and what would be short with one booking more."""

    def __init__(
        self, shape: BookedCapacity, booked: Sequence[BookedCapacity], live: Sequence[LiveWorker], limits: BookingLimits
    ) -> None:
        self._shape, self._limits = shape, limits
        # A worker takes up its place, and its license, whether it can serve a booking or not.
        self._present = sum(worker.region == shape.region for worker in live)
        self._registered = sum(worker.registered for worker in live)
        changes = {each.start for each in booked} | {each.end for each in booked}
        changes |= {worker.free_from for worker in live if worker.free_from is not None}
        self._times: list[datetime] = sorted(changes)  # segment n begins at time n - 1; segment 0 is before all
        self._short: list[tuple[Shortage, ...]] = []
        starts, ends = sorted(booked, key=lambda each: each.start), sorted(booked, key=lambda each: each.end)
        arrivals = sorted(((at, number) for number, each in enumerate(live) if (at := each.free_from) is not None))
        usage = _initial_usage(shape)
        began = ended = freed = 0
        for moment in (None, *self._times):
            while moment is not None and began < len(starts) and starts[began].start <= moment:
                _count(usage, shape, starts[began], 1)
                began += 1
            while moment is not None and ended < len(ends) and ends[ended].end <= moment:
                _count(usage, shape, ends[ended], -1)
                ended += 1
            while moment is not None and freed < len(arrivals) and arrivals[freed][0] <= moment:
                _free(usage, shape, live[arrivals[freed][1]])
                freed += 1
            self._short.append(tuple(self._shortages_in(usage, moment or shape.start)))
        self._bad = [number for number, shortages in enumerate(self._short) if shortages]

    def shortages(self, start: datetime, end: datetime) -> Iterator[Shortage]:
        """What would be short between these times."""
        for number in self._segments(start, end):
            for each in self._short[number]:
                yield Shortage(each.resource, max(each.at, start), each.needed, each.allowed)

    def is_free(self, start: datetime, end: datetime) -> bool:
        """Whether nothing would be short between these times."""
        segments = self._segments(start, end)
        position = bisect_left(self._bad, segments.start)
        return position == len(self._bad) or self._bad[position] >= segments.stop

    def changes(self, start: datetime, end: datetime) -> Sequence[datetime]:
        """When what is taken changes between these times."""
        return self._times[bisect_left(self._times, start) : bisect_right(self._times, end)]

    def _segments(self, start: datetime, end: datetime) -> range:
        return range(bisect_right(self._times, start), bisect_left(self._times, end) + 1)

    def _shortages_in(self, usage: _Usage, at: datetime) -> Iterator[Shortage]:
        shape, limits = self._shape, self._limits
        workers = self._present + _missing(usage.need, usage.usable)
        if workers > limits.max_workers_per_region:
            yield Shortage(Resource.WORKERS, at, workers, limits.max_workers_per_region)
        if limits.license_pool is not None:
            taken = _taken_without_need(usage)
            licenses = self._registered + _missing(usage.licensed_need, usage.registered) + sum(taken.values())
            takes = shape.licensed or taken.get((shape.region, shape.template), 0) > 0
            if takes and licenses > limits.license_pool:
                yield Shortage(Resource.LICENSES, at, licenses, limits.license_pool)
        allowed = limits.team_seats.get(shape.team)
        if allowed is not None and usage.team_seats > allowed:
            yield Shortage(Resource.TEAM_SEATS, at, usage.team_seats, allowed)


def _missing(need: Mapping[_Kind, int], usable: Mapping[_Kind, int]) -> int:
    """How many workers are needed beside the usable ones. Those of a team serve it first, the others anybody."""
    short: dict[tuple[str, str], int] = {}
    for (region, template, team), wanted in need.items():
        dedicated = usable.get((region, template, team), 0) if team else 0
        if wanted > dedicated:
            short[region, template] = short.get((region, template), 0) + wanted - dedicated
    return sum(max(0, count - usable.get((*kind, ""), 0)) for kind, count in short.items())


def _taken_without_need(usage: _Usage) -> dict[tuple[str, str], int]:
    """The licenses that workers take when classes which need none start them: they take any other worker first.

    What has a license is left to classes that need one, as is what takes one for them.
    """
    taken: dict[tuple[str, str], int] = {}
    if not usage.registering:
        return taken
    unserved: dict[tuple[str, str], tuple[int, int]] = {}
    for region, template, team in {*usage.licensed_need, *usage.unlicensed_need}:
        kind = (region, template)
        licensed = usage.licensed_need.get((*kind, team), 0)
        others = usage.unlicensed_need.get((*kind, team), 0)
        if team:
            licensed, others, started = _serve(usage, (*kind, team), licensed, others)
            taken[kind] = taken.get(kind, 0) + started
        before = unserved.get(kind, (0, 0))
        unserved[kind] = (before[0] + licensed, before[1] + others)
    for kind, (licensed, others) in unserved.items():
        taken[kind] = taken.get(kind, 0) + _serve(usage, (*kind, ""), licensed, others)[2]
    return taken


def _serve(usage: _Usage, kind: _Kind, licensed: int, others: int) -> tuple[int, int, int]:
    """What remains of both needs after the workers of one kind, and how many take a license that nobody needs."""
    registered, registering = usage.registered.get(kind, 0), usage.registering.get(kind, 0)
    plain = usage.plain.get(kind, 0)
    kept = min(licensed, registered + registering)
    left_registering = registering - max(0, kept - registered)
    without = min(others, plain + max(0, registered - kept))
    started = min(others - without, left_registering)
    left_plain = max(0, plain - without)
    return max(0, licensed - kept - left_plain), others - without - started, started


def _initial_usage(shape: BookedCapacity) -> _Usage:
    """Before all times: nothing is taken but by the booking, and no worker can serve yet."""
    own = (shape.region, shape.template, shape.team)
    licensed, others = ({own: shape.workers}, {}) if shape.licensed else ({}, {own: shape.workers})
    return _Usage({own: shape.workers}, {}, licensed, {}, shape.seats, others)


def _count(usage: _Usage, shape: BookedCapacity, booking: BookedCapacity, sign: int) -> None:
    kind = (booking.region, booking.template, booking.team)
    if booking.region == shape.region:
        usage.need[kind] = usage.need.get(kind, 0) + sign * booking.workers
    needs = usage.licensed_need if booking.licensed else usage.unlicensed_need
    needs[kind] = needs.get(kind, 0) + sign * booking.workers
    if booking.team == shape.team:
        usage.team_seats += sign * booking.seats


def _free(usage: _Usage, shape: BookedCapacity, worker: LiveWorker) -> None:
    kind = (worker.region, worker.template, worker.team)
    if worker.region == shape.region:
        usage.usable[kind] = usage.usable.get(kind, 0) + 1
    found = usage.registered if worker.registered else usage.registering if worker.registers else usage.plain
    found[kind] = found.get(kind, 0) + 1
