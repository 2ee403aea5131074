"""What a request for a booking would take, and whether it fits. Preview and create share it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.bookings.admission import (
    choose_definition,
    decide_admission,
    read_calendar,
    read_surroundings,
    without_license,
)
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.lifecycle import check_definition_enabled
from lcm.model.booking.capacity import SeatPlan, plan_seats, warm_up_time
from lcm.model.booking.progress import missing_licenses
from lcm.model.booking.record import Booking
from lcm.model.booking.requests import BookingPreview, BookingShortage, FreeTime, PlannedOccurrence
from lcm.model.booking.times import plan_occurrences, preferred_starts, to_wall_time
from lcm.model.calendar.admission import FREE_TIMES_WITHIN, Admission, Resource, Shortage
from lcm.model.calendar.zones import WallTime, WallTimeError
from lcm.model.formatting import count_of, format_instant
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.teams import TeamList
    from lcm.control_plane.bookings.admission import Surroundings
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.store.port import Kind, StoredDocument
    from lcm.model.booking.record import BookingOccurrence
    from lcm.model.booking.requests import CreateBookingRequest
    from lcm.model.calendar.admission import BookedCapacity
    from lcm.model.lablet.record import LabletDefinitionSummary

_DAYS = FREE_TIMES_WITHIN.days


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is asked for: the workers for the seats, and when."""

    request: CreateBookingRequest
    definition: LabletDefinitionSummary
    region: str
    team: str
    seats: SeatPlan
    warm_up: timedelta
    occurrences: tuple[BookingOccurrence, ...]

    def capacities(self, occurrences: Sequence[BookingOccurrence]) -> list[BookedCapacity]:
        """What it takes at these times."""
        booking = self.booking("", "", self.occurrences[0].starts_at)
        return [booking.capacity(each) for each in occurrences]

    def plan_from(self, warm_up_at: datetime) -> list[tuple[datetime, datetime]]:
        """When its classes would take place from another time on: those after the first follow the clocks too."""
        request = self.request
        start = to_wall_time(warm_up_at + self.warm_up, request.zone)
        duration = timedelta(minutes=request.duration_minutes)
        moved = plan_occurrences(start, self.warm_up, duration, request.repeat_weeks)
        return [(each.warm_up_at, each.ends_at) for each in moved]

    def booking(self, booking_id: str, by: str, now: datetime) -> Booking:
        """The record of it."""
        request, template = self.request, self.seats.template
        assert template is not None, "a proposal without a template is refused"
        return Booking(
            id=booking_id,
            name=request.name,
            team=self.team,
            aws_region=self.region,
            definition=self.definition.id,
            requirements=self.definition.requirements,
            seats=request.seats,
            template=template.name,
            seats_per_worker=self.seats.seats_per_worker,
            workers=self.seats.workers,
            cost_per_hour_usd=self.cost_per_hour_usd,
            zone=request.zone,
            duration_minutes=request.duration_minutes,
            learners=request.learners,
            occurrences=self.occurrences,
            created_by=by,
            created_at=now,
            updated_at=now,
        )

    @property
    def cost_per_hour_usd(self) -> float:
        """What its workers cost an hour."""
        template = self.seats.template
        return 0.0 if template is None else round(self.seats.workers * template.cost_per_hour_usd, 4)


@dataclass(frozen=True, slots=True)
class Assessment:
    """A proposal, whether it fits, and the documents that this depends on."""

    proposal: Proposal
    preview: BookingPreview
    depends_on: Sequence[tuple[Kind, StoredDocument]] = ()


