"""Classes on the whole platform in virtual time: their seats run before the start, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.cloud.simulated.faults import AnnounceMaintenance
from lcm.core import clock
from lcm.model.booking.record import Booking, BookingStatus
from lcm.model.booking.requests import CreateBookingRequest
from lcm.model.lablet.status import LabletStatus
from tests.support.records.placement import needs
from tests.support.virtual.full_platform import Whole, a_whole

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import Lablet

# One seat fits on a worker of the template `micro`, which is the cheapest on which it fits.
SEAT = needs(cpu=1, memory=1, storage=5, nodes=1, license=False)
SEATS = 2


async def book(whole: Whole, **facts: Any) -> Booking:
    """A class of half an hour that begins in 80 minutes."""
    await whole.define("class", SEAT)
    start = (clock.now() + timedelta(minutes=80)).replace(second=0, microsecond=0, tzinfo=None)
    body = {"name": "monday", "definition": "class", "seats": SEATS, "start": start, "zone": "UTC"}
    return await whole.fleet.people.bookings.create(
        CreateBookingRequest.model_validate({**body, "duration_minutes": 30, **facts})
    )


async def read(whole: Whole, booking: Booking) -> Booking:
    return await whole.fleet.people.bookings.get(booking.id)


async def sleep_until(moment: datetime, *, minutes: float = 1.0) -> None:
    """A little longer than the scheduler takes to notice."""
    await asyncio.sleep((moment - clock.now()).total_seconds() + 60 * minutes)


async def running_seats(whole: Whole) -> list[Lablet]:
    return [each for each in await whole.lablets() if each.booking_id and each.status is LabletStatus.RUNNING]


async def test_a_class_is_ready_before_its_start_and_gives_its_workers_back() -> None:
    async with a_whole(report_interval=600.0) as whole:
        booking = await book(whole, learners=["anna", "ben"])
        (only,) = booking.occurrences
        assert await whole.workers() == []
        await sleep_until(only.warm_up_at)
        assert (await read(whole, booking)).status is BookingStatus.WARMING
        await sleep_until(only.starts_at, minutes=-5)
        assert len(await running_seats(whole)) == SEATS
        workers = await whole.workers()
        assert len(workers) == booking.workers == SEATS
        assert {(each.booking_id, each.booked_until) for each in workers} == {(booking.id, only.ends_at)}
        seats = await running_seats(whole)
        assert sorted(each.owner_name for each in seats) == ["anna", "ben"]
        walk_in = await whole.make("class")
        await sleep_until(only.starts_at)
        active = await read(whole, booking)
        assert (active.status, active.occurrences[0].at_risk) == (BookingStatus.ACTIVE, None)
        assert (await whole.lablet(walk_in.id)).worker_id not in {each.id for each in workers}
        await sleep_until(only.ends_at, minutes=5)
        assert (await read(whole, booking)).status is BookingStatus.ENDED
        assert not any(each.assigned for each in await whole.lablets() if each.booking_id)
        assert not any(each.booking_id for each in await whole.workers())
        await whole.check_books()


async def test_a_retirement_announced_during_a_class_waits_for_its_end() -> None:
    """calendar.md#precedence: a booking outranks maintenance; the worker is moved in the idle gap after the class."""
    async with a_whole(report_interval=600.0) as whole:
        fleet = whole.fleet
        await fleet.change_settings(
            maintenance={"maintenance_policy": "plan"}, idle={"worker_auto_pause_enabled": False}
        )
        booking = await book(whole)
        (only,) = booking.occurrences
        await sleep_until(only.starts_at, minutes=-5)
        seat, *_ = await running_seats(whole)
        used = await whole.worker_of(seat)
        assert used.instance_id is not None
        fleet.world.inject_fault(used.aws_region, AnnounceMaintenance("retirement", 7 * 86_400.0, used.instance_id))
        await sleep_until(only.ends_at, minutes=-1)
        assert len(await running_seats(whole)) == SEATS
        assert fleet.calls("StopInstances") == 0
        summary = (await fleet.people.workers.explain(used.id)).summary
        assert "EC2 has announced" in summary
        assert booking.name in summary or booking.id in summary

        async def moved() -> bool:
            now = await fleet.worker(used.id)
            return now.auto_resume_count > used.auto_resume_count and now.ready and now.maintenance is None

        await fleet.until(moved, "it was moved after the class", within=3 * 3600.0)
        ended = await whole.lablet(seat.id)
        assert (ended.assigned, ended.placement_attempt) == (False, 1)
        assert (await read(whole, booking)).occurrences[0].at_risk is None
