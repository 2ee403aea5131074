"""Classes of a week as days in the zone of the viewer, and the workers that they take beside the limit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.booking.record import BookingStatus
from lcm.model.calendar.zones import load_zone, start_instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from zoneinfo import ZoneInfo

    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.calendar.admission import BookedCapacity

DAYS: Final = 7
_ONE_DAY: Final = timedelta(days=1)
_FIRST, _LAST = date(1970, 1, 5), date(2998, 12, 1)


@dataclass(frozen=True, slots=True)
class ShownWeek:
    """Seven days from Monday on, in a zone. A zone that does not exist is shown as UTC, and named in `unknown_zone`."""

    zone: ZoneInfo
    monday: date
    unknown_zone: str = ""

    @property
    def previous(self) -> date:
        """The Monday before."""
        return max(_FIRST, self.monday - DAYS * _ONE_DAY)

    @property
    def following(self) -> date:
        """The Monday after."""
        return min(_LAST, self.monday + DAYS * _ONE_DAY)

    @property
    def title(self) -> str:
        """From the first to the last day."""
        last = self.monday + (DAYS - 1) * _ONE_DAY
        return f"{self.monday.day} {self.monday:%B} to {last.day} {last:%B %Y}"

    @property
    def days(self) -> list[date]:
        """Its days."""
        return [self.monday + number * _ONE_DAY for number in range(DAYS)]

    def bounds(self, day: date) -> tuple[datetime, datetime]:
        """When a day begins and ends there."""
        begin, end = (start_instant(datetime.combine(each, time()), self.zone) for each in (day, day + _ONE_DAY))
        return begin, end

    @property
    def span(self) -> tuple[datetime, datetime]:
        """When the week begins and ends."""
        return self.bounds(self.days[0])[0], self.bounds(self.days[-1])[1]


@dataclass(frozen=True, slots=True)
class ShownClass:
    """A class on one day: its booking, and its times as clocks of the viewer show them that day."""

    booking: Booking
    occurrence: BookingOccurrence
    times: str


@dataclass(frozen=True, slots=True)
class ShownDay:
    """One day and its classes, by their start."""

    name: str
    date: date
    is_today: bool
    classes: tuple[ShownClass, ...]


@dataclass(frozen=True, slots=True)
class DayUsage:
    """The most that bookings take at one instant of a day, and from when on."""

    amount: int
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What is booked on each day, beside its limit."""

    name: str
    limit: int
    days: tuple[DayUsage, ...]


def choose_week(zone_name: str, day: str, now: datetime) -> ShownWeek:
    """The week of a day such as 2026-11-16 in a zone; this week if there is no such day."""
    unknown = ""
    try:
        zone = load_zone(zone_name or "UTC")
    except ValueError:
        zone, unknown = load_zone("UTC"), zone_name
    try:
        chosen = date.fromisoformat(day)
    except ValueError:
        chosen = now.astimezone(zone).date()
    chosen = min(max(chosen, _FIRST), _LAST)
    return ShownWeek(zone, chosen - chosen.weekday() * _ONE_DAY, unknown)


def week_days(bookings: Iterable[Booking], week: ShownWeek, now: datetime) -> list[ShownDay]:
    """The days with their classes. Cancelled ones are left out; one that lasts past midnight is on both days."""
    shown = [
        (booking, each)
        for booking in bookings
        for each in booking.occurrences
        if each.status is not BookingStatus.CANCELLED
    ]
    shown.sort(key=lambda one: (one[1].starts_at, one[0].name))
    today = now.astimezone(week.zone).date()
    days = []
    for day in week.days:
        begin, end = week.bounds(day)
        classes = tuple(
            ShownClass(booking, each, _times(each, begin, end, week.zone))
            for booking, each in shown
            if each.starts_at < end and each.ends_at > begin
        )
        days.append(ShownDay(f"{day:%A} {day.day} {day:%B}", day, day == today, classes))
    return days


def _times(occurrence: BookingOccurrence, begin: datetime, end: datetime, zone: ZoneInfo) -> str:
    first, last = (each.astimezone(zone) for each in (max(occurrence.starts_at, begin), min(occurrence.ends_at, end)))
    # Where clocks change in between, a time alone may be either of two.
    shown = "%H:%M" if first.utcoffset() == last.utcoffset() else "%H:%M %Z"
    until = "24:00" if occurrence.ends_at >= end else f"{last:{shown}}"
    return f"{first:{shown}} to {until}"


def worker_usage(
    booked: Sequence[BookedCapacity],
    regions: Sequence[str],
    max_workers: int,
    license_pool: int | None,
    week: ShownWeek,
) -> list[UsageRow]:
    """The workers that classes take in each region on each day, warm-ups included, and the licenses of all."""
    names = [*regions, *sorted({each.region for each in booked} - set(regions))]
    rows = [
        UsageRow(name, max_workers, _by_day([each for each in booked if each.region == name], week)) for name in names
    ]
    if license_pool is not None:
        licensed = [each for each in booked if each.licensed]
        rows.append(UsageRow("Licenses, all regions", license_pool, _by_day(licensed, week)))
    return rows


def _by_day(booked: Sequence[BookedCapacity], week: ShownWeek) -> tuple[DayUsage, ...]:
    return tuple(_peak(booked, *week.bounds(day)) for day in week.days)


def _peak(booked: Sequence[BookedCapacity], begin: datetime, end: datetime) -> DayUsage:
    """The sum is greatest where something begins, or at the beginning of the day."""
    found = [each for each in booked if each.start < end and each.end > begin]
    moments = sorted({max(begin, each.start) for each in found})
    most = DayUsage(0)
    for moment in moments:
        total = sum(each.workers for each in found if each.start <= moment < each.end)
        if total > most.amount:
            most = DayUsage(total, moment.astimezone(UTC))
    return most
