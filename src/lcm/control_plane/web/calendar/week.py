"""Openings of a week as rows of days in a zone, for a table that shows them as times and as bars."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.calendar.zones import load_zone, start_instant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from lcm.model.calendar.schedule_preview import ScheduledOpening

DAYS: Final = 7
BAR_WIDTH: Final = 1440
"""A bar is as wide as a day has minutes, also a day on which clocks change."""


@dataclass(frozen=True, slots=True)
class DaySpan:
    """A part of a day during which windows are open: as times, and as a part of the bar."""

    start: datetime
    end: datetime
    text: str
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class DayRow:
    """One day and its spans. A day on which clocks change is longer or shorter."""

    name: str
    spans: tuple[DaySpan, ...]
    note: str = ""


def week_rows(openings: Sequence[ScheduledOpening], zone_name: str, now: datetime) -> list[DayRow]:
    """Seven days from today on. What is over today is left out."""
    try:
        zone = load_zone(zone_name)
    except ValueError:
        return []
    today = now.astimezone(zone).date()
    rows = []
    for number in range(DAYS):
        day = today + number * timedelta(days=1)
        begin, end = (start_instant(datetime.combine(each, time()), zone) for each in (day, day + timedelta(days=1)))
        found = [each for each in openings if each.end > begin and each.start < end]
        spans = tuple(_span(max(each.start, begin), min(each.end, end), begin, end, zone) for each in found)
        hours = (end - begin).total_seconds() / 3600
        note = "" if hours == 24 else f"clocks change: {hours:g} hours"
        rows.append(DayRow(f"{day:%a %d %b}", spans, note))
    return rows


def _span(start: datetime, end: datetime, begin: datetime, finish: datetime, zone: ZoneInfo) -> DaySpan:
    length = finish - begin
    x = round(BAR_WIDTH * ((start - begin) / length))
    width = max(2, round(BAR_WIDTH * ((end - start) / length)))
    last = "24:00" if end == finish else f"{end.astimezone(zone):%H:%M}"
    return DaySpan(start, end, f"{start.astimezone(zone):%H:%M} to {last}", x, width)
