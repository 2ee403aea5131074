"""Wall times: which instant a clock in a time zone shows a time, where clocks are changed too. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, Field, NaiveDatetime

from lcm.model.base import CARRIED, CaseInsensitiveEnum, Record, SingleLineText, UtcDatetime
from lcm.model.formatting import format_instant

EXAMPLE_ZONE: Final = "Europe/Brussels"
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)
_STEP: Final = timedelta(hours=12)  # no zone changes its clocks twice within it
RULES_AHEAD: Final = timedelta(days=400)
"""For how long ahead the rules of a zone are remembered."""

# Names that a zone database has beside its zones: `right/` counts leap seconds, the others depend on the host.
_NOT_ZONES: Final = ("right/", "posix/", "posixrules", "localtime", "Factory")


class TimeOccurrence(CaseInsensitiveEnum):
    """Which of two instants is meant where clocks are put back and show the same time twice."""

    FIRST = "first"
    SECOND = "second"


class WallTimeError(ValueError):
    """A wall time that is no instant, or two; the message says which times can be used instead."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Wall times that a zone skips: from `begins` until `ends`, where clocks are put forward at an instant."""

    begins: datetime
    ends: datetime
    instant: datetime


def load_zone(name: str) -> ZoneInfo:
    """The zone of this name; `ValueError` if there is none."""
    problem = f"must be a time zone such as {EXAMPLE_ZONE}"
    if name.startswith(_NOT_ZONES):
        raise ValueError(problem)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        meant = _zones_by_lower_name().get(name.lower())
        hint = "" if meant is None else f"; did you mean {meant}?"
        raise ValueError(f"{problem}{hint}") from None


@lru_cache(maxsize=1)
def _zones_by_lower_name() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones() if not name.startswith(_NOT_ZONES)}


def _check_zone(name: str) -> str:
    return load_zone(name).key


ZoneName = Annotated[SingleLineText, Field(min_length=1, max_length=64), AfterValidator(_check_zone)]
"""The name of a time zone of the IANA database. Records have `str`: a zone that was known once can be read."""


