"""What a caller sees of bookings, and may change. What they may not see looks as if it did not exist."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import ForbiddenError
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.teams.visibility import manages
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.auth.roles import Caller, Scope
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import FieldValue
    from lcm.model.booking.record import Booking
    from lcm.model.booking.requests import BookingChangePreview, BookingPreview

_ASK_AN_OPERATOR = "not everything is ready; operators see what is missing"


def bookings_in_scope(scope: Scope) -> Mapping[str, Sequence[FieldValue]]:
    """The condition `either` for bookings: of the teams of an instructor. Empty for all bookings."""
    return {} if scope.everything else {"team": sorted(scope.teams)}


def booking_not_found(booking_id: str) -> ProblemError:
    """The error for a booking that does not exist, or that the caller may not see."""
    return ProblemError(ProblemCode.NOT_FOUND, f"there is no booking {booking_id}")


def require_visible(caller: Caller, booking: Booking) -> None:
    """Raise as for an unknown booking unless the caller may see it."""
    if not caller.scope.sees(booking.team, booking.owner):
        raise booking_not_found(booking.id)


async def require_changeable(tx: Transaction, caller: Caller, booking_id: str, if_match: int | None = None) -> Booking:
    """A booking that the caller may change, at this version. The version of one they may not see is not compared."""
    booking = await tx.booking(booking_id)
    require_visible(caller, booking)
    if not manages(caller, booking.team):
        raise ForbiddenError(
            f"This needs the role operator, or instructor in the team of {booking.name}; {caller.name} has the role"
            f" {caller.role_text}."
        )
    return booking if if_match is None else await tx.booking(booking_id, if_match=if_match)


def shown_booking(scope: Scope, body: bytes) -> bytes:
    """A stored booking as the caller may see it: what workers cost, and which ones are missing, is about the fleet."""
    if scope.everything:
        return body
    booking = json.loads(body)
    booking.pop("cost_per_hour_usd", None)
    for each in booking["occurrences"]:
        if each.get("at_risk"):
            each["at_risk"]["missing"] = _ASK_AN_OPERATOR
    return json.dumps(booking, separators=(",", ":"), ensure_ascii=False).encode()


def shown_preview(scope: Scope, preview: BookingPreview) -> BookingPreview:
    """A preview as the caller may see it: not what workers cost."""
    if scope.everything:
        return preview
    return preview.model_copy(update={"cost_per_hour_usd": 0, "cost_usd": 0, "cost": ""})


def shown_change(scope: Scope, preview: BookingChangePreview) -> BookingChangePreview:
    """A preview of a change as the caller may see it: not what workers cost."""
    return preview if scope.everything else preview.model_copy(update={"cost": ""})
