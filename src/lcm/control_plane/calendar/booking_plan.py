"""The part of the plan that bookings have: when classes warm up, begin and end next, and what they take then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.bookings.progress import choose_among
from lcm.control_plane.records.kinds import BOOKINGS, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.model.booking.progress import boundaries, due_status
from lcm.model.booking.record import OPEN_STATUSES, UNDER_WAY, Booking
from lcm.model.fleet.plan import PlannedBookingBoundary, PlannedBookingStep
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
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


async def plan_booking_steps(context: ControlPlaneContext, now: datetime) -> list[PlannedBookingStep]:
    """What classes that warm up or take place lack and are given next, in the order in which they are carried out.

    Two classes that lack workers at once may be named the same ones here: the first gets them.
    """
    listed = [read_or_skip(each, Booking, "booking") async for each in find_all(context.store, BOOKINGS, _OPEN)]
    bookings = [each for each in listed if each is not None and not each.unknown_words]
    found: list[PlannedBookingStep] = []
    for booking in sorted(bookings, key=lambda each: (each.created_at, each.id)):
        for occurrence in booking.open_occurrences:
            if due_status(occurrence, now) not in UNDER_WAY:
                continue
            live = Where(
                any_of={"aws_region": [booking.aws_region]}, none_of={"status": [WorkerStatus.TERMINATED.value]}
            )
            stored = [each async for each in find_all(context.store, WORKERS, live)]
            workers = [each for one in stored if (each := read_or_skip(one, Worker, "worker")) is not None]
            unreadable = len(stored) - len(workers)
            choice = await choose_among(context, booking, workers, unreadable, occurrence.ends_at, now)
            if choice.booked or choice.launch:
                found.append(
                    PlannedBookingStep(
                        booking_id=booking.id,
                        name=booking.name,
                        number=occurrence.number,
                        workers={each.id: each.name for each in choice.booked},
                        launches=choice.launch,
                        template=booking.template,
                        aws_region=booking.aws_region,
                    )
                )
    return found