def find_instants(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """When clocks in the zone show this time: once; twice where they are put back; never where they skip it."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return (first,)
    return (first, second) if first < second else ()


def find_gap(wall: datetime, zone: ZoneInfo) -> Gap | None:
    """The gap in which this wall time lies; None if clocks show it."""
    before, after = (_offset(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if before >= after:
        return None
    # The instant at which clocks are put forward is between what both offsets make of the skipped time.
    early, late = (wall - after).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC)
    instant = _change_between(early, late, zone)
    shown = instant.replace(tzinfo=None)
    return Gap(shown + before, shown + after, instant)


def start_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """When a window that starts at this time opens: a skipped time is the gap's end, of two it is the first."""
    return _repeated(wall, zone, 0)


def end_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """When a window that ends at this time closes: a skipped time is the gap's end, of two it is the second."""
    return _repeated(wall, zone, -1)


def _repeated(wall: datetime, zone: ZoneInfo, which: int) -> datetime:
    found = find_instants(wall, zone)
    if found:
        return found[which]
    gap = find_gap(wall, zone)
    assert gap is not None, "a time that is never shown lies in a gap"
    return gap.instant


class OffsetChange(Record):
    """From when on a zone has an offset from UTC."""

    at: UtcDatetime
    offset_seconds: int


class ZoneRules(Record):
    """The offsets of a zone for a span of time, as they were known once. So a later change of its rules is noticed."""

    zone: str
    until: UtcDatetime
    offsets: tuple[OffsetChange, ...] = Field(description="The offset at the beginning, and each change after it.")

    def offset_at(self, moment: datetime) -> int:
        """The offset at this time, in seconds."""
        earlier = [each for each in self.offsets if each.at <= moment]
        return (earlier[-1] if earlier else self.offsets[0]).offset_seconds


def read_zone_rules(name: str, now: datetime) -> ZoneRules:
    """The offsets of a zone from now on, as they are known now."""
    zone, until = load_zone(name), now + RULES_AHEAD
    found = [OffsetChange(at=now, offset_seconds=_offset_seconds(now, zone))]
    moment = now
    while moment < until:
        later = min(until, moment + _STEP)
        if _offset_seconds(later, zone) != found[-1].offset_seconds:
            at = _change_between(moment, later, zone)
            found.append(OffsetChange(at=at, offset_seconds=_offset_seconds(at, zone)))
        moment = later
    return ZoneRules(zone=name, until=until, offsets=tuple(found))


def describe_changed_rules(before: ZoneRules, after: ZoneRules) -> str | None:
    """How the rules of a zone differ where both are known; None if they do not."""
    first, last = after.offsets[0].at, before.until
    moments = sorted({each.at for each in (*before.offsets, *after.offsets) if first <= each.at < last} | {first})
    for moment in moments:
        was, now = before.offset_at(moment), after.offset_at(moment)
        if was != now:
            since = f"from {moment:%Y-%m-%d %H:%M} UTC on"
            return f"{since} {after.zone} is UTC{_format_offset(now)}, and was expected to be UTC{_format_offset(was)}"
    return None


def _change_between(early: datetime, late: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the offset at the earlier time ends."""
    offset = _offset_seconds(early, zone)
    while late - early > _SECOND:
        middle = early + timedelta(seconds=(late - early) // _SECOND // 2)
        early, late = (middle, late) if _offset_seconds(middle, zone) == offset else (early, middle)
    return late


def _offset_seconds(moment: datetime, zone: ZoneInfo) -> int:
    return int(_offset(moment.astimezone(zone)).total_seconds())


def _format_offset(seconds: int) -> str:
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"


class WallTime(Record):
    """A date and a time of day in a zone. It is stored as such: if the zone's rules change, its instant moves."""

    at: NaiveDatetime = Field(description="The time that a clock in the zone shows, without an offset.")
    zone: str
    occurrence: Annotated[TimeOccurrence, CARRIED] | None = Field(
        default=None, description="Which one is meant if clocks show the time twice: first or second."
    )

    def instant(self) -> datetime:
        """The instant; `WallTimeError` if the zone skips the time, or has it twice and `occurrence` is not given."""
        zone, wall = load_zone(self.zone), self.at
        found = find_instants(wall, zone)
        if not found:
            raise WallTimeError(_describe_gap(wall, zone))
        if len(found) == 1:
            return found[0]
        if self.occurrence is TimeOccurrence.FIRST:
            return found[0]
        if self.occurrence is TimeOccurrence.SECOND:
            return found[1]
        times = " and ".join(format_instant(each) for each in found)
        text = f"{_format(wall)} occurs twice in {zone.key}, at {times}, because clocks are put back"
        raise WallTimeError(f"{text}; set occurrence (lcm: --which) to first or second")


def possible_times(wall: datetime, zone_name: str) -> list[WallTime]:
    """What can be meant by a time that is no instant or two: both of two, or the neighbours of one that is skipped."""
    zone = load_zone(zone_name)
    found = find_instants(wall, zone)
    if len(found) == 2:
        return [WallTime(at=wall, zone=zone_name, occurrence=each) for each in TimeOccurrence]
    gap = None if found else find_gap(wall, zone)
    return [] if gap is None else [WallTime(at=each, zone=zone_name) for each in (gap.begins - _MINUTE, gap.ends)]


def _describe_gap(wall: datetime, zone: ZoneInfo) -> str:
    gap = find_gap(wall, zone)
    assert gap is not None, "a time that is never shown lies in a gap"
    jump = f"clocks go from {_format(gap.begins)} to {_format(gap.ends)}"
    before = gap.begins - _MINUTE
    return f"{_format(wall)} does not exist in {zone.key}: {jump}; use {_format(before)} or {_format(gap.ends)}"


def _format(wall: datetime) -> str:
    return f"{wall:%Y-%m-%d %H:%M}"


def _offset(moment: datetime) -> timedelta:
    offset = moment.utcoffset()
    assert offset is not None, "a time in a zone has an offset"
    return offset
