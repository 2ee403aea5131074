"""The form that books a class. While it is filled in, it says whether the class fits, and what it costs."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.web.auth import CreatorUser, WebUser
from lcm.control_plane.web.calendar.booking_week import choose_week
from lcm.control_plane.web.calendar.schedules_page import zone_names
from lcm.control_plane.web.forms import (
    WHOLE_FORM,
    FormState,
    field_problems,
    form_field,
    form_key,
    parse_number,
    problem_by_field,
    read_form,
)
from lcm.control_plane.web.lablets.create import enabled_definitions, teams_to_create_in
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment
from lcm.core import clock
from lcm.model.booking.record import Booking
from lcm.model.booking.requests import BookingPreview, CreateBookingRequest, split_learners
from lcm.model.calendar.zones import possible_times
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.model.calendar.zones import WallTime

router = APIRouter(include_in_schema=False)
_FIELDS: Final = (
    "name",
    "definition",
    "seats",
    "start",
    "zone",
    "occurrence",
    "duration_minutes",
    "repeat_weeks",
    "team",
    "aws_region",
    "learners",
)
_NUMBERS: Final = ("seats", "duration_minutes", "repeat_weeks")
_HINTS: Final = {"definition": "select a definition"}
NO_START: Final = {"start": "is not a date and a time; choose both, such as 2030-01-31T09:00"}
"""The hint for an empty field; browsers send none if only one of both was chosen."""
_NOTHING_BOOKED: Final = "The class does not fit at this time. Choose one of the proposed times, or change the form."
_MORNING: Final = time(9)
_MAX_QUOTED: Final = 60


@router.get("/bookings/new")
async def new_booking_form(request: Request, user: CreatorUser) -> HTMLResponse:
    """The form for a class at nine o'clock, on the first day of the shown week that is not over."""
    query, now = request.query_params, clock.now()
    week = choose_week(query.get("zone", ""), query.get("week", ""), now)
    tomorrow = now.astimezone(week.zone).date() + timedelta(days=1)
    start = datetime.combine(max(week.monday, tomorrow), _MORNING)
    values = {
        "zone": week.zone.key,
        "start": start.isoformat(timespec="minutes"),
        "seats": "10",
        "duration_minutes": "240",
        "repeat_weeks": "1",
    }
    return await _render_form(get_services(request), user, FormState(values))


@router.get("/bookings/preview")
async def preview_booking(request: Request, user: CreatorUser) -> HTMLResponse:
    """Whether the class would fit as the form is filled in now, and what it costs. Changes nothing."""
    values = {name: request.query_params.get(name, "").strip() for name in _FIELDS}
    wanted, form = parse_booking_form({**values, "name": values["name"] or "preview"})
    preview, problems = None, form.problems
    try:
        if wanted is not None:
            preview = await get_services(request).bookings.preview(user.caller, wanted)
    except ProblemError as error:
        problems = _problems(error)
    choices = clock_choices(values["start"], values["zone"], problems)
    return render_fragment("bookings/_preview.html", preview=preview, problems=problems, choices=choices)


@router.post("/bookings/new")
async def create_booking(request: Request, user: CreatorUser) -> HTMLResponse:
    """Book the class. An invalid form and a class that does not fit are shown again, with everything that was typed."""
    fields, services = await read_form(request), get_services(request)
    wanted, form = parse_booking_form({name: form_field(fields, name) for name in _FIELDS})
    if wanted is None:
        return await _render_form(services, user, form, status=422)
    try:
        body = await services.bookings.create(user.caller, wanted, form_key(request, user.caller, fields))
    except ProblemError as error:
        status = HTTP_STATUS_BY_CODE.get(error.code, 409)
        return await _render_form(services, user, FormState(form.values, _problems(error)), _refusal(error), status)
    booking = Booking.model_validate_json(body)
    headers = {"HX-Trigger": DONE_EVENT, "HX-Reswap": "none"}
    return render_fragment("bookings/_toast_booked.html", headers=headers, booking=booking)


def parse_booking_form(values: Mapping[str, str]) -> tuple[CreateBookingRequest | None, FormState]:
    """The request of a form, or None, and the form with its problems. An empty field means the default."""
    wanted: dict[str, Any] = {name: values[name] for name in _FIELDS if values.get(name)}
    for name in _NUMBERS:
        if name in wanted:
            wanted[name] = parse_number(wanted[name])
    wanted["learners"] = split_learners(values.get("learners", ""))
    try:
        return CreateBookingRequest.model_validate(wanted), FormState(values)
    except ValidationError as error:
        return None, FormState(values, _by_form_field(error, wanted))


def clock_choices(start: str, zone: str, problems: Mapping[str, str]) -> list[WallTime]:
    """The times that can be meant by an invalid start, in a night in which clocks are changed."""
    try:
        return possible_times(datetime.fromisoformat(start), zone) if "start" in problems else []
    except (ValueError, OverflowError):
        return []


def _by_form_field(error: ValidationError, wanted: Mapping[str, Any]) -> dict[str, str]:
    """The problem of each field; for learners, that of the first person who is named wrongly."""
    found: dict[str, str] = {}
    for path, text in field_problems(error, _HINTS if "start" in wanted else _HINTS | NO_START).items():
        field, _, index = path.partition(".")
        person = f"{_short(wanted['learners'][int(index)])}: " if index.isdigit() else ""
        found.setdefault(field, f"{person}{text}")
    return found


def _short(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"


def _problems(error: ProblemError) -> Mapping[str, str]:
    if error.code is ProblemCode.BOOKING_REFUSED:
        return {WHOLE_FORM: _NOTHING_BOOKED}
    if error.code is ProblemCode.NAME_TAKEN:
        return {"name": error.detail}
    problems = problem_by_field(error, _FIELDS)
    if WHOLE_FORM in problems and error.code in (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW):
        return {"definition": error.detail}
    return problems


def _refusal(error: ProblemError) -> BookingPreview | None:
    """The answer of a class that does not fit: the same that a preview gives."""
    return BookingPreview.model_validate(error.current) if error.code is ProblemCode.BOOKING_REFUSED else None


async def _render_form(
    services: Services, user: WebUser, form: FormState, preview: BookingPreview | None = None, status: int = 200
) -> HTMLResponse:
    return render_fragment(
        "bookings/_form.html",
        status=status,
        form=form,
        preview=preview,
        problems=form.problems,
        choices=clock_choices(form.value("start"), form.value("zone"), form.problems),
        definitions=await enabled_definitions(services.context.store, user.caller.scope),
        teams=sorted((await teams_to_create_in(services, user)).values()),
        user=user,
        regions=services.context.regions,
        zones=zone_names(),
    )
