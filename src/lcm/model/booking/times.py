"""When the classes of a booking begin and end. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.model.booking.record import BookingOccurrence
from lcm.model.calendar.admission import FREE_TIMES_WITHIN
from lcm.model.calendar.zones import TimeOccurrence, WallTime, WallTimeError, find_instants, load_zone, start_instant

if TYPE_CHECKING:
    from datetime import datetime


def plan_occurrences(
    start: WallTime, warm_up: timedelta, duration: timedelta, repeats: int
) -> tuple[BookingOccurrence, ...]:
    """The classes of a weekly booking; `WallTimeError` if the first one's zone skips its time, or has it twice.

    Where clocks are changed, those after the first follow the rule of repeats.
    """
    first, zone = _occurrence(1, start, start.instant(), warm_up, duration), load_zone(start.zone)
    later = []
    for number in range(1, repeats):
        wall = start.at + timedelta(weeks=number)
        at = WallTime(at=wall, zone=start.zone)
        later.append(_occurrence(number + 1, at, start_instant(wall, zone), warm_up, duration))
    return (first, *later)


def _occurrence(
    number: int, start: WallTime, instant: datetime, warm_up: timedelta, duration: timedelta
) -> BookingOccurrence:
    return BookingOccurrence(
        number=number, start=start, warm_up_at=instant - warm_up, starts_at=instant, ends_at=instant + duration
    )


def at_wall_time(occurrence: BookingOccurrence) -> BookingOccurrence:
    """The class at its wall time as the rules of its zone are now; the same if they still are. It lasts as long.

    A zone that this host does not know changes nothing. A time that is skipped or doubled now follows the rule of
    repeats, as nobody can be asked.
    """
    start = occurrence.start
    try:
        zone = load_zone(start.zone)
    except ValueError:
        return occurrence
    try:
        instant = start.instant()
    except WallTimeError:
        instant = start_instant(start.at, zone)
    by = instant - occurrence.starts_at
    if not by:
        return occurrence
    times = {name: getattr(occurrence, name) + by for name in ("warm_up_at", "starts_at", "ends_at")}
    return occurrence.model_copy(update=times)


def preferred_starts(first: BookingOccurrence, warm_up: timedelta) -> list[datetime]:
    """The same time of day on the next days, warm-up included."""
    zone = load_zone(first.start.zone)
    found = []
    for day in range(1, FREE_TIMES_WITHIN.days + 1):
        instants = find_instants(first.start.at + timedelta(days=day), zone)
        found += [instants[0] - warm_up] if instants else []
    return found


def to_wall_time(moment: datetime, zone_name: str) -> WallTime:
    """What clocks in the zone show then; where they show it twice, which of the two it is."""
    zone = load_zone(zone_name)
    wall = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    found = find_instants(wall, zone)
    if len(found) < 2:
        return WallTime(at=wall, zone=zone_name)
    which = TimeOccurrence.FIRST if moment == found[0] else TimeOccurrence.SECOND
    return WallTime(at=wall, zone=zone_name, occurrence=which)
