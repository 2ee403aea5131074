"""Classes on the whole platform in virtual time: their seats run before the start, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

from lcm.cloud.simulated.faults import AnnounceMaintenance
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.record import Booking, BookingStatus
from lcm.model.booking.requests import CreateBookingRequest
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus
from tests.support.records.placement import needs
from tests.support.virtual.full_platform import Whole, a_whole
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import Lablet

# One seat fits on a worker of the template `micro`, which is the cheapest on which it fits.
SEAT = needs(cpu=1, memory=1, storage=5, nodes=1, license=False)
SEATS = 2


async def book(whole: Whole, **facts: Any) -> Booking:
    """A class of half an hour that begins in 80 minutes."""
    await whole.define("class", SEAT)
    return await book_at(whole, clock.now() + timedelta(minutes=80), **facts)


async def book_at(whole: Whole, start: datetime, **facts: Any) -> Booking:
    """A class of half an hour."""
    at = start.replace(second=0, microsecond=0, tzinfo=None)
    body = {"name": "monday", "definition": "class", "seats": SEATS, "start": at, "zone": "UTC"}
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


async def test_a_retirement_announced_for_next_week_is_over_before_anybody_notices() -> None:
    """The worker of a class is to be retired. Two classes and a walk-in go on as booked; it moves between them."""
    async with a_whole(report_interval=600.0) as whole:
        fleet = whole.fleet
        await fleet.change_settings(
            maintenance={"maintenance_policy": "plan"}, idle={"worker_auto_pause_enabled": False}
        )
        first = await book(whole)
        starts = first.occurrences[0].ends_at + timedelta(hours=3)
        second = await book_at(whole, starts, name="later", repeat_weeks=2)
        await sleep_until(first.occurrences[0].starts_at, minutes=-5)
        seat, *_ = await running_seats(whole)
        used = await whole.worker_of(seat)
        assert used.instance_id is not None
        retirement = AnnounceMaintenance("degraded", 7 * 86_400.0, used.instance_id, "instance-retirement")
        fleet.world.inject_fault(used.aws_region, retirement)
        await sleep_until(first.occurrences[0].starts_at, minutes=20)
        told = await fleet.worker(used.id)
        assert told.maintenance is not None
        assert told.maintenance.not_before is not None
        assert second.occurrences[1].starts_at > told.maintenance.not_before > second.occurrences[0].ends_at
        viewer = await signed_in(fleet.plane, Role.VIEWER)
        page = unescape(await viewer.page(f"/workers/{used.id}"))
        assert "EC2 has announced the retirement of its host" in page
        assert "It will be stopped and started again on another host as soon as it is not in use" in page
        walk_in = await whole.running("class", time_to_live_minutes=60)

        while clock.now() < second.occurrences[0].ends_at + timedelta(minutes=30):
            for each in (first, second):
                assert all(occurrence.at_risk is None for occurrence in (await read(whole, each)).occurrences)
            await asyncio.sleep(120)
        history = [entry async for entry in fleet.people.workers.history(used.id)]
        (moved,) = [each for each in history if each.to_status is WorkerStatus.STOPPING]
        assert first.occurrences[0].ends_at < moved.at < second.occurrences[0].warm_up_at
        now = await fleet.worker(used.id)
        assert (now.maintenance, fleet.calls("StopInstances"), fleet.calls("StartInstances")) == (None, 1, 1)
        taught = [each for each in await whole.lablets() if each.booking_id]
        assert len(taught) == 2 * SEATS
        assert {each.placement_attempt for each in taught} == {1}, "none was placed anew"
        assert {each.status for each in taught} <= {LabletStatus.TERMINATED, LabletStatus.EXPIRED}
        ended = await whole.lablet(walk_in.id)
        assert (ended.status, ended.placement_attempt) == (LabletStatus.EXPIRED, 1)
        assert "EC2 has announced the retirement of its host" in await viewer.part(f"/workers/{used.id}/timeline")
        await whole.check_books()
