"""Dialogs that extend, move and cancel classes. They say beforehand whether the change fits, and what would fit."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.bookings.changes import refused_change
from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import CreatorUser
from lcm.control_plane.web.calendar.booking_form import NO_START, clock_choices
from lcm.control_plane.web.calendar.booking_page import BookingId, ClassNumber, find_class, read_booking
from lcm.control_plane.web.forms import (
    WHOLE_FORM,
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
from lcm.model.booking.requests import CancelBookingRequest, ExtendBookingRequest, MoveOccurrenceRequest
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.services import Services
    from lcm.control_plane.web.auth import WebUser
    from lcm.model.booking.requests import BookingChangePreview

router = APIRouter(include_in_schema=False)
_Kind = Literal["extend", "move"]
_EXTENSIONS: Final = (15, 30, 60, 120)
_MOVE_FIELDS: Final = ("start", "occurrence")
_EXTENSION_FIELDS: Final = ("minutes",)
_NOT_CHANGED: Final = "The class does not fit. What is short is said below."
_OUTDATED: Final = "The booking was changed since this dialog was opened."
_NO_PROBLEMS: Final[Mapping[str, str]] = {}


@router.get("/bookings/{booking_id}/classes/{number}/confirm-extend")
async def confirm_extension(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """By how much a class can end later."""
    chosen = request.query_params.get("minutes", str(_EXTENSIONS[1]))
    booking = await read_booking(get_services(request), user, booking_id)
    return _render_extension(booking, find_class(booking, number), FormState({"minutes": chosen}))


@router.get("/bookings/{booking_id}/classes/{number}/extend-preview")
async def preview_extension(
    request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber
) -> HTMLResponse:
    """Whether the class could end as late as the form says. Changes nothing."""
    services, values = get_services(request), _query_values(request, _EXTENSION_FIELDS)
    try:
        preview = await services.bookings.preview_extension(user.caller, booking_id, _extension(values, number))
    except (ValidationError, ProblemError) as error:
        return await _render_preview(
            request, user, booking_id, number, "extend", problems=_problems(error, _EXTENSION_FIELDS)
        )
    shorter = [] if preview.confirmed else await _shorter(services, user, booking_id, number, values["minutes"])
    return await _render_preview(request, user, booking_id, number, "extend", preview, shorter)


@router.post("/bookings/{booking_id}/classes/{number}/extend")
async def extend_class(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """Let a class end later, and all of its labs with it."""
    fields, services = await read_form(request), get_services(request)
    form = FormState({name: form_field(fields, name) for name in _EXTENSION_FIELDS})
    try:
        wanted = _extension(form.values, number)
        key, version = form_key(request, user.caller, fields), form_version(fields)
        body = await services.bookings.extend(user.caller, booking_id, wanted, if_match=version, key=key)
    except (ValidationError, ProblemError) as error:
        booking = await read_booking(services, user, booking_id)
        shown, refused = FormState(form.values, _problems(error, _EXTENSION_FIELDS)), _refusal(error)
        shorter = await _shorter(services, user, booking_id, number, form.value("minutes")) if refused else []
        return _render_extension(booking, find_class(booking, number), shown, refused, shorter, _status(error))
    return _done(f"{Booking.model_validate_json(body).name}: the class ends later")


@router.get("/bookings/{booking_id}/classes/{number}/confirm-move")
async def confirm_move(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """To which time a class is moved."""
    booking = await read_booking(get_services(request), user, booking_id)
    occurrence = find_class(booking, number)
    start = occurrence.start
    now = {"start": start.at.isoformat(timespec="minutes"), "occurrence": start.occurrence or ""}
    typed = _query_values(request, _MOVE_FIELDS) if "start" in request.query_params else {}
    return _render_move(booking, occurrence, FormState(now | typed))


@router.get("/bookings/{booking_id}/classes/{number}/move-preview")
async def preview_move(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """Whether the class would fit at the time in the form. Changes nothing."""
    try:
        wanted = _move(_query_values(request, _MOVE_FIELDS))
        preview = await get_services(request).bookings.preview_move(user.caller, booking_id, number, wanted)
    except (ValidationError, ProblemError) as error:
        return await _render_preview(request, user, booking_id, number, "move", problems=_problems(error, _MOVE_FIELDS))
    return await _render_preview(request, user, booking_id, number, "move", preview)


@router.post("/bookings/{booking_id}/classes/{number}/move")
async def move_class(request: Request, user: CreatorUser, booking_id: BookingId, number: ClassNumber) -> HTMLResponse:
    """Move a class to another time, if it fits there."""
    fields, services = await read_form(request), get_services(request)
    form = FormState({name: form_field(fields, name) for name in _MOVE_FIELDS})
    try:
        wanted = _move(form.values)
        key, version = form_key(request, user.caller, fields), form_version(fields)
        body = await services.bookings.move(user.caller, booking_id, number, wanted, if_match=version, key=key)
    except (ValidationError, ProblemError) as error:
        booking = await read_booking(services, user, booking_id)
        shown = FormState(form.values, _problems(error, _MOVE_FIELDS))
        return _render_move(booking, find_class(booking, number), shown, _refusal(error), _status(error))
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
    try:
        await services.bookings.cancel(user.caller, booking_id, wanted, if_match=version, key=key)
    except ProblemError as error:
        if not isinstance(error, PreconditionFailedError):
            raise
        raise ProblemError(error.code, f"{_OUTDATED} Close it and check the classes.") from None
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


def _extension(values: Mapping[str, str], number: int) -> ExtendBookingRequest:
    return ExtendBookingRequest.model_validate({"minutes": parse_number(values["minutes"]), "number": number})


def _move(values: Mapping[str, str]) -> MoveOccurrenceRequest:
    return MoveOccurrenceRequest.model_validate({name: value for name, value in values.items() if value})


def _query_values(request: Request, fields: tuple[str, ...]) -> dict[str, str]:
    """The fields of a form that is not submitted."""
    return {name: request.query_params.get(name, "").strip() for name in fields}


async def _shorter(services: Services, user: WebUser, booking_id: str, number: int, minutes: str) -> list[int] | None:
    """The offered extensions below one that does not fit which do fit; None if there are none below it."""
    if minutes == str(_EXTENSIONS[0]):
        return None
    found = []
    for each in _EXTENSIONS:
        if str(each) == minutes:
            break
        wanted = ExtendBookingRequest(minutes=each, number=number)
        if not (await services.bookings.preview_extension(user.caller, booking_id, wanted)).confirmed:
            break
        found.append(each)
    return found


def _problems(error: ValidationError | ProblemError, fields: tuple[str, ...]) -> dict[str, str]:
    """The problem of each field. What is short is said by the preview."""
    if isinstance(error, ValidationError):
        return field_problems(error, NO_START if any(each["type"] == "missing" for each in error.errors()) else None)
    if error.code is ProblemCode.BOOKING_REFUSED:
        return {WHOLE_FORM: _NOT_CHANGED}
    if isinstance(error, PreconditionFailedError):
        return {WHOLE_FORM: f"{_OUTDATED} It is shown as it is now."}
    return problem_by_field(error, fields)


def _refusal(error: ValidationError | ProblemError) -> BookingChangePreview | None:
    """The answer to a change that does not fit: the same that a preview gives."""
    if isinstance(error, ValidationError) or error.code is not ProblemCode.BOOKING_REFUSED:
        return None
    return refused_change(error)


def _status(error: ValidationError | ProblemError) -> int:
    return 422 if isinstance(error, ValidationError) else HTTP_STATUS_BY_CODE.get(error.code, 409)


async def _render_preview(
    request: Request,
    user: WebUser,
    booking_id: str,
    number: int,
    kind: _Kind,
    preview: BookingChangePreview | None = None,
    shorter: Sequence[int] | None = (),
    problems: Mapping[str, str] = _NO_PROBLEMS,
) -> HTMLResponse:
    """What the dialog says now; also that the booking changed since the dialog was opened."""
    booking = await read_booking(get_services(request), user, booking_id)
    return render_fragment(
        "bookings/_change_preview.html",
        kind=kind,
        booking=booking,
        occurrence=find_class(booking, number),
        outdated="" if request.query_params.get("version", "") in ("", str(booking.version)) else _OUTDATED,
        preview=preview,
        shorter=shorter,
        problems=problems,
        choices=clock_choices(request.query_params.get("start", ""), booking.zone, problems),
    )


def _render_extension(
    booking: Booking,
    occurrence: BookingOccurrence,
    form: FormState,
    preview: BookingChangePreview | None = None,
    shorter: Sequence[int] | None = (),
    status: int = 200,
) -> HTMLResponse:
    ends = [(minutes, occurrence.ends_at + timedelta(minutes=minutes)) for minutes in _EXTENSIONS]
    return _render("extend", booking, occurrence, form, preview, status, ends=ends, shorter=shorter)


def _render_move(
    booking: Booking,
    occurrence: BookingOccurrence,
    form: FormState,
    preview: BookingChangePreview | None = None,
    status: int = 200,
) -> HTMLResponse:
    return _render("move", booking, occurrence, form, preview, status, shorter=())


def _render(
    kind: _Kind,
    booking: Booking,
    occurrence: BookingOccurrence,
    form: FormState,
    preview: BookingChangePreview | None,
    status: int,
    **values: Any,
) -> HTMLResponse:
    # What concerns the whole form is said above it; whether it fits is then checked anew.
    problems = {field: text for field, text in form.problems.items() if field != WHOLE_FORM}
    return render_fragment(
        f"bookings/_{kind}.html",
        status=status,
        kind=kind,
        booking=booking,
        occurrence=occurrence,
        form=form,
        preview=preview,
        problems=problems,
        choices=clock_choices(form.value("start"), booking.zone, form.problems),
        outdated="",
        **values,
    )
