"""The part of the plan that bookings have: when classes warm up, begin and end next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import BOOKINGS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.model.booking.progress import boundaries
from lcm.model.booking.record import OPEN_STATUSES, Booking
from lcm.model.fleet.plan import PlannedBookingBoundary

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.store.port import Store

_OPEN = Where(any_of={"status": [status.value for status in OPEN_STATUSES]})


async def plan_booking_boundaries(store: Store, now: datetime) -> list[PlannedBookingBoundary]:
    """Those of the next class of each booking, the earliest first."""
    found: list[PlannedBookingBoundary] = []
    async for stored in find_all(store, BOOKINGS, _OPEN):
        booking = read_or_skip(stored, Booking, "booking")
        if booking is None or booking.unknown_words:
            continue
        ahead = [each for each in booking.open_occurrences if each.ends_at > now]
        for occurrence in sorted(ahead, key=lambda each: each.starts_at)[:1]:
            found += [
                PlannedBookingBoundary(
                    booking_id=booking.id,
                    name=booking.name,
                    number=occurrence.number,
                    status=status,
                    at=at,
                    workers=booking.workers,
                )
                for at, status in boundaries(occurrence, now)
            ]
    return sorted(found, key=lambda each: (each.at, each.name))
