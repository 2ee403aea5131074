"""People who book classes: they send requests about bookings, and remember what was confirmed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.client.errors import ApiError, ClientError, ConflictError
from lcm.core import clock
from lcm.model.booking.record import OPEN_STATUSES, BookingStatus
from lcm.model.booking.requests import CreateBookingRequest, ExtendBookingRequest, MoveOccurrenceRequest
from lcm.model.booking.times import to_wall_time
from lcm.model.team import CreateTeamRequest, RequestedLimits, UpdateTeamRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.client import Client
    from lcm.model.booking.record import Booking
    from tests.simulation.invariants.during import Ledger

TEAM = "school"


class Instructors:
    """Each method is a user action of the script. A refusal is an answer, and is counted with what is short."""

    def __init__(self, client: Client, ledger: Ledger) -> None:
        self._client = client
        self._ledger = ledger

    async def prepare(self, team_seats: int | None) -> None:
        """The team that classes are for."""
        limits = RequestedLimits(max_seats=team_seats)
        with suppress(ConflictError):
            await self._client.teams.create(CreateTeamRequest(name=TEAM, limits=limits))

    async def book(self, **facts: Any) -> str:
        """Book a class that begins in so many minutes, as clocks in its zone show it."""
        start = to_wall_time(_in(facts["starts_in"]), facts["zone"])
        request = CreateBookingRequest(
            name=facts["name"],
            definition=facts["definition"],
            seats=facts["seats"],
            start=start.at,
            zone=start.zone,
            occurrence=start.occurrence,
            duration_minutes=facts["lasts"],
            repeat_weeks=facts["weeks"],
            team=TEAM if facts["for_team"] else None,
            aws_region=facts["region"],
            learners=tuple(f"learner-{number}@example.org" for number in range(facts["learners"])),
        )
        booking = await self._answer("booked", lambda: self._client.bookings.create(request))
        if isinstance(booking, str):
            return booking
        self._ledger.classes.confirmed.add(booking.id)
        first = booking.occurrences[0]
        return f"{booking.name}: warm-up {first.warm_up_at:%d %H:%M}, {first.starts_at:%H:%M} to {first.ends_at:%H:%M}"

    async def extend_class(self, which: float | str, minutes: int) -> str:
        """Let the present or next class of a booking end later."""
        return await self._change(which, "extended", lambda booking: self._extend(booking, minutes))

    async def _extend(self, booking: Booking, minutes: int) -> Booking:
        return await self._client.bookings.extend(booking.id, ExtendBookingRequest(minutes=minutes))

    async def move_class(self, which: float | str, starts_in: float) -> str:
        """Let the first class of a booking begin in so many minutes."""
        return await self._change(which, "moved", lambda booking: self._move(booking, starts_in))

    async def _move(self, booking: Booking, starts_in: float) -> Booking:
        start = to_wall_time(_in(starts_in), booking.zone)
        request = MoveOccurrenceRequest(start=start.at, occurrence=start.occurrence)
        number = next(each.number for each in booking.occurrences if each.is_open)
        return await self._client.bookings.move(booking.id, number, request)

    async def cancel_class(self, which: float | str, all_of_them: bool) -> str:
        """Cancel the next class of a booking, or all of them."""
        return await self._change(which, "cancelled", lambda booking: self._cancel(booking, all_of_them))

    async def _cancel(self, booking: Booking, all_of_them: bool) -> Booking:
        number = None if all_of_them else next(each.number for each in booking.occurrences if each.is_open)
        return await self._client.bookings.cancel(booking.id, number=number)

    async def limit_team(self, seats: int | None) -> str:
        """Change the number of seats that the team may have booked at once."""
        request = UpdateTeamRequest(limits=RequestedLimits(max_seats=seats))
        return f"the team may book {(await self._client.teams.edit(TEAM, request)).limits.max_seats} seats"

    async def cancel_all(self) -> None:
        """Cancel what has not begun yet, so that a run need not wait for it."""
        while True:
            try:
                for booking in await self._open():
                    for each in booking.occurrences:
                        if each.status is BookingStatus.CONFIRMED:
                            await self._client.bookings.cancel(booking.id, number=each.number)
                return
            except ClientError:
                await asyncio.sleep(1)

    async def _change(self, which: float | str, what: str, change: Callable[[Booking], Any]) -> str:
        bookings = await self._open()
        if not bookings:
            return "no such booking"
        named = [each for each in bookings if each.name == which]
        booking = named[0] if isinstance(which, str) else bookings[int(which * len(bookings))]
        answer = await self._answer(what, lambda: change(booking))
        return answer if isinstance(answer, str) else f"{answer.name} is {answer.status}, version {answer.version}"

    async def _answer(self, what: str, ask: Callable[[], Any]) -> Booking | str:
        try:
            booking: Booking = await ask()
        except ApiError as error:
            shortages = (error.current or {}).get("shortages", ())
            for each in shortages:
                self._ledger.covered[f"class not {what}: {each['resource']}"] += 1
            if not shortages:
                raise
            return f"refused: {error}"
        self._ledger.covered[f"class {what}"] += 1
        return booking

    async def _open(self) -> list[Booking]:
        found = [each async for each in self._client.bookings.list() if each.status in OPEN_STATUSES]
        return sorted(found, key=lambda each: each.id)


def _in(minutes: float) -> datetime:
    return (clock.now() + timedelta(minutes=minutes)).replace(second=0, microsecond=0)
