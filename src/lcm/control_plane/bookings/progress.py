"""Carries bookings out: statuses by the clock, workers and seats for classes that are under way, and their end.

Level-triggered: each step follows from the records as they are, so that nothing is lost while nobody leads or the
control plane is away. The scheduler asks for it; each step is one commit, fenced by the scheduler's term.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from lcm.control_plane.bookings.admission import (
    CalendarReader,
    decide_admission,
    read_calendar,
    read_open_bookings,
    read_walk_ins,
    stored_region,
    without_license,
)
from lcm.control_plane.bookings.seats import end_seats, keep_seats, seats_have_ended
from lcm.control_plane.bookings.workers import book_workers, give_back_workers, listed_or_skip
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import BOOKINGS, CALENDAR, DEFINITIONS, TEAMS, TEMPLATES, WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.core import clock
from lcm.core.singleflight import Singleflight
from lcm.core.text import single_line
from lcm.model.booking.licenses import license_room
from lcm.model.booking.progress import (
    ChoiceLimits,
    assess_risk,
    choose_workers,
    due_status,
    fewer_seats,
    is_over,
    missing_licenses,
    next_step_at,
    risk,
)
from lcm.model.booking.record import UNDER_WAY, Booking, BookingStatus
from lcm.model.booking.requests import BookingProgress
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Leader, Transaction
    from lcm.control_plane.store.port import StoredDocument
    from lcm.model.booking.licenses import LicenseRoom
    from lcm.model.booking.progress import WorkerChoice
    from lcm.model.booking.record import BookingOccurrence
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

LOOK_AHEAD = timedelta(hours=24)
"""Classes that begin within this time are checked against the limits as they are now."""
ASSESS_EVERY = timedelta(minutes=1)
"""How often, if nothing changes that bookings depend on. Workers change without that."""
UNDER_WAY_SECONDS = 10.0
IDLE_SECONDS = 30.0
_MAX_REASON = 500
_MAX_WORKERS_AT_ONCE = 10
"""Workers that one commit books or launches: launches are staggered."""
_DECODED_PER_TURN = 200


class BookingProgressService:
    """Carries out the bookings on behalf of the scheduler."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._runs: Singleflight[tuple[str, int], BookingProgress] = Singleflight()
        self._turn = asyncio.Lock()
        self._future = FutureClasses(context)

    async def advance(self, leader: Leader, now: datetime) -> BookingProgress:
        """Do what is due for all bookings. One that cannot be carried out is skipped, logged and counted.

        A leader that gave up waiting and asks again gets the result of the run that is under way.
        """
        run = partial(self._advance_in_turn, leader, now)
        return await self._runs.run((leader.controller, leader.term), run, "bookings-advance")

    async def _advance_in_turn(self, leader: Leader, now: datetime) -> BookingProgress:
        async with self._turn:
            return await self._advance_all(leader, now)

    async def _advance_all(self, leader: Leader, now: datetime) -> BookingProgress:
        before = (now + LOOK_AHEAD).isoformat()
        watched = Where(any_of={"watched": [True]}, below={"starts_at": before})
        listing = find_all(self._context.store, BOOKINGS, watched)
        listed = [read_or_skip(stored, Booking, "booking") async for stored in listing]
        found = [booking for booking in listed if booking is not None]
        skipped, under_way, steps = len(listed) - len(found), 0, []
        await self._future.begin(found, now)
        for booking in sorted(found, key=lambda each: (each.created_at, each.id)):
            if booking.unknown_words:
                continue  # left to the version that knows them
            try:
                after = await self._advance_one(leader, booking)
            except ProblemError as problem:
                if problem.code is ProblemCode.STALE_LEADER:
                    raise
                skipped += 1
                log.error("booking skipped", booking=booking.id, name=booking.name, reason=problem.detail)
                await self._report_problem(leader, booking, problem.detail)
                continue
            except Exception as error:
                skipped += 1
                log.exception("booking skipped", booking=booking.id, name=booking.name, reason=repr(error))
                await self._report_problem(leader, booking, repr(error))
                continue
            under_way += any(each.status in UNDER_WAY for each in after.occurrences)
            steps += [step for each in after.occurrences if (step := next_step_at(each, now)) is not None]
        soonest = min((step - now).total_seconds() for step in steps) if steps else IDLE_SECONDS
        longest = UNDER_WAY_SECONDS if under_way or skipped else IDLE_SECONDS
        return BookingProgress(under_way=under_way, skipped=skipped, next_in=max(0.0, min(soonest, longest)))

    async def _report_problem(self, leader: Leader, found: Booking, reason: str) -> None:
        """Say on the classes that something had to be done for that they are not carried out, and why."""

        async def attempt(tx: Transaction) -> Booking:
            booking = await tx.booking(found.id)
            for each in booking.open_occurrences:
                if due_status(each, tx.now) in UNDER_WAY:
                    at_risk = risk(each, f"it cannot be carried out: {single_line(reason, _MAX_REASON)}", tx.now)
                    booking = booking.with_occurrence(each.model_copy(update={"at_risk": at_risk}), tx.now)
            return tx.save_booking(booking, "booking_not_carried_out", _step_text(booking))

        try:
            await self._context.unit_of_work.run_fenced(leader, attempt)
        except ProblemError as problem:
            if problem.code is ProblemCode.STALE_LEADER:
                raise
            log.warning("the problem of a booking could not be recorded", booking=found.id, reason=problem.detail)

    async def _advance_one(self, leader: Leader, found: Booking) -> Booking:
        for occurrence in found.occurrences:
            if occurrence.holds_capacity and is_over(occurrence, clock.earliest_now()):
                await end_seats(self._context.unit_of_work, leader, found, occurrence)

        async def attempt(tx: Transaction) -> Booking:
            self._future.begin_attempt()
            booking = await tx.booking(found.id)
            given_back = False
            for occurrence in booking.occurrences:
                if occurrence.is_open or occurrence.holds_capacity:
                    after = await _advance_occurrence(self._context, tx, booking, occurrence, self._future)
                    given_back = given_back or (occurrence.holds_capacity and not after.is_open)
                    booking = booking.with_occurrence(after, tx.now)
            if given_back and not any(each.status in UNDER_WAY for each in booking.occurrences):
                await give_back_workers(tx, booking)
            return tx.save_booking(booking, "booking_advanced", _step_text(booking), status=booking.status.value)

        after = await self._context.unit_of_work.run_fenced(leader, attempt)
        self._future.committed()
        return after


