"""Seat links for all seats of a class at once: created together, shown once, revoked together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

from lcm.control_plane.auth.seats.links import MAX_LINK_AGE
from lcm.control_plane.bookings.access import require_changeable
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import LABLETS
from lcm.control_plane.records.readable import read_or_skip
from lcm.core import clock
from lcm.model.booking.failed_seats import can_be_made_anew
from lcm.model.booking.progress import seat_id
from lcm.model.booking.seat_links import ClassSeatLink, ClassSeatLinks, SeatWithoutLink
from lcm.model.formatting import format_instant
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.seats.links import SeatLinkService
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.booking.record import Booking, BookingOccurrence


class ClassLinkService:
    """Creates and revokes the seat links of classes, for people who may change the booking."""

    def __init__(self, context: ControlPlaneContext, links: SeatLinkService) -> None:
        self._context = context
        self._links = links

    async def create(
        self,
        caller: Caller,
        booking_id: str,
        number: int,
        expires_at: datetime | None = None,
        key: IdempotencyKey | None = None,
    ) -> ClassSeatLinks:
        """A link for each seat with a lab, but for those of people who sign in: they find theirs at /my.

        A repetition replaces the links of the first try, whose answer was lost.
        """
        booking, occurrence = await self._class(caller, booking_id, number)
        now = clock.now()
        if not occurrence.is_open or occurrence.ends_at <= now:
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"class {number} is over or cancelled")
        seats, unreadable = await self._seats(booking, number)
        if not unreadable and not any(seats.values()):
            warm_up = format_instant(occurrence.warm_up_at)
            detail = f"class {number} has no labs yet; they are made from {warm_up} on, create its links then"
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
        reasons = {seat: _why_not(booking, lablet) for seat, lablet in seats.items()}
        reasons |= dict.fromkeys(unreadable, "its record cannot be read; restore it from a backup")
        until = expires_at or min(occurrence.ends_at, now + MAX_LINK_AGE)
        chosen = {seat: lablet for seat, lablet in seats.items() if lablet is not None and not reasons[seat]}
        made = await self._links.create_many(caller, list(chosen.values()), until, key)
        items, left_out = [], []
        for seat in seats:
            learner, lablet = _learner(booking, seat), chosen.get(seat)
            new = None if lablet is None else made.get(lablet.id)
            if lablet is None or new is None:
                reason = reasons[seat] or "its lab is ending, or has as many links as it may have"
                left_out.append(SeatWithoutLink(seat=seat, learner=learner, reason=reason))
                continue
            link, path = new
            items.append(
                ClassSeatLink(
                    seat=seat,
                    learner=learner,
                    lablet_id=lablet.id,
                    lablet_name=lablet.name,
                    link_id=link.id,
                    path=SecretStr(path.reveal()),
                )
            )
        return ClassSeatLinks(items=tuple(items), left_out=tuple(left_out))

    async def revoke(self, caller: Caller, booking_id: str, number: int) -> int:
        """Revoke all links of the seats of a class, also those that were created individually; returns their number."""
        booking, _ = await self._class(caller, booking_id, number)
        seats, _ = await self._seats(booking, number)
        mine = [each.id for each in seats.values() if each is not None and each.team == booking.team]
        return await self._links.revoke_many(caller, mine)

    async def _class(self, caller: Caller, booking_id: str, number: int) -> tuple[Booking, BookingOccurrence]:
        async def attempt(tx: Transaction) -> Booking:
            return await require_changeable(tx, caller, booking_id)

        booking = await self._context.unit_of_work.run(caller.actor, attempt)
        found = booking.occurrence(number)
        if found is None:
            detail = f"number: booking {booking.name} has the classes 1 to {len(booking.occurrences)}, not {number}"
            raise ProblemError(ProblemCode.NOT_FOUND, detail)
        return booking, found

    async def _seats(self, booking: Booking, number: int) -> tuple[dict[int, Lablet | None], list[int]]:
        """The lablets of the seats, and the seats whose record cannot be read."""
        ids = {seat: seat_id(booking, number, seat) for seat in range(1, booking.seats + 1)}
        stored = await self._context.store.get_many(LABLETS, list(ids.values()))
        found = {key: read_or_skip(each, Lablet, "lablet") for key, each in stored.items()}
        unreadable = [seat for seat, key in ids.items() if key in found and found[key] is None]
        return {seat: found.get(key) for seat, key in ids.items()}, unreadable


def _why_not(booking: Booking, lablet: Lablet | None) -> str:
    """Why a seat gets no link; empty if it gets one."""
    if lablet is None or lablet.team != booking.team:  # an admin may have given it to another team
        return "it has no lab"
    if lablet.owner:
        return f"{lablet.owner_name} signs in and finds the lab at /my"
    if can_be_made_anew(lablet):
        return "its lab has failed; create its link when its lab runs again"
    if not lablet.wanted or lablet.status in FINAL_LABLET_STATUSES:
        return "its lab has ended"
    return ""


def _learner(booking: Booking, seat: int) -> str:
    return booking.learners[seat - 1] if seat <= len(booking.learners) else ""
