"""Bookings on behalf of people: preview, create, extend, move, cancel, and reads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from lcm.control_plane.bookings.access import (
    booking_not_found,
    bookings_in_scope,
    require_changeable,
    require_visible,
    shown_booking,
    shown_change,
    shown_preview,
)
from lcm.control_plane.bookings.changes import cancel, extended, moved, preview_change, refused_change
from lcm.control_plane.bookings.proposals import assess_request
from lcm.control_plane.bookings.seats import extend_seats
from lcm.control_plane.bookings.workers import extend_workers
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import BOOKINGS
from lcm.control_plane.teams.choice import add_to_team
from lcm.core import clock
from lcm.model.booking.record import UNDER_WAY, Booking
from lcm.model.booking.unreadable import read_known
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.teams import TeamDirectory
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, Sort, StoredDocument, Where
    from lcm.model.booking.requests import (
        BookingChangePreview,
        BookingPreview,
        CancelBookingRequest,
        CreateBookingRequest,
        ExtendBookingRequest,
        MoveOccurrenceRequest,
    )


class BookingService:
    """Reads and changes bookings on behalf of people. Changes return the booking's JSON.

    Roles of the whole fleet see all bookings, instructors those of their teams: others do not exist for them.
    """

    def __init__(self, context: ControlPlaneContext, teams: TeamDirectory) -> None:
        self._context = context
        self._teams = teams
        self._turn = asyncio.Lock()  # only the first of many admissions at once could commit: the others would rerun

    async def page(self, caller: Caller, where: Where, sort: Sort, after: str | None, limit: int) -> DocumentPage:
        """A page of the bookings that the caller may see. Of one that cannot be read it has what is known."""
        scope = caller.scope
        where = replace(where, either=bookings_in_scope(scope))
        page = await self._context.store.find(BOOKINGS, where, sort=sort, after=after, limit=limit)
        readable = [_readable(each) for each in page.items]
        return replace(page, items=[replace(each, body=shown_booking(scope, each.body)) for each in readable])

    async def get(self, caller: Caller, booking_id: str) -> StoredDocument:
        """One booking that the caller may see. If it cannot be read, what is known of it."""
        stored = await self._context.store.get(BOOKINGS, booking_id)
        if stored is None:
            raise booking_not_found(booking_id)
        readable = _readable(stored)
        if caller.scope.everything:
            return readable
        require_visible(caller, Booking.model_validate_json(readable.body))
        return replace(readable, body=shown_booking(caller.scope, readable.body))

    async def preview(self, caller: Caller, request: CreateBookingRequest) -> BookingPreview:
        """Whether a booking would be confirmed now. Nothing is stored."""
        teams = await self._teams.teams()
        read = partial(assess_request, self._context, caller, teams, request, clock.now())
        assessment = await self._context.reads.run_alone(read)  # it reads all workers
        return shown_preview(caller.scope, assessment.preview)

    async def create(self, caller: Caller, request: CreateBookingRequest, key: IdempotencyKey | None = None) -> bytes:
        """Confirm a booking, or refuse it and say what is short and when it would fit."""
        booking_id = clock.new_id("bk")
        teams = await self._teams.teams()

        async def attempt(tx: Transaction) -> Booking:
            await tx.take_calendar()
            assessment = await assess_request(self._context, caller, teams, request, tx.now)
            if not assessment.preview.confirmed:
                current = shown_preview(caller.scope, assessment.preview).model_dump(mode="json")
                raise ProblemError(ProblemCode.BOOKING_REFUSED, assessment.preview.reason, current=current)
            await add_to_team(tx, assessment.proposal.team)
            tx.require_unchanged(assessment.depends_on)
            booking = assessment.proposal.booking(booking_id, caller.name, tx.now)
            return tx.save_booking(booking, "booking_created", name=booking.name)

        return await self._run(caller, key, attempt)

    async def preview_extension(
        self, caller: Caller, booking_id: str, request: ExtendBookingRequest
    ) -> BookingChangePreview:
        """Whether a class could be extended now. Nothing is stored."""

        async def change(tx: Transaction, booking: Booking) -> Booking:
            return await extended(self._context, tx, booking, request)

        return await self._preview_change(caller, booking_id, change)

    async def preview_move(
        self, caller: Caller, booking_id: str, number: int, request: MoveOccurrenceRequest
    ) -> BookingChangePreview:
        """Whether a class could be moved now. Nothing is stored."""

        async def change(tx: Transaction, booking: Booking) -> Booking:
            return await moved(self._context, tx, booking, number, request)

        return await self._preview_change(caller, booking_id, change)

    async def _preview_change(
        self, caller: Caller, booking_id: str, change: Callable[[Transaction, Booking], Awaitable[Booking]]
    ) -> BookingChangePreview:
        """The answer of the change itself, which is not saved."""

        async def attempt(tx: Transaction) -> BookingChangePreview:
            booking = await require_changeable(tx, caller, booking_id)
            after = await change(tx, booking)
            return shown_change(caller.scope, preview_change(booking, after, tx.now))

        try:
            return await self._context.reads.run_alone(partial(self._context.unit_of_work.run, caller.actor, attempt))
        except ProblemError as problem:
            if problem.code is not ProblemCode.BOOKING_REFUSED:
                raise
            return refused_change(problem)

    async def cancel(
        self,
        caller: Caller,
        booking_id: str,
        request: CancelBookingRequest,
        *,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Cancel all classes that are not over, or one of them. A repeated request changes nothing."""

        async def attempt(tx: Transaction) -> Booking:
            booking = await require_changeable(tx, caller, booking_id, if_match)
            after = cancel(booking, request.number, tx.now)
            if after == booking:
                return booking
            await tx.take_calendar()
            return tx.save_booking(after, "booking_cancelled", request.reason or "", number=request.number)

        return await self._run(caller, key, attempt)

    async def extend(
        self,
        caller: Caller,
        booking_id: str,
        request: ExtendBookingRequest,
        *,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Let a class end later, if the workers are free until then."""

        async def attempt(tx: Transaction) -> Booking:
            await tx.take_calendar()
            booking = await require_changeable(tx, caller, booking_id, if_match)
            after = await extended(self._context, tx, booking, request)
            for occurrence in after.occurrences:
                if occurrence.status in UNDER_WAY:
                    await extend_workers(tx, after, occurrence)
                    await extend_seats(tx, after, occurrence)
            return tx.save_booking(after, "booking_extended", minutes=request.minutes)

        return await self._run(caller, key, attempt)

    async def move(
        self,
        caller: Caller,
        booking_id: str,
        number: int,
        request: MoveOccurrenceRequest,
        *,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Move one class to another time, if it fits there."""

        async def attempt(tx: Transaction) -> Booking:
            await tx.take_calendar()
            booking = await require_changeable(tx, caller, booking_id, if_match)
            after = await moved(self._context, tx, booking, number, request)
            return tx.save_booking(after, "booking_moved", number=number, start=request.start.isoformat())

        return await self._run(caller, key, attempt)

    async def _run(
        self, caller: Caller, key: IdempotencyKey | None, attempt: Callable[[Transaction], Awaitable[Booking]]
    ) -> bytes:
        async with self._turn:
            return shown_booking(
                caller.scope, await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)
            )


def _readable(stored: StoredDocument) -> StoredDocument:
    """The record as it is stored; what is known of it if nobody could read it."""
    try:
        Booking.model_validate_json(stored.body)
    except ValidationError:
        return replace(stored, body=read_known(stored.body, stored.id).model_dump_json().encode())
    return stored