def _step_text(booking: Booking) -> str:
    risks = [f"class {each.number}: {each.at_risk.missing}" for each in booking.occurrences if each.at_risk]
    return "; ".join(risks)[:500]


async def _advance_occurrence(
    context: ControlPlaneContext,
    tx: Transaction,
    booking: Booking,
    occurrence: BookingOccurrence,
    future: FutureClasses,
) -> BookingOccurrence:
    status = due_status(occurrence, tx.now)
    if status is BookingStatus.ENDED and not is_over(occurrence, tx.earliest_now):
        return occurrence  # a clock may have jumped ahead: labs that are deleted do not come back
    if status in UNDER_WAY:
        return await _keep_going(context, tx, booking, occurrence.model_copy(update={"status": status}))
    if status is BookingStatus.CONFIRMED:
        return await future.assess(booking, occurrence, tx.now)
    fields: dict[str, Any] = {"status": status, "at_risk": None}
    if occurrence.holds_capacity:
        fields["holds_capacity"] = not await seats_have_ended(tx.store, booking, occurrence)
    return occurrence.model_copy(update=fields)


class FutureClasses:
    """What classes that begin soon would lack: found anew when what bookings depend on changes, and every minute."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._calendar: int | None = None  # its revision
        self._assessed: dict[tuple[str, int], tuple[datetime, datetime]] = {}  # when, and the start of the class
        self._in_attempt: dict[tuple[str, int], tuple[datetime, datetime]] = {}  # the same, not committed yet
        self._reader: CalendarReader | None = None

    async def begin(self, bookings: Sequence[Booking], now: datetime) -> None:
        """Begin a run over these bookings: what they are compared with is read once, if it is needed at all."""
        stored = await self._context.store.get(CALENDAR, CALENDAR.name)
        revision = None if stored is None else stored.revision
        if revision != self._calendar:
            self._assessed.clear()
        self._calendar = revision
        ids = {each.id for each in bookings}
        self._assessed = {key: value for key, value in self._assessed.items() if key[0] in ids}
        soon = [part for each in bookings for part in each.open_occurrences if _is_soon(part, now)]
        last = max((part.ends_at for part in soon), default=now)
        self._reader = CalendarReader(self._context, now, last, now)

    def begin_attempt(self) -> None:
        """Begin to assess the classes of one booking, perhaps anew: what an earlier attempt found was not stored."""
        self._in_attempt = {}

    def committed(self) -> None:
        """What was found in the attempt is stored."""
        self._assessed |= self._in_attempt

    async def assess(self, booking: Booking, occurrence: BookingOccurrence, now: datetime) -> BookingOccurrence:
        """The class with what it would lack, if that is due."""
        key = (booking.id, occurrence.number)
        at, start = self._assessed.get(key, (None, None))
        recent = at is not None and timedelta() <= now - at < ASSESS_EVERY and start == occurrence.starts_at
        if not _is_soon(occurrence, now) or recent:
            return occurrence
        after = await assess_future(self._context, booking, occurrence, now, self._reader)
        self._in_attempt[key] = (now, occurrence.starts_at)
        return after


def _is_soon(occurrence: BookingOccurrence, now: datetime) -> bool:
    return occurrence.warm_up_at - now <= LOOK_AHEAD


async def assess_future(
    context: ControlPlaneContext,
    booking: Booking,
    occurrence: BookingOccurrence,
    now: datetime,
    reader: CalendarReader | None = None,
) -> BookingOccurrence:
    """The class with what it would lack by the limits and workers of now."""
    requested, own = booking.capacity(occurrence), (booking.id, occurrence.number)
    if reader is None:
        calendar = await read_calendar(context, [requested], now, without=own)
    else:
        calendar = await reader.calendar_for([requested], without=own)
    short = [str(each) for each in decide_admission([requested], calendar, now).shortages]
    count = without_license(context, calendar, requested)
    short += [missing_licenses(count, booking.workers)] if count else []
    missing = "; ".join([*await _missing_records(context, booking), *short])
    return occurrence.model_copy(update={"at_risk": risk(occurrence, missing, now)})


async def _missing_records(context: ControlPlaneContext, booking: Booking) -> list[str]:
    """What the class is made from and does not exist any more."""
    store = context.store
    named = [(DEFINITIONS, booking.definition, "definition"), (TEMPLATES, booking.template, "template")]
    named += [(TEAMS, booking.team, "team")] if booking.team else []
    found = [f"{word} {id_} does not exist" for kind, id_, word in named if await store.get(kind, id_) is None]
    stored = await store.get(TEMPLATES, booking.template)
    template = None if stored is None else read_or_skip(stored, WorkerTemplate, "template")
    fewer = None if template is None else fewer_seats(template.capacity, booking, context.ports)
    if fewer is not None:
        found.append(f"template {booking.template} was changed: {fewer} by now; book the class anew")
    if booking.aws_region not in context.regions:
        found.append(f"region {booking.aws_region} is not configured any more")
    return found


async def _keep_going(
    context: ControlPlaneContext, tx: Transaction, booking: Booking, occurrence: BookingOccurrence
) -> BookingOccurrence:
    """A class that warms up or takes place has its workers and its seats."""
    await tx.read_calendar()  # before what is counted: one that takes workers or licenses takes its turn from here
    hold = (await tx.fleet()).hold
    if hold is not None and hold.active(tx.earliest_now):
        missing = f"the fleet is on hold by {hold.by}: nothing will be started before its release"
        return occurrence.model_copy(update={"at_risk": risk(occurrence, missing, tx.now)})
    choice = await _choose(context, tx, booking, occurrence.ends_at)
    await book_workers(context, tx, booking, occurrence, choice)
    has_workers = bool(choice.serving or choice.booked or choice.launch)
    seats, unreadable = await keep_seats(tx, booking, occurrence) if has_workers else ([], ())
    at_risk = assess_risk(booking, occurrence, choice, seats, tx.now, unreadable)
    return occurrence.model_copy(update={"holds_capacity": True, "at_risk": at_risk})


async def _choose(context: ControlPlaneContext, tx: Transaction, booking: Booking, until: datetime) -> WorkerChoice:
    region, ended = [booking.aws_region], [WorkerStatus.TERMINATED.value]
    there = Where(any_of={"aws_region": region}, none_of={"status": ended})
    listed = [stored async for stored in find_all(tx.store, WORKERS, there)]
    mark = booking.id.encode()
    mine = [worker for each in listed if mark in each.body and (worker := listed_or_skip(tx, each)) is not None]
    choice = await choose_among(context, booking, mine, 0, until, tx.now)
    if len(choice.serving) == booking.workers:
        return choice  # it needs no others, and they need not be decoded
    others = [each for each in listed if mark not in each.body]
    if (await context.settings()).scaling.license_pool_size:  # workers of all regions take licenses of one pool
        elsewhere = Where(none_of={"aws_region": region, "status": ended})
        others += [stored async for stored in find_all(tx.store, WORKERS, elsewhere)]
    workers = [*mine, *await _decoded(tx, others)]
    readable = {worker.id for worker in workers}
    unreadable = {
        each.id
        for each in (*listed, *others)
        if each.id not in readable and stored_region(each) in ("", booking.aws_region)
    }
    return await choose_among(context, booking, workers, len(unreadable), until, tx.now)


async def _decoded(tx: Transaction, listed: Sequence[StoredDocument]) -> list[Worker]:
    """Those that can be read. There may be thousands: others are served meanwhile."""
    found: list[Worker] = []
    for number, stored in enumerate(listed):
        if number and number % _DECODED_PER_TURN == 0:
            await asyncio.sleep(0)
        worker = listed_or_skip(tx, stored)
        found += [] if worker is None else [worker]
    return found


async def choose_among(
    context: ControlPlaneContext,
    booking: Booking,
    workers: Sequence[Worker],
    unreadable: int,
    until: datetime,
    now: datetime,
) -> WorkerChoice:
    """The workers for a class among the live ones of its region, of which so many further ones cannot be read.

    Where licenses are limited, those of all regions are given: they take licenses of one pool.
    """
    licenses = await _license_room(context, booking, workers, until, now)
    workers = [worker for worker in workers if worker.aws_region == booking.aws_region]
    unreadable += sum(bool(each.unknown_words) for each in workers)
    walk_ins = await read_walk_ins(context.store, [worker.id for worker in workers if worker.allocation.lablets])
    scaling = (await context.settings()).scaling
    limits = ChoiceLimits(
        scaling.max_workers_per_region - unreadable,
        _MAX_WORKERS_AT_ONCE,
        context.ports,
        licenses=licenses,
        launches_licensed=context.scale_up_license is not None,
    )
    known = [worker for worker in workers if not worker.unknown_words]
    return choose_workers(booking, known, walk_ins, limits=limits, until=until, now=now)


async def _license_room(
    context: ControlPlaneContext, booking: Booking, workers: Sequence[Worker], until: datetime, now: datetime
) -> LicenseRoom | None:
    """What is left of the license pool to the class; None if it has no limit."""
    pool = (await context.settings()).scaling.license_pool_size
    if not pool:
        return None
    others = [] if booking.requirements.license else await read_open_bookings(context.store, now, until)
    return license_room(pool, booking, workers, others, until, now)
