"""Dialogs that extend, move and cancel classes. What does not fit is said beside its field, with times that do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import CreatorUser
from lcm.control_plane.web.calendar.booking_page import BookingId, ClassNumber, find_class, read_booking
from lcm.control_plane.web.forms import (
    FormState,
    field_problems,
    form_field,
    form_key,
    form_reason,
    form_version,
    parse_number,
    problem_by_field,
    read_form,
    require_typed,
)
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.booking.record import UNDER_WAY, Booking, BookingOccurrence
from lcm.model.booking.requests import CancelBookingRequest, ExtendBookingRequest, FreeTime, MoveOccurrenceRequest
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.calendar.zones import WallTime

router = APIRouter(include_in_schema=False)
_EXTENSIONS: Final = (15, 30, 60, 120)
_MOVE_FIELDS: Final = ("start", "occurrence")
_EXTENSION_FIELDS: Final = ("minutes",)
_START_HINT: Final = "is not a date and a time; choose both, such as 2030-01-31T09:00"


@router.get("/bookings/{booking_id}/classes/{number}/confirm-extend")
async def confirm_extension(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """By how much a class can end later."""
    booking = await read_booking(get_services(request), user, booking_id)
    return _render_extension(booking, find_class(booking, number), FormState({"minutes": str(_EXTENSIONS[1])}))


@router.post("/bookings/{booking_id}/classes/{number}/extend")
async def extend_class(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """Let a class end later, and all of its labs with it."""
    fields, services = await read_form(request), get_services(request)
    form = FormState({name: form_field(fields, name) for name in _EXTENSION_FIELDS})
    try:
        wanted = ExtendBookingRequest.model_validate({"minutes": parse_number(form.value("minutes")), "number": number})
        key, version = form_key(request, user.caller, fields), form_version(fields)
        body = await services.bookings.extend(user.caller, booking_id, wanted, if_match=version, key=key)
    except (ValidationError, ProblemError) as error:
        booking = await read_booking(services, user, booking_id)
        shown = FormState(form.values, _problems(error, _EXTENSION_FIELDS, "minutes"))
        return _render_extension(booking, find_class(booking, number), shown, _status(error))
    return _done(f"{Booking.model_validate_json(body).name}: the class ends later")


@router.get("/bookings/{booking_id}/classes/{number}/confirm-move")
async def confirm_move(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """To which time a class is moved."""
    booking = await read_booking(get_services(request), user, booking_id)
    occurrence = find_class(booking, number)
    start = occurrence.start
    form = FormState({"start": start.at.isoformat(timespec="minutes"), "occurrence": start.occurrence or ""})
    return _render_move(booking, occurrence, form)


@router.post("/bookings/{booking_id}/classes/{number}/move")
async def move_class(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """Move a class to another time, if it fits there."""
    fields, services = await read_form(request), get_services(request)
    form = FormState({name: form_field(fields, name) for name in _MOVE_FIELDS})
    try:
        given = {name: value for name, value in form.values.items() if value}
        wanted = MoveOccurrenceRequest.model_validate(given)
        key, version = form_key(request, user.caller, fields), form_version(fields)
        body = await services.bookings.move(user.caller, booking_id, number, wanted, if_match=version, key=key)
    except (ValidationError, ProblemError) as error:
        booking = await read_booking(services, user, booking_id)
        shown = FormState(form.values, _problems(error, _MOVE_FIELDS, "start"))
        return _render_move(booking, find_class(booking, number), shown, _free_times(error), _status(error))
    return _done(f"{Booking.model_validate_json(body).name}: the class was moved")


@router.get("/bookings/{booking_id}/confirm-cancel")
async def confirm_cancel(request: Request, user: CreatorUser, booking_id: BookingId) -> HTMLResponse:
    """What is lost if all classes that are not over are cancelled."""
    booking = await read_booking(get_services(request), user, booking_id)
    return render_fragment("bookings/_confirm_cancel.html", booking=booking, occurrence=None, **_lost(booking, None))


@router.get("/bookings/{booking_id}/classes/{number}/confirm-cancel")
async def confirm_cancel_class(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """What is lost if one class is cancelled."""
    booking = await read_booking(get_services(request), user, booking_id)
    found = find_class(booking, number)
    return render_fragment("bookings/_confirm_cancel.html", booking=booking, occurrence=found, **_lost(booking, number))


@router.post("/bookings/{booking_id}/cancel")
async def cancel_booking(request: Request, user: CreatorUser, booking_id: BookingId) -> HTMLResponse:
    """Cancel all classes that are not over."""
    return await _cancel(request, user, booking_id, None)


@router.post("/bookings/{booking_id}/classes/{number}/cancel")
async def cancel_class(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """Cancel one class."""
    return await _cancel(request, user, booking_id, number)


async def _cancel(request: Request, user: CreatorUser, booking_id: str, number: int | None) -> HTMLResponse:
    fields, services = await read_form(request), get_services(request)
    booking = await read_booking(services, user, booking_id)
    if _lost(booking, number)["typed"]:
        require_typed(fields, booking.name, "name of the booking")
    wanted = CancelBookingRequest(reason=form_reason(fields), number=number)
    key, version = form_key(request, user.caller, fields), form_version(fields)
    await services.bookings.cancel(user.caller, booking_id, wanted, if_match=version, key=key)
    return _done(f"{booking.name}: cancelled")


def _lost(booking: Booking, number: int | None) -> dict[str, Any]:
    """The classes that would be cancelled. What ends labs, or several classes at once, is confirmed by its name."""
    classes = [each for each in booking.open_occurrences if number in (None, each.number)]
    under_way = [each for each in classes if each.status in UNDER_WAY]
    return {"classes": classes, "labs_end": bool(under_way), "typed": bool(under_way) or len(classes) > 1}


def _done(message: str) -> HTMLResponse:
    response = render_toast(message, triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


def _problems(error: ValidationError | ProblemError, fields: tuple[str, ...], main: str) -> dict[str, str]:
    """The problem of each field. What is short belongs to the field that asks for it."""
    if isinstance(error, ValidationError):
        return field_problems(error, {"start": _START_HINT})
    if error.code is ProblemCode.BOOKING_REFUSED:
        return {main: f"it does not fit: {error.detail.partition('; it would fit')[0]}"}
    return problem_by_field(error, fields)


def _free_times(error: ValidationError | ProblemError) -> list[WallTime]:
    """Starts that fit, as clocks in the zone of the booking show them."""
    if isinstance(error, ValidationError) or error.code is not ProblemCode.BOOKING_REFUSED or error.current is None:
        return []
    return [FreeTime.model_validate(each).start for each in error.current["free_times"]]


def _status(error: ValidationError | ProblemError) -> int:
    return 422 if isinstance(error, ValidationError) else HTTP_STATUS_BY_CODE.get(error.code, 409)


def _render_extension(
    booking: Booking, occurrence: BookingOccurrence, form: FormState, status: int = 200
) -> HTMLResponse:
    choices = [(minutes, occurrence.ends_at + timedelta(minutes=minutes)) for minutes in _EXTENSIONS]
    return render_fragment(
        "bookings/_extend.html", status=status, booking=booking, occurrence=occurrence, form=form, choices=choices
    )


def _render_move(
    booking: Booking,
    occurrence: BookingOccurrence,
    form: FormState,
    free_times: Sequence[WallTime] = (),
    status: int = 200,
) -> HTMLResponse:
    return render_fragment(
        "bookings/_move.html",
        status=status,
        booking=booking,
        occurrence=occurrence,
        form=form,
        free_times=free_times,
    )