async def assess_request(
    context: ControlPlaneContext, caller: Caller, teams: TeamList, request: CreateBookingRequest, now: datetime
) -> Assessment:
    """Whether a booking would be confirmed now; an invalid request raises `ProblemError`."""
    region = context.region(request.aws_region)
    definition, team = await choose_definition(context.store, caller, teams, request.definition, request.team)
    check_definition_enabled(definition)
    surroundings = await read_surroundings(context.store, definition)
    proposal = _propose(context, request, surroundings, region, team, now)
    if proposal.seats.template is None:
        return Assessment(proposal, _without_template(proposal))
    requested = proposal.capacities(proposal.occurrences)
    calendar = await read_calendar(context, requested, now, without=None)
    calendar.check_length(timedelta(minutes=request.duration_minutes), "duration_minutes")
    preferred = preferred_starts(proposal.occurrences[0], proposal.warm_up)
    admission = decide_admission(requested, calendar, now, preferred, proposal.plan_from)
    free = free_times(admission, proposal.request.zone, proposal.warm_up)
    count = without_license(context, calendar, requested[0])
    warnings = [f"{missing_licenses(count, proposal.seats.workers)}."] if count else []
    return Assessment(proposal, _preview(proposal, admission, free, warnings, now), calendar.depends_on)


def _propose(
    context: ControlPlaneContext,
    request: CreateBookingRequest,
    surroundings: Surroundings,
    region: str,
    team: str,
    now: datetime,
) -> Proposal:
    definition = surroundings.definition
    seats = plan_seats(surroundings.templates, definition.requirements, request.seats, context.ports)
    warm_up = timedelta()
    if seats.template is not None:
        launch = surroundings.launch_times[seats.template.name]
        warm_up = warm_up_time(launch, surroundings.lab_time, seats.workers)
    start = WallTime(at=request.start, zone=request.zone, occurrence=request.occurrence)
    duration = timedelta(minutes=request.duration_minutes)
    occurrences = plan_at(start, warm_up, duration, request.repeat_weeks, now)
    return Proposal(request, definition, region, team, seats, warm_up, occurrences)


def plan_at(
    start: WallTime, warm_up: timedelta, duration: timedelta, repeats: int, now: datetime
) -> tuple[BookingOccurrence, ...]:
    """The classes from this time on; a time that is no instant, or is over, is a problem of the field `start`."""
    try:
        occurrences = plan_occurrences(start, warm_up, duration, repeats)
    except WallTimeError as error:
        raise ProblemError(ProblemCode.INVALID, f"start: {error}") from None
    except OverflowError:
        raise ProblemError(ProblemCode.INVALID, "start: must be a date from the year 1970 to 2999") from None
    if occurrences[0].starts_at <= now:
        detail = f"start: {start.at:%Y-%m-%d %H:%M} in {start.zone} has passed; choose a time in the future"
        raise ProblemError(ProblemCode.INVALID, detail)
    return occurrences


def free_times(admission: Admission, zone: str, warm_up: timedelta) -> list[FreeTime]:
    """The proposed times as clocks show them."""
    starts = [each + warm_up for each in admission.free_times]
    return [FreeTime(start=to_wall_time(each, zone), starts_at=each) for each in starts]


def _preview(
    proposal: Proposal, admission: Admission, free: Sequence[FreeTime], warnings: Sequence[str], now: datetime
) -> BookingPreview:
    request, template = proposal.request, proposal.seats.template
    assert template is not None
    shortages = tuple(_shortage(each) for each in admission.shortages)
    # Of a warm-up that would have begun already, only the rest is paid.
    hours = sum((each.ends_at - max(each.warm_up_at, now)).total_seconds() for each in proposal.occurrences) / 3600
    cost, hours_text = round(hours * proposal.cost_per_hour_usd, 2), f"{round(hours, 2):g}"
    workers = count_of(proposal.seats.workers, "worker")
    return BookingPreview(
        confirmed=admission.confirmed,
        reason=f"it fits: {workers} of {template.name}" if admission.confirmed else describe(shortages, free),
        shortages=shortages,
        free_times=tuple(free),
        definition=proposal.definition.id,
        aws_region=proposal.region,
        template=template.name,
        seats=request.seats,
        seats_per_worker=proposal.seats.seats_per_worker,
        workers=proposal.seats.workers,
        warm_up_minutes=minutes(proposal.warm_up),
        occurrences=planned(proposal.occurrences),
        cost_per_hour_usd=proposal.cost_per_hour_usd,
        cost_usd=cost,
        cost=f"{workers} of {template.name} for {hours_text} hours, warm-ups included: ${cost:,.2f}, without disks.",
        warnings=(*late_warnings(proposal.occurrences[0], now), *warnings),
    )


