"""The part of the plan that bookings have: when classes warm up, begin and end next, and what they take then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.bookings.admission import stored_region
from lcm.control_plane.bookings.progress import choose_among
from lcm.control_plane.bookings.workers import booked_worker, launch_plan, launched_worker
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.kinds import BOOKINGS, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.model.booking.progress import boundaries, due_status, gets_token
from lcm.model.booking.record import OPEN_STATUSES, UNDER_WAY, Booking
from lcm.model.fleet.plan import PlannedBookingBoundary, PlannedBookingStep
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.store.port import Store, StoredDocument
    from lcm.model.booking.record import BookingOccurrence

log = structlog.get_logger(__name__)

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

    A booking that cannot be carried out is skipped, as the scheduler skips it.
    """
    listed = [read_or_skip(each, Booking, "booking") async for each in find_all(context.store, BOOKINGS, _OPEN)]
    bookings = [each for each in listed if each is not None and not each.unknown_words]
    pool = (await context.settings()).scaling.license_pool_size
    regions: dict[str, _Region] = {}
    found: list[PlannedBookingStep] = []
    for booking in sorted(bookings, key=lambda each: (each.created_at, each.id)):
        under_way = [each for each in booking.open_occurrences if due_status(each, now) in UNDER_WAY]
        if not under_way:
            continue
        key = "" if pool else booking.aws_region  # workers of all regions take licenses of one pool
        if key not in regions:
            regions[key] = await _Region.read(context.store, key)
        region = regions[key]
        try:
            for occurrence in under_way:
                step = await _plan_step(context, region, booking, occurrence, now)
                found += [step] if step is not None else []
        except Exception as error:
            log.exception("booking not planned", booking=booking.id, name=booking.name, reason=repr(error))
    return found


class _Region:
    """The live workers of a region, or of all, as they are once the steps that are planned so far are carried out.

    They are decoded when they are needed: a class that has its workers needs no others.
    """

    def __init__(self, stored: dict[str, StoredDocument]) -> None:
        self._stored = stored
        self._workers: dict[str, Worker] = {}

    @classmethod
    async def read(cls, store: Store, aws_region: str) -> Self:
        any_of = {"aws_region": [aws_region]} if aws_region else {}
        live = Where(any_of=any_of, none_of={"status": [WorkerStatus.TERMINATED.value]})
        return cls({each.id: each async for each in find_all(store, WORKERS, live)})

    def put(self, worker: Worker) -> None:
        self._stored.pop(worker.id, None)
        self._workers[worker.id] = worker

    def workers_of(self, booking: Booking) -> list[Worker]:
        """Those that are booked for it."""
        mark = booking.id.encode()
        self._decode([each for each in self._stored.values() if mark in each.body])
        return [each for each in self._workers.values() if each.booking_id == booking.id]

    def workers(self) -> list[Worker]:
        self._decode(list(self._stored.values()))
        return list(self._workers.values())

    def unreadable(self, aws_region: str) -> int:
        """How many of those that were decoded could not be read."""
        return sum(stored_region(each) in ("", aws_region) for each in self._stored.values())

    def _decode(self, stored: list[StoredDocument]) -> None:
        for each in stored:
            worker = read_or_skip(each, Worker, "worker")
            if worker is not None:
                self.put(worker)


async def _plan_step(
    context: ControlPlaneContext, region: _Region, booking: Booking, occurrence: BookingOccurrence, now: datetime
) -> PlannedBookingStep | None:
    until = occurrence.ends_at
    choice = await choose_among(context, booking, region.workers_of(booking), 0, until, now)
    if len(choice.serving) < booking.workers:
        choice = await choose_among(
            context, booking, region.workers(), region.unreadable(booking.aws_region), until, now
        )
    launched: list[Worker] = []
    if choice.launch:
        context.region(booking.aws_region)
        template = await read_template(context.store, booking.template)
        pool = (await context.settings()).scaling.license_pool_size
        plans = (
            launch_plan(context, template, booking, occurrence, number + 1, pool=pool)
            for number in range(choice.launch)
        )
        launched = [launched_worker(plan, booking, occurrence, now) for plan in plans]
    stopped = [each for each in choice.serving if each.desired_status is DesiredStatus.STOPPED]
    taken = [*stopped, *choice.booked]
    has_token = context.scale_up_license is not None
    joining = {each.id for each in choice.booked}
    for worker in taken:
        gets_license_token = has_token and worker.id in joining and gets_token(worker, booking)
        region.put(booked_worker(worker, booking, occurrence, now, gets_token=gets_license_token))
    for worker in launched:
        region.put(worker)
    if not taken and not launched:
        return None
    return PlannedBookingStep(
        booking_id=booking.id,
        name=booking.name,
        number=occurrence.number,
        workers={each.id: each.name for each in taken},
        launches=choice.launch,
        template=booking.template,
        aws_region=booking.aws_region,
    )
