"""The dialog with the seat links of a class: create them, copy the list, revoke all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import CreatorUser
from lcm.control_plane.web.calendar.booking_page import BookingId, ClassNumber, find_class, read_booking
from lcm.control_plane.web.forms import form_key_only, read_form
from lcm.control_plane.web.rendering import render_fragment
from lcm.model.booking.seat_links import class_links_csv
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.model.booking.seat_links import ClassSeatLinks

router = APIRouter(include_in_schema=False)


@router.get("/bookings/{booking_id}/classes/{number}/seat-links")
async def class_links_dialog(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """What such links are for, and the buttons."""
    return await _render(request, user, booking_id, number)


@router.post("/bookings/{booking_id}/classes/{number}/seat-links")
async def create_class_links(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """Create the links; the dialog shows them once."""
    key = form_key_only(request, user.caller, await read_form(request))
    try:
        created = await get_services(request).class_links.create(user.caller, booking_id, number, key=key)
    except ProblemError as error:
        if error.code is not ProblemCode.NOT_POSSIBLE_NOW:
            raise
        return await _render(request, user, booking_id, number, problem=error.detail, status=409)
    return await _render(request, user, booking_id, number, created=created)


@router.post("/bookings/{booking_id}/classes/{number}/seat-links/revoke")
async def revoke_class_links(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """Revoke all links of the class; what they have opened ends."""
    await read_form(request)
    revoked = await get_services(request).class_links.revoke(user.caller, booking_id, number)
    return await _render(request, user, booking_id, number, revoked=revoked)


async def _render(
    request: Request,
    user: CreatorUser,
    booking_id: str,
    number: int,
    *,
    created: ClassSeatLinks | None = None,
    revoked: int | None = None,
    problem: str = "",
    status: int = 200,
) -> HTMLResponse:
    booking = await read_booking(get_services(request), user, booking_id)
    base = f"{request.url.scheme}://{request.url.netloc}"
    return render_fragment(
        "bookings/_seat_links.html",
        status=status,
        booking=booking,
        occurrence=find_class(booking, number),
        created=created,
        table="" if created is None else class_links_csv(created.items, base),
        revoked=revoked,
        problem=problem,
    )
