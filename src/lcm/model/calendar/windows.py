"""Weekly windows with exceptions by date: whether they are open at an instant, and when that changes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from lcm.model.base import SingleLineText
from lcm.model.calendar.zones import end_instant, load_zone, start_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_WINDOWS, MAX_EXCEPTIONS = 50, 400
MAX_DAYS_AHEAD: Final = 800
"""How far ahead a boundary is searched for. Windows repeat every week, so only exceptions can put it off so long."""

_DAY: Final = timedelta(days=1)
_LOOK_BACK: Final = 2  # days: a window lasts a day, or a little longer where clocks are put back
_LOOK_AHEAD: Final = 22  # days after the last exception: a clock change may leave out one of two windows a week
_WINDOW = re.compile(r"^([^0-9]+) +([0-9].*)$")
_TIMES = re.compile(r"^(\d\d):(\d\d)-(\d\d):(\d\d)$")
_DATES = re.compile(r"^(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?$")
_MAX_QUOTED: Final = 30


@dataclass(frozen=True, slots=True, order=True)
class TimeRange:
    """Two times of day. An end that is not after the start is on the next day."""

    start: time
    end: time

    def __str__(self) -> str:
        end = "24:00" if self.end == time() else f"{self.end:%H:%M}"
        return f"{self.start:%H:%M}-{end}"


@dataclass(frozen=True, slots=True)
class WeeklyWindow:
    """Days of the week, Monday is 0, and the times that are open on each of them."""

    days: tuple[int, ...]
    times: tuple[TimeRange, ...]

    def __str__(self) -> str:
        return f"{_format_days(self.days)} {_format_times(self.times)}"


@dataclass(frozen=True, slots=True)
class DateException:
    """Dates whose windows differ from those of the week; without times they are closed."""

    first: date
    last: date
    times: tuple[TimeRange, ...]

    def __str__(self) -> str:
        dates = f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"
        return f"{dates} {_format_times(self.times) if self.times else 'closed'}"


def parse_window(text: str) -> WeeklyWindow:
    """Read a window such as `mon-fri 08:00-18:00`; `ValueError` says what is wrong."""
    found = _WINDOW.match(text.strip().lower())
    if found is None:
        raise ValueError("must be days and times such as mon-fri 08:00-18:00")
    return WeeklyWindow(_parse_days("".join(found[1].split())), _parse_times(found[2]))


def parse_exception(text: str) -> DateException:
    """Read an exception such as `2026-12-25 closed`, `2026-12-24..2027-01-02 closed` or `2026-12-31 08:00-12:00`."""
    dates, _, times = text.strip().lower().partition(" ")
    found = _DATES.match(dates)
    if found is None or not times.strip():
        raise ValueError("must be a date with times or closed, such as 2026-12-25 closed or 2026-12-31 08:00-12:00")
    first = _parse_date(found[1])
    last = first if found[2] is None else _parse_date(found[2])
    if last < first:
        raise ValueError(f"{last} is before {first}; give the earlier date first")
    return DateException(first, last, () if times.strip() == "closed" else _parse_times(times))


def _parse_days(text: str) -> tuple[int, ...]:
    if text == "daily":
        return tuple(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start, end = _parse_day(first), _parse_day(last if dash else first)
        days |= {day % 7 for day in range(start, end + 1 if end >= start else end + 8)}
    return tuple(sorted(days))


def _parse_day(text: str) -> int:
    if text not in DAYS:
        raise ValueError(f"{_quoted(text)} is not a day; use {', '.join(DAYS)} or daily")
    return DAYS.index(text)


def _parse_times(text: str) -> tuple[TimeRange, ...]:
    return tuple(sorted({_parse_range("".join(part.split())) for part in text.split(",")}))


def _parse_range(text: str) -> TimeRange:
    found = _TIMES.match(text)
    if found is None:
        raise ValueError(f"{_quoted(text)} is not a range of times; use one such as 08:00-18:00")
    start_hour, start_minute, end_hour, end_minute = (int(part) for part in found.groups())
    if (end_hour, end_minute) == (24, 0):
        end_hour = 0  # midnight is the beginning of the next day
    if max(start_hour, end_hour) > 23 or max(start_minute, end_minute) > 59:
        raise ValueError(
            f"{_quoted(text)} has a time that does not exist; times are 00:00 to 23:59, and 24:00 as an end"
        )
    return TimeRange(time(start_hour, start_minute), time(end_hour, end_minute))


def _parse_date(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is not a date") from None
    if not 1970 <= found.year < 3000:
        raise ValueError(f"{text}: must be a date from the year 1970 to 2999")
    return found


def _quoted(text: str) -> str:
    return repr(text[:_MAX_QUOTED])


def _format_times(times: Sequence[TimeRange]) -> str:
    return ", ".join(map(str, times))


def _format_days(days: Sequence[int]) -> str:
    """The shortest text: `daily`, `mon-fri`, `mon,wed-thu`."""
    if len(days) == 7:
        return "daily"
    parts: list[str] = []
    run: list[int] = []
    for day in (*days, -1):
        if run and day == run[-1] + 1:
            run.append(day)
            continue
        if run:
            parts.append(DAYS[run[0]] if len(run) == 1 else f"{DAYS[run[0]]}-{DAYS[run[-1]]}")
        run = [day]
    return ",".join(parts)


WindowText = Annotated[SingleLineText, Field(max_length=200), AfterValidator(lambda text: str(parse_window(text)))]
"""A weekly window as text, in its shortest form."""

ExceptionText = Annotated[
    SingleLineText, Field(max_length=200), AfterValidator(lambda text: str(parse_exception(text)))
]
"""An exception as text, in its shortest form."""


@dataclass(frozen=True, slots=True)
class TimetableState:
    """Whether windows are open, by which rule, and when that changes; no boundary means not within two years."""

    is_open: bool
    rule: str
    next_boundary: datetime | None


@dataclass(frozen=True, slots=True)
class Opening:
    """One time during which windows are open, and the window or exception that says so."""

    start: datetime
    end: datetime
    rule: str


@dataclass(slots=True)
class Timetable:
    """Weekly windows in a zone. An exception replaces the windows that begin on its dates."""

    zone: ZoneInfo
    windows: tuple[WeeklyWindow, ...]
    exceptions: tuple[DateException, ...] = ()
    _last: tuple[datetime, date, TimetableState] | None = field(default=None, compare=False)

    def state(self, now: datetime) -> TimetableState:
        """Whether it is open now, and until when that lasts."""
        today = now.astimezone(self.zone).date()
        if self._last is not None:  # asked for many workers at the same time: the state lasts until the boundary
            asked, day, state = self._last
            if day == today and asked <= now and (state.next_boundary is None or now < state.next_boundary):
                return state
        state = self._find_state(now, today)
        self._last = (now, today, state)
        return state

    def _find_state(self, now: datetime, today: date) -> TimetableState:
        horizon = self._horizon(today)
        for opening in self._openings(today, horizon):
            if opening.end <= now:
                continue
            if opening.start > now:
                return TimetableState(False, self._closed_rule(today), opening.start)
            # One that reaches beyond the horizon has no end that is known.
            is_known = opening.end.astimezone(self.zone).date() <= horizon
            return TimetableState(True, opening.rule, opening.end if is_known else None)
        return TimetableState(False, self._closed_rule(today), None)

    def openings(self, start: datetime, end: datetime) -> list[Opening]:
        """The times between two instants that are open, joined where they touch."""
        first, last = (moment.astimezone(self.zone).date() for moment in (start, end))
        found = (each for each in self._openings(first, last) if each.end > start and each.start < end)
        return [Opening(max(each.start, start), min(each.end, end), each.rule) for each in found]

    def _openings(self, first: date, last: date) -> Iterator[Opening]:
        """The times that are open, in order and joined where they touch; those that began before may be among them."""
        current: Opening | None = None
        day = first - _LOOK_BACK * _DAY
        while day <= last:
            for opening in self._openings_on(day):
                if current is None or opening.start > current.end:
                    if current is not None:
                        yield current
                    current = opening
                elif opening.end > current.end:
                    current = Opening(current.start, opening.end, current.rule)
            day += _DAY
        if current is not None:
            yield current

    def _horizon(self, today: date) -> date:
        last = max((each.last for each in self.exceptions), default=today)
        return min(max(today, last) + _LOOK_AHEAD * _DAY, today + MAX_DAYS_AHEAD * _DAY)

    def _openings_on(self, day: date) -> list[Opening]:
        """The openings that begin on a date. One that clocks skip is left out."""
        exception = self._exception_on(day)
        if exception is not None:
            ranges = [(each, str(exception)) for each in exception.times]
        else:
            weekday = day.weekday()
            ranges = [(each, str(window)) for window in self.windows if weekday in window.days for each in window.times]
        found = []
        for each, rule in sorted(ranges):
            last_day = day if each.end > each.start else day + _DAY
            start = start_instant(datetime.combine(day, each.start), self.zone)
            end = end_instant(datetime.combine(last_day, each.end), self.zone)
            if start < end:
                found.append(Opening(start, end, rule))
        return sorted(found, key=lambda opening: (opening.start, opening.end))

    def _exception_on(self, day: date) -> DateException | None:
        """The exception for a date: of several the last one, so that a day within a range can differ from it."""
        return next((each for each in reversed(self.exceptions) if each.first <= day <= each.last), None)

    def _closed_rule(self, today: date) -> str:
        exception = self._exception_on(today)
        return str(exception) if exception is not None else "; ".join(map(str, self.windows))


@lru_cache(maxsize=512)
def make_timetable(zone: str, windows: tuple[str, ...], exceptions: tuple[str, ...] = ()) -> Timetable:
    """The timetable of these texts. It is kept: parsing them for every worker would take time."""
    return Timetable(load_zone(zone), tuple(map(parse_window, windows)), tuple(map(parse_exception, exceptions)))