def late_warnings(first: BookingOccurrence | PlannedOccurrence, now: datetime) -> list[str]:
    """What to say of a class whose warm-up would have begun already."""
    warm_up = minutes(first.starts_at - first.warm_up_at)
    text = f"The warm-up takes about {warm_up} minutes: seats may not be ready at the start."
    return [text] if first.warm_up_at < now else []


def _without_template(proposal: Proposal) -> BookingPreview:
    plan = proposal.seats
    assert plan.short is not None
    if plan.short is Resource.PORTS:
        message = f"ports: a seat needs {plan.needed}, and a worker has {plan.allowed} for lablets (LABLET_PORT_RANGE)"
    else:
        message = "templates: no enabled template is large enough for a seat; add or enable one"
    start = proposal.occurrences[0].starts_at
    shortage = BookingShortage(resource=plan.short, at=start, needed=plan.needed, allowed=plan.allowed, message=message)
    return BookingPreview(
        confirmed=False,
        reason=message,
        shortages=(shortage,),
        definition=proposal.definition.id,
        aws_region=proposal.region,
        seats=proposal.request.seats,
        occurrences=planned(proposal.occurrences),
    )


def planned(occurrences: Sequence[BookingOccurrence]) -> tuple[PlannedOccurrence, ...]:
    """The times of classes, without what became of them."""
    return tuple(PlannedOccurrence.model_validate(dict(each)) for each in occurrences)


def minutes(length: timedelta) -> int:
    """The whole minutes of a length."""
    return round(length.total_seconds() / 60)


_LIMITS = {
    Resource.WORKERS: "MAX_WORKERS_PER_REGION",
    Resource.LICENSES: "LICENSE_POOL_SIZE",
    Resource.TEAM_SEATS: "the limit of the team",
}


def _shortage(each: Shortage) -> BookingShortage:
    name = each.resource.value.replace("_", " ")
    limit = _LIMITS[each.resource]
    message = f"{name}: {each.needed} would be needed at {format_instant(each.at)}, and {limit} is {each.allowed}"
    return BookingShortage(
        resource=each.resource, at=each.at, needed=each.needed, allowed=each.allowed, message=message
    )


def describe(shortages: Sequence[BookingShortage], free: Sequence[FreeTime]) -> str:
    """Why it does not fit, and when it would."""
    hint = _free_text(free) if free else f"; it would not fit at any time in the next {_DAYS} days"
    return "; ".join(each.message for each in shortages) + hint


def _free_text(free: Sequence[FreeTime]) -> str:
    times = ", ".join(_clock_time(each.start) for each in free)
    return f"; it would fit at {times} in {free[0].start.zone}"


def _clock_time(start: WallTime) -> str:
    which = "" if start.occurrence is None else f" (the {start.occurrence.value} of two)"
    return f"{start.at:%Y-%m-%d %H:%M}{which}"


def describe_refusal(admission: Admission, zone: str, warm_up: timedelta | None) -> ProblemError:
    """The problem of a change that does not fit. Without a warm-up, no other time is proposed."""
    shortages = [_shortage(each) for each in admission.shortages]
    free = [] if warm_up is None else free_times(admission, zone, warm_up)
    detail = "; ".join(each.message for each in shortages) + (_free_text(free) if free else "")
    current = {
        "shortages": [each.model_dump(mode="json") for each in shortages],
        "free_times": [each.model_dump(mode="json") for each in free],
    }
    return ProblemError(ProblemCode.BOOKING_REFUSED, detail, current=current)
