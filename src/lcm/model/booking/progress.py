"""What has to be done for a class now: its status, its workers and its seats. Pure; the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.booking.capacity import walk_in_end
from lcm.model.booking.record import AtRisk, BookingStatus
from lcm.model.formatting import as_clause, count_of
from lcm.model.lablet.placement import check_adopted
from lcm.model.lablet.scheduling.template_choice import FAILED_LAUNCH_WINDOW
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

RISK_BEFORE: Final = timedelta(minutes=15)
"""From then on everything that is not ready yet is a risk."""
_SEAT_LETTERS = 30


def due_status(occurrence: BookingOccurrence, now: datetime) -> BookingStatus:
    """What a class is by the clock. One that is over or cancelled stays so."""
    if not occurrence.is_open:
        return occurrence.status
    if now >= occurrence.ends_at:
        return BookingStatus.ENDED
    if now >= occurrence.starts_at:
        return BookingStatus.ACTIVE
    return BookingStatus.WARMING if now >= occurrence.warm_up_at else BookingStatus.CONFIRMED


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


def choose_workers(
    booking: Booking,
    workers: Sequence[Worker],
    walk_ins: Mapping[str, Sequence[Lablet]],
    *,
    max_workers: int,
    limit: int,
    now: datetime,
) -> WorkerChoice:
    """Choose among the live workers of the region; at most `limit` are booked or launched at once.

    A worker that runs is preferred to one that has to be started, and that to a launch. One on which lablets of
    others run is not taken.
    """
    mine = [worker for worker in workers if worker.booking_id == booking.id]
    problems = [f"{worker.name} {reason}" for worker in mine if (reason := unable_reason(worker, booking, now))]
    serving = tuple(worker for worker in mine if unable_reason(worker, booking, now) is None)[: booking.workers]
    missing = booking.workers - len(serving)
    free = [
        worker
        for worker in workers
        if not worker.is_booked(now)
        and unable_reason(worker, booking, now) is None
        and all(walk_in_end(lablet, now) <= now for lablet in walk_ins.get(worker.id, ()))
    ]
    taken = tuple(sorted(free, key=_readiness))[: min(missing, limit)]
    missing -= len(taken)
    if missing == 0:
        return WorkerChoice(serving, taken, 0, tuple(problems))
    failed = _failed_launch(booking, workers, now)
    room = 0 if failed else max(0, max_workers - len(workers))
    launch = min(missing, room, limit - len(taken))
    if failed is not None:
        problems.append(failed)
    elif missing > room:
        problems.append(
            f"{booking.aws_region} has {count_of(len(workers), 'worker')}, and MAX_WORKERS_PER_REGION is {max_workers}"
        )
    return WorkerChoice(serving, taken, launch, tuple(problems))


def unable_reason(worker: Worker, booking: Booking, now: datetime) -> str | None:
    """Why a worker cannot serve the booking, whatever is done with it now; None if it can."""
    if worker.template_name != booking.template or worker.aws_region != booking.aws_region:
        return f"is not a worker of {booking.template} in {booking.aws_region}"
    if worker.desired_status is DesiredStatus.TERMINATED:
        return "is being terminated"
    if worker.status is WorkerStatus.FAILED:
        return "has failed"
    if worker.hold is not None and worker.hold.active(now):
        return f"is on hold by {worker.hold.by}: {as_clause(worker.hold.reason)}"
    if worker.lacks_kvm:
        return "has no KVM"
    return check_adopted(worker)


def _readiness(worker: Worker) -> tuple[int, datetime, str]:
    starts = worker.desired_status is DesiredStatus.RUNNING
    return (0 if worker.ready else 1 if starts else 2, worker.created_at, worker.id)


def _failed_launch(booking: Booking, workers: Sequence[Worker], now: datetime) -> str | None:
    """A launch that failed a moment ago would fail again: a person has to look."""
    for worker in workers:
        failed = worker.status is WorkerStatus.FAILED and now - worker.status_since < FAILED_LAUNCH_WINDOW
        if failed and worker.template_name == booking.template and worker.aws_region == booking.aws_region:
            return f"{worker.name} of template {booking.template} failed; see its history"
    return None


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
) -> AtRisk | None:
    """What is missing for a class that is under way, or None."""
    assigned = len(choice.serving) + len(choice.booked) + choice.launch
    missing: list[str] = []
    if assigned < booking.workers and choice.problems:
        missing.append(f"{assigned} of {booking.workers} workers: {'; '.join(choice.problems)}")
    if now >= occurrence.starts_at - RISK_BEFORE and not missing:
        ready = sum(worker.ready for worker in choice.serving)
        if ready < booking.workers:
            missing.append(f"{ready} of {booking.workers} workers are ready")
        missing += _missing_seats(booking, seats)
    return risk(occurrence, "; ".join(missing), now)


def _missing_seats(booking: Booking, seats: Sequence[Lablet]) -> list[str]:
    """A seat whose lablet somebody has ended is not missing."""
    ended = sum(each.status in FINAL_LABLET_STATUSES and each.status is not LabletStatus.FAILED for each in seats)
    running = sum(each.status is LabletStatus.RUNNING for each in seats)
    expected = booking.seats - ended
    return [f"{running} of {count_of(expected, 'seat')} are running"] if running < expected else []


def risk(occurrence: BookingOccurrence, missing: str, now: datetime) -> AtRisk | None:
    """The condition with this text, since it began; None if nothing is missing."""
    if not missing:
        return None
    since = now if occurrence.at_risk is None else occurrence.at_risk.since
    return AtRisk(since=since, missing=missing[:1000])
