"""Changes of a booking: cancel, extend, move one class. What takes more capacity is admitted as a new booking is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.bookings.admission import decide_admission, read_calendar, read_surroundings
from lcm.control_plane.bookings.proposals import describe_refusal, late_warnings, plan_at, planned
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.definitions import read_definition_summary
from lcm.model.booking.capacity import warm_up_time
from lcm.model.booking.record import UNDER_WAY, BookingStatus, with_status
from lcm.model.booking.requests import MAX_MINUTES, BookingChangePreview
from lcm.model.booking.times import preferred_starts
from lcm.model.calendar.zones import WallTime
from lcm.model.formatting import count_of, format_instant
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.booking.requests import ExtendBookingRequest, MoveOccurrenceRequest
    from lcm.model.calendar.admission import BookedCapacity, OccurrencePlanner


def cancel(booking: Booking, number: int | None, now: datetime) -> Booking:
    """The booking without the classes that are not over, or without one of them."""
    if number is not None:
        _find(booking, number, "number")
    occurrences = tuple(
        with_status(each, BookingStatus.CANCELLED) if each.is_open and number in (None, each.number) else each
        for each in booking.occurrences
    )
    return booking.with_occurrences(occurrences, now)


async def extended(
    context: ControlPlaneContext, tx: Transaction, booking: Booking, request: ExtendBookingRequest
) -> Booking:
    """The booking with a later end of one class; only what it takes in addition is asked for."""
    found = _current(booking, tx.now) if request.number is None else _find(booking, request.number, "number")
    if not found.is_open or found.ends_at <= tx.now:
        detail = f"class {found.number} is over or cancelled; book a new one"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    later = found.model_copy(update={"ends_at": found.ends_at + timedelta(minutes=request.minutes)})
    if later.ends_at - later.starts_at > timedelta(minutes=MAX_MINUTES):
        detail = f"minutes: a class lasts at most {MAX_MINUTES} minutes"
        raise ProblemError(ProblemCode.INVALID, detail)
    _check_apart(booking, later, "minutes")
    requested = replace(booking.capacity(later), start=found.ends_at)
    lasts = later.ends_at - later.starts_at
    await _admit(context, tx, [requested], without=None, zone=booking.zone, lasts=lasts)
    return booking.with_occurrence(later, tx.now)


async def moved(
    context: ControlPlaneContext, tx: Transaction, booking: Booking, number: int, request: MoveOccurrenceRequest
) -> Booking:
    """The booking with one class at another time."""
    found = _find(booking, number, "number")
    if found.status is not BookingStatus.CONFIRMED:
        detail = f"class {number} is {found.status}: only one that is CONFIRMED can be moved"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    definition = await read_definition_summary(context.store, booking.definition)
    surroundings = await read_surroundings(context.store, definition)
    launch = surroundings.launch_times.get(booking.template)
    if launch is None:
        detail = f"template {booking.template} is disabled or does not exist; enable it, or book anew"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    warm_up = warm_up_time(launch, surroundings.lab_time, booking.workers)
    start = WallTime(at=request.start, zone=booking.zone, occurrence=request.occurrence)
    (planned,) = plan_at(start, warm_up, found.ends_at - found.starts_at, 1, tx.now)
    later = planned.model_copy(update={"number": number})
    _check_apart(booking, later, "start")
    preferred = preferred_starts(later, warm_up)
    length = later.ends_at - later.warm_up_at

    def plan_from(warm_up_at: datetime) -> list[tuple[datetime, datetime]]:
        ends_at = warm_up_at + length
        apart = _overlapping(booking, number, warm_up_at, ends_at) is None
        return [(warm_up_at, ends_at)] if apart else []

    await _admit(
        context,
        tx,
        [booking.capacity(later)],
        without=(booking.id, number),
        preferred=preferred,
        plan_from=plan_from,
        zone=booking.zone,
        warm_up=warm_up,
    )
    return booking.with_occurrence(later, tx.now)


def preview_change(before: Booking, after: Booking, now: datetime) -> BookingChangePreview:
    """What a change that fits would make of its class, and what it would cost."""
    pairs = zip(before.occurrences, after.occurrences, strict=True)
    found, changed = next(((old, new) for old, new in pairs if new != old), (None, None))
    if found is None or changed is None:
        return BookingChangePreview(confirmed=True, reason="it fits: nothing would change")
    (planned_class,) = planned([changed])
    times = f"from {format_instant(changed.starts_at)} to {format_instant(changed.ends_at)}"
    moved_class = changed.starts_at != found.starts_at
    return BookingChangePreview(
        confirmed=True,
        reason=f"it fits: class {changed.number} would take place {times}",
        occurrence=planned_class,
        cost=_cost_of_change(after, found, changed, now),
        warnings=tuple(late_warnings(changed, now)) if moved_class else (),
    )


def refused_change(problem: ProblemError) -> BookingChangePreview:
    """The same for a change that does not fit: what is short, and when it would fit."""
    found = {} if problem.current is None else dict(problem.current)
    return BookingChangePreview.model_validate({"confirmed": False, "reason": problem.detail, **found})


def _cost_of_change(booking: Booking, before: BookingOccurrence, after: BookingOccurrence, now: datetime) -> str:
    """What the class would cost, compared to what it costs now."""

    def hours(each: BookingOccurrence) -> float:
        # Of a new warm-up that would have begun already, only the rest is paid.
        begins = each.warm_up_at if each.warm_up_at == before.warm_up_at else max(each.warm_up_at, now)
        return (each.ends_at - begins).total_seconds() / 3600

    cost, more = (round(each * booking.cost_per_hour_usd, 2) for each in (hours(after), hours(after) - hours(before)))
    compared = f"${abs(more):,.2f} {'more' if more > 0 else 'less'} than now" if more else "as much as now"
    workers = f"{count_of(booking.workers, 'worker')} of {booking.template}"
    return f"{workers} for {round(hours(after), 2):g} hours, warm-up included: ${cost:,.2f} without disks, {compared}."


async def _admit(
    context: ControlPlaneContext,
    tx: Transaction,
    requested: list[BookedCapacity],
    *,
    without: tuple[str, int] | None,
    preferred: Sequence[datetime] = (),
    plan_from: OccurrencePlanner | None = None,
    zone: str,
    warm_up: timedelta | None = None,
    lasts: timedelta | None = None,
) -> None:
    """Raise unless it fits; `lasts` is the new length of the class, None for the one that was admitted."""
    calendar = await read_calendar(context, requested, tx.now, without=without)
    if lasts is not None:
        calendar.check_length(lasts, "minutes")
    answer = decide_admission(requested, calendar, tx.now, preferred, plan_from)
    if not answer.confirmed:
        raise describe_refusal(answer, zone, warm_up)
    tx.require_unchanged(calendar.depends_on)


def _find(booking: Booking, number: int, field: str) -> BookingOccurrence:
    found = booking.occurrence(number)
    if found is None:
        detail = f"{field}: booking {booking.name} has the classes 1 to {len(booking.occurrences)}, not {number}"
        raise ProblemError(ProblemCode.NOT_FOUND, detail)
    return found


def _current(booking: Booking, now: datetime) -> BookingOccurrence:
    """The class that is under way, else the next one."""
    ahead = sorted((each for each in booking.open_occurrences if each.ends_at > now), key=lambda each: each.starts_at)
    under_way = [each for each in ahead if each.status in UNDER_WAY or each.warm_up_at <= now]
    found = next(iter([*under_way, *ahead]), None)
    if found is None:
        detail = f"booking {booking.name} is {booking.status}: no class is left to extend; book a new one"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    return found


def _check_apart(booking: Booking, changed: BookingOccurrence, field: str) -> None:
    """Two classes of a booking must not overlap, warm-ups included."""
    each = _overlapping(booking, changed.number, changed.warm_up_at, changed.ends_at)
    if each is not None:
        times = f"{format_instant(each.warm_up_at)} to {format_instant(each.ends_at)}"
        detail = f"{field}: it would overlap class {each.number} of this booking, {times} with its warm-up"
        raise ProblemError(ProblemCode.INVALID, detail)


def _overlapping(booking: Booking, number: int, begin: datetime, end: datetime) -> BookingOccurrence | None:
    """Another class of the booking that takes place then."""
    others = (each for each in booking.open_occurrences if each.number != number)
    return next((each for each in others if begin < each.ends_at and each.warm_up_at < end), None)
