"""The seats of a class: a lablet for each, made when the class warms up, and ended with it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lcm.control_plane.lablets import lifecycle
from lcm.control_plane.lablets.definitions import read_definition_summary
from lcm.control_plane.lablets.lifecycle import LabletOwner
from lcm.control_plane.lablets.service import free_name, save_and_release
from lcm.control_plane.records.kinds import LABLETS, TEAMS
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.teams.choice import named_owner
from lcm.control_plane.workers.lifecycle import updated_record
from lcm.model.booking.failed_seats import RETRY_WAITS, can_be_made_anew, retry_at
from lcm.model.booking.progress import seat_id, seat_name
from lcm.model.formatting import as_clause
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.team import Team

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Leader, Transaction, UnitOfWork
    from lcm.control_plane.store.port import Store
    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.lablet.record import LabletDefinitionSummary

_MAX_SEATS_AT_ONCE = 100
_OVER = "its class is over"


async def keep_seats(
    tx: Transaction, booking: Booking, occurrence: BookingOccurrence
) -> tuple[list[Lablet], Sequence[int]]:
    """Make the lablets that do not exist yet or have failed, and let those that exist end with the class.

    Returns them, and the seats whose record cannot be read: they exist, and stop no other.
    """
    ids = [seat_id(booking, occurrence.number, seat) for seat in range(1, booking.seats + 1)]
    unreadable: set[str] = set()
    existing = await tx.lablets(ids, unreadable)
    seats, made = [], 0
    complete = len(existing) + len(unreadable) == len(ids)
    definition = None if complete else await read_definition_summary(tx.store, booking.definition)
    team = None if complete else await _team(tx.store, booking)
    for seat, lablet_id in enumerate(ids, 1):
        lablet = existing.get(lablet_id)
        if lablet is not None:
            retry = made < _MAX_SEATS_AT_ONCE and _is_due(lablet, tx.now)
            made += retry
            seats.append(await _retried(tx, lablet, occurrence) if retry else _with_end(tx, lablet, occurrence))
        elif lablet_id not in unreadable and made < _MAX_SEATS_AT_ONCE and definition is not None:
            made += 1
            lablet = _new_seat(tx, booking, occurrence, seat, definition, team)
            seats.append(tx.save_lablet(lablet, "created", f"seat {seat} of booking {booking.name}"))
    return seats, [seat for seat, lablet_id in enumerate(ids, 1) if lablet_id in unreadable]


def _is_due(lablet: Lablet, now: datetime) -> bool:
    at = retry_at(lablet)
    return at is not None and at <= now


async def _retried(tx: Transaction, lablet: Lablet, occurrence: BookingOccurrence) -> Lablet:
    """Make a failed seat anew. Its reservation was released; its worker is booked, so nobody else has its place."""
    await tx.depend_on_calendar()  # a cancellation changes it: no seat comes back after that
    retries = lablet.retries + 1
    after = lifecycle.make_anew(lablet, tx.now, occurrence.ends_at, retries=retries)
    after = after.model_copy(update={"name": await free_name(tx.store, lablet)})
    reason = (
        f"try {retries + 1} of {len(RETRY_WAITS) + 1}, as it failed: {as_clause(lablet.ending_reason or 'unknown')}"
    )
    return tx.save_lablet(after, "made_anew", reason, retries=retries)


async def extend_seats(tx: Transaction, booking: Booking, occurrence: BookingOccurrence) -> None:
    """Let the lablets that exist end with the class, in the commit that moves its end.

    The scheduler does so too, but it may be away: labs whose old end passes meanwhile are deleted.
    """
    ids = [seat_id(booking, occurrence.number, seat) for seat in range(1, booking.seats + 1)]
    for lablet in (await tx.lablets(ids, set())).values():
        _with_end(tx, lablet, occurrence)


def _with_end(tx: Transaction, lablet: Lablet, occurrence: BookingOccurrence) -> Lablet:
    """A seat lasts until the class ends, also if the class was extended."""
    goes_on = lablet.wanted and lablet.ending is None and lablet.status not in FINAL_LABLET_STATUSES
    if not (goes_on or can_be_made_anew(lablet)) or lablet.ends_at is None or lablet.ends_at >= occurrence.ends_at:
        return lablet
    after = updated_record(lablet, tx.now, bump_generation=True, ends_at=occurrence.ends_at)
    return tx.save_lablet(after, "extended", "its class ends later")


def _new_seat(
    tx: Transaction,
    booking: Booking,
    occurrence: BookingOccurrence,
    seat: int,
    definition: LabletDefinitionSummary,
    team: Team | None,
) -> Lablet:
    learner = booking.learners[seat - 1] if seat <= len(booking.learners) else ""
    owner = named_owner(team, learner) if learner else LabletOwner("", booking.created_by)
    return Lablet(
        id=seat_id(booking, occurrence.number, seat),
        name=seat_name(booking, occurrence.number, seat),
        owner=owner.identity,
        owner_name=owner.name,
        team=booking.team,
        definition=definition.reference,
        definition_id="" if definition.id == definition.reference else definition.id,
        requirements=booking.requirements,
        aws_region=booking.aws_region,
        status_since=tx.now,
        starts_at=occurrence.starts_at,
        ends_at=occurrence.ends_at,
        booking_id=booking.id,
        booking_occurrence=occurrence.number,
        created_at=tx.now,
        updated_at=tx.now,
    )


async def _team(store: Store, booking: Booking) -> Team | None:
    """The team of the class. If it cannot be read, learners are names alone."""
    stored = await store.get(TEAMS, booking.team) if booking.team else None
    return None if stored is None else read_or_skip(stored, Team, "team")


async def end_seats(unit_of_work: UnitOfWork, leader: Leader, booking: Booking, occurrence: BookingOccurrence) -> None:
    """Request the end of lablets that go on after the class; each in its own commit, as each changes its worker.

    Those that have failed are not made anew from now on.
    """
    for lablet in await _seats(unit_of_work.store, booking, occurrence):
        if lablet.wanted and (lablet.status not in FINAL_LABLET_STATUSES or can_be_made_anew(lablet)):
            await unit_of_work.run_fenced(leader, partial(_end_seat, lablet.id))


async def _end_seat(lablet_id: str, tx: Transaction) -> Lablet:
    lablet = await tx.lablet(lablet_id)
    after = lifecycle.request_termination(lablet, tx.now, _OVER)
    return await save_and_release(tx, lablet, after, "terminate", _OVER)


async def seats_have_ended(store: Store, booking: Booking, occurrence: BookingOccurrence) -> bool:
    """Whether no lab of the class is left, as far as its seats can be read: one that cannot keeps no worker."""
    return all(each.status in FINAL_LABLET_STATUSES for each in await _seats(store, booking, occurrence))


async def _seats(store: Store, booking: Booking, occurrence: BookingOccurrence) -> list[Lablet]:
    ids = [seat_id(booking, occurrence.number, seat) for seat in range(1, booking.seats + 1)]
    found = [read_or_skip(stored, Lablet, "lablet") for stored in (await store.get_many(LABLETS, ids)).values()]
    return [lablet for lablet in found if lablet is not None]
