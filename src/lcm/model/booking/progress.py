"""What has to be done for a class now: its status, its workers and its seats. Pure; the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.booking.capacity import UNKNOWN_LAB_TIME, walk_in_end
from lcm.model.booking.failed_seats import failed_for_good, retry_at
from lcm.model.booking.licenses import takes_license
from lcm.model.booking.record import AtRisk, BookingStatus
from lcm.model.formatting import as_clause, count_of
from lcm.model.lablet.placement import check_adopted, check_capacity, check_health, check_team
from lcm.model.lablet.ports import DEFAULT_PORTS, PortRange
from lcm.model.lablet.scheduling.capacity import future_rejection_reason
from lcm.model.lablet.scheduling.template_choice import failed_launch, will_be_licensed
from lcm.model.lablet.seats import count_seats_in
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerOrigin, WorkerStatus
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lcm.model.booking.licenses import LicenseRoom
    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Capacity

RISK_BEFORE: Final = timedelta(minutes=15)
"""From then on everything that is not ready yet is a risk."""
_SEAT_LETTERS = 30


def due_status(occurrence: BookingOccurrence, now: datetime) -> BookingStatus:
    """What a class is by the clock. It never goes back: one that is over stays so, also if the clock is set back."""
    if not occurrence.is_open:
        return occurrence.status
    if now >= occurrence.ends_at:
        return BookingStatus.ENDED
    if now >= occurrence.starts_at or occurrence.status is BookingStatus.ACTIVE:
        return BookingStatus.ACTIVE
    is_warming = now >= occurrence.warm_up_at or occurrence.status is BookingStatus.WARMING
    return BookingStatus.WARMING if is_warming else BookingStatus.CONFIRMED


def is_over(occurrence: BookingOccurrence, earliest: datetime) -> bool:
    """Whether its labs may end: it is not open, or its end has passed whichever of the known clocks is right."""
    return not occurrence.is_open or earliest >= occurrence.ends_at


def next_step_at(occurrence: BookingOccurrence, now: datetime) -> datetime | None:
    """When its status changes next by the clock."""
    return min((at for at, _ in boundaries(occurrence, now)), default=None)


def boundaries(occurrence: BookingOccurrence, now: datetime) -> list[tuple[datetime, BookingStatus]]:
    """When its status changes by the clock from now on, and what it becomes."""
    steps = (
        (occurrence.warm_up_at, BookingStatus.WARMING),
        (occurrence.starts_at, BookingStatus.ACTIVE),
        (occurrence.ends_at, BookingStatus.ENDED),
    )
    return [(at, status) for at, status in steps if occurrence.is_open and at > now]


@dataclass(frozen=True, slots=True)
class WorkerChoice:
    """The workers for a class: those that serve it, those to book for it now, and how many have to be launched."""

    serving: tuple[Worker, ...]
    booked: tuple[Worker, ...]
    launch: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceLimits:
    """What limits the choice: workers of the region, and those that are booked or launched at once.

    `licenses`: what is left of the license pool, None if it has no limit; `launches_licensed`: whether a worker that is
    launched for a class that needs a license gets one.
    """

    max_workers: int
    at_once: int
    ports: PortRange = DEFAULT_PORTS
    licenses: LicenseRoom | None = None
    launches_licensed: bool = False


def choose_workers(
    booking: Booking,
    workers: Sequence[Worker],
    walk_ins: Mapping[str, Sequence[Lablet]],
    *,
    limits: ChoiceLimits,
    until: datetime,
    now: datetime,
) -> WorkerChoice:
    """Choose among the live workers of the region until the end of the class.

    A worker that runs is preferred to one that has to be started, and that to a launch. One on which lablets of
    others run, or on which a seat would not be placed, is not taken.
    """
    mine = [worker for worker in workers if worker.booking_id == booking.id]
    lost = {
        each.id: reason
        for each in mine
        if (reason := unable_reason(each, booking, now) or _replacement_reason(each, until))
    }
    problems = [f"{worker.name} {lost[worker.id]}" for worker in mine if worker.id in lost]
    serving = tuple(worker for worker in mine if worker.id not in lost)[: booking.workers]
    missing = booking.workers - len(serving)
    free = [
        worker
        for worker in workers
        if not worker.is_booked(now)
        and unable_reason(worker, booking, now) is None
        and all(walk_in_end(lablet, now) <= now for lablet in walk_ins.get(worker.id, ()))
    ]
    unsuitable = {each.id: reason for each in free if (reason := _unsuitable_reason(each, booking, limits, until))}
    suitable = [worker for worker in free if worker.id not in unsuitable]
    ordered = sorted(suitable, key=_preference(booking, limits))
    allowed, licenses = _within_licenses(ordered, booking, limits, min(missing, limits.at_once))
    taken = tuple(allowed)
    missing -= len(taken)
    if missing == 0 or len(taken) == limits.at_once:  # the next step chooses the others
        return WorkerChoice(serving, taken, 0, tuple(problems))
    failed = failed_launch(workers, booking.template, booking.aws_region, now)
    room = 0 if failed else max(0, limits.max_workers - len(workers))
    launch = min(missing, room, limits.at_once - len(taken), missing if licenses is None else licenses)
    if failed is not None:
        problems.append(failed)
    elif licenses is not None and missing > licenses and room > licenses:
        problems.append(f"{count_of(missing, 'worker')} would need a license, and LICENSE_POOL_SIZE leaves {licenses}")
    elif missing > room:
        excluded = [worker for worker in ordered if worker not in taken]  # by the license pool: nothing else does
        problems += [f"{each.name}: the license that it has or would take is needed elsewhere" for each in excluded]
        problems += [f"{worker.name}: {unsuitable[worker.id]}" for worker in free if worker.id in unsuitable]
        there = f"{booking.aws_region} has {count_of(len(workers), 'worker')}"
        problems.append(f"{there}, and MAX_WORKERS_PER_REGION is {limits.max_workers}")
    return WorkerChoice(serving, taken, launch, tuple(problems))


def unable_reason(worker: Worker, booking: Booking, now: datetime) -> str | None:
    """Why a worker cannot serve the booking, whatever is done with it now; None if it can."""
    if worker.template_name != booking.template or worker.aws_region != booking.aws_region:
        return f"is not a worker of {booking.template} in {booking.aws_region}"
    if worker.desired_status is DesiredStatus.TERMINATED or worker.status is WorkerStatus.TERMINATING:
        return "is being terminated"
    if worker.status is WorkerStatus.FAILED:
        return "has failed"
    if worker.hold is not None and worker.hold.active(now):
        return f"is on hold by {worker.hold.by}: {as_clause(worker.hold.reason)}"
    if worker.lacks_kvm:
        return "has no KVM"
    if check_team(worker, booking.team) is not None:
        return "is dedicated to another team"
    return check_adopted(worker)


def _replacement_reason(worker: Worker, until: datetime) -> str | None:
    """Why a booked worker that runs is replaced: no seat is on it, and none would be placed on it until the end."""
    if worker.status is not WorkerStatus.RUNNING or worker.allocation.lablets:
        return None
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if stuck and stuck.status is ConditionStatus.TRUE:
        return f"is stuck: {as_clause(stuck.message)}"
    health = check_health(worker, until)
    return None if health is None else f"cannot be used: {health}"


def _unsuitable_reason(worker: Worker, booking: Booking, limits: ChoiceLimits, until: datetime) -> str | None:
    """Why not to choose a worker that could serve: no seat would be placed on it, or it does not become ready."""
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    starts = worker.desired_status is DesiredStatus.RUNNING
    if starts and stuck is not None and stuck.status is ConditionStatus.TRUE:
        return as_clause(stuck.message)
    if booking.requirements.license and limits.launches_licensed and not _can_be_licensed(worker, booking):
        return "it has no license"
    if worker.capacity is not None and (fewer := fewer_seats(worker.capacity, booking, limits.ports)) is not None:
        return fewer
    health = check_health(worker, until) if worker.status is WorkerStatus.RUNNING else None
    return health or future_rejection_reason(
        worker,
        booking.requirements.model_copy(update={"license": False}),  # if a new one has none either, it is as good
        taken=Allocation(),
        aws_region=booking.aws_region,
        ports=limits.ports,
        team=booking.team,
    )


def _can_be_licensed(worker: Worker, booking: Booking) -> bool:
    return will_be_licensed(worker) or gets_token(worker, booking)


def fewer_seats(capacity: Capacity, booking: Booking, ports: PortRange) -> str | None:
    """That a worker holds fewer seats than were counted on when the class was booked; None if it does not."""
    seats = count_seats_in(capacity, booking.requirements, ports)
    if not seats and check_capacity(capacity, Allocation(), booking.requirements) is None:
        return None  # a seat needs nothing
    return f"it holds {seats} of {booking.seats_per_worker} seats" if seats < booking.seats_per_worker else None


def _within_licenses(
    ordered: Sequence[Worker], booking: Booking, limits: ChoiceLimits, count: int
) -> tuple[list[Worker], int | None]:
    """The first of these workers that the license pool allows, and how many that are launched may take a license.

    None: those that are launched take none, or there is no limit.
    """
    room = limits.licenses
    if room is None:
        return list(ordered[:count]), None
    needed = booking.requirements.license
    registered = sum(takes_license(worker) for worker in ordered)
    spare, free = room.spare, registered if needed else max(0, registered - room.reserved)
    taken: list[Worker] = []
    for worker in ordered:
        if len(taken) == count:
            break
        if takes_license(worker):
            if not free:
                continue
            free -= 1
        elif will_be_licensed(worker) or (needed and limits.launches_licensed):
            if not spare:
                continue
            spare -= 1
        taken.append(worker)
    return taken, spare if needed and limits.launches_licensed else None


def gets_token(worker: Worker, booking: Booking) -> bool:
    """Whether the worker is given the license token of new workers: one that was launched without is as good then."""
    without = not worker.has_license_token and worker.license_status is LicenseStatus.UNREGISTERED
    return booking.requirements.license and without and worker.origin is WorkerOrigin.SCALE_UP


def _preference(booking: Booking, limits: ChoiceLimits) -> Callable[[Worker], tuple[bool, int, int, datetime, str]]:
    """Workers of the team first: others may serve anybody. Admission counts on it, and so it does with licenses."""

    def key(worker: Worker) -> tuple[bool, int, int, datetime, str]:
        if booking.requirements.license:
            wrong = 0 if will_be_licensed(worker) else 1
        else:
            takes = 1 if takes_license(worker) else 2 if will_be_licensed(worker) else 0
            wrong = 0 if limits.licenses is None else takes
        starts = worker.desired_status is DesiredStatus.RUNNING
        readiness = 0 if worker.ready else 1 if starts else 2
        return (worker.team == "", wrong, readiness, worker.created_at, worker.id)

    return key


def seat_id(booking: Booking, number: int, seat: int) -> str:
    """The id of the lablet of a seat. It follows from the seat, so that no seat gets two."""
    return f"l-{booking.id.rpartition('-')[2]}-{number}-{seat}"


def seat_name(booking: Booking, number: int, seat: int) -> str:
    """The name of the lablet of a seat."""
    return f"{booking.name[:_SEAT_LETTERS]}-{booking.id.rpartition('-')[2]}-{number}-{seat}"


def assess_risk(
    booking: Booking,
    occurrence: BookingOccurrence,
    choice: WorkerChoice,
    seats: Sequence[Lablet],
    now: datetime,
    unreadable: Sequence[int] = (),
) -> AtRisk | None:
    """What is missing for a class that is under way, or None. `unreadable` are seats whose record cannot be read."""
    assigned = len(choice.serving) + len(choice.booked) + choice.launch
    missing: list[str] = []
    if assigned < booking.workers and choice.problems:
        missing.append(f"{assigned} of {booking.workers} workers: {'; '.join(choice.problems)}")
    unlicensed = [worker for worker in choice.serving if not will_be_licensed(worker)]
    if booking.requirements.license and unlicensed:
        missing.append(missing_licenses(len(unlicensed), booking.workers))
    if now >= occurrence.starts_at - RISK_BEFORE and not missing:
        ready = sum(worker.ready for worker in choice.serving)
        if ready < booking.workers:
            missing.append(f"{ready} of {booking.workers} workers are ready")
        missing += _missing_seats(booking, seats, len(unreadable), now)
    if failed := failed_for_good(seats):
        missing.append(failed)
    if unreadable:
        named = ", ".join(map(str, unreadable))
        missing.append(f"the records of these seats cannot be read: {named}; restore them from a backup")
    return risk(occurrence, "; ".join(missing), now)


def missing_licenses(count: int, workers: int) -> str:
    """What to do about workers of a class that needs licenses and has none for them."""
    return f"{count} of {workers} workers have no license: set SCALE_UP_LICENSE_TOKEN, or give them a license token"


def _missing_seats(booking: Booking, seats: Sequence[Lablet], unreadable: int, now: datetime) -> list[str]:
    """A seat that somebody has ended or resets, or whose time is over, is not missing."""
    going_on = [each for each in seats if not _is_ending(each) and not _is_reset(each, now)]
    running = sum(each.status is LabletStatus.RUNNING for each in going_on)
    expected = booking.seats - unreadable - len(seats) + len(going_on)
    if running >= expected:
        return []
    retried = sum(retry_at(each) is not None for each in going_on)
    anew = f"; {retried} failed and will be made anew" if retried else ""
    return [f"{running} of {count_of(expected, 'seat')} are running{anew}"]


def _is_ending(seat: Lablet) -> bool:
    end = seat.status if seat.status in FINAL_LABLET_STATUSES else seat.ending
    return not seat.wanted or (end is not None and end is not LabletStatus.FAILED)


def _is_reset(seat: Lablet, now: datetime) -> bool:
    """Whether its lab has run and is made anew, which takes no longer than usual so far."""
    begun = seat.status is LabletStatus.INSTANTIATING and seat.running_since is not None
    return begun and now - seat.status_since < UNKNOWN_LAB_TIME


def risk(occurrence: BookingOccurrence, missing: str, now: datetime) -> AtRisk | None:
    """The condition with this text, since it began; None if nothing is missing."""
    if not missing:
        return None
    since = now if occurrence.at_risk is None else occurrence.at_risk.since
    return AtRisk(since=since, missing=missing[:1000])
