"""The Schedules page: when workers are up, the form to change that, and a preview of the week."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import available_timezones

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import CurrentUser, OperatorUser, is_fragment
from lcm.control_plane.web.calendar.week import BAR_WIDTH, week_rows
from lcm.control_plane.web.forms import (
    FormState,
    comma_list,
    comma_tags,
    field_problems,
    form_field,
    form_key,
    form_version,
    problem_by_field,
    read_form,
)
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.model.calendar.schedule import OutsideAction
from lcm.model.calendar.schedule_requests import CreateScheduleRequest, EditScheduleRequest, PreviewScheduleRequest
from lcm.model.calendar.zones import EXAMPLE_ZONE

if TYPE_CHECKING:
    from lcm.model.calendar.schedule_preview import SchedulePreview, ScheduleStatus

router = APIRouter(include_in_schema=False)
ScheduleId = Annotated[str, Path(pattern=r"^s-[a-z0-9-]{1,62}$")]
Switch = Annotated[str, Path(pattern="^(enable|disable)$")]
OUTSIDE = ((OutsideAction.STOP.value, "stop workers that are not in use"), (OutsideAction.NOTHING.value, "do nothing"))
_FIELDS = ("name", "zone", "windows", "exceptions", "names", "templates", "teams", "tags", "outside", "enabled")
_PLACES = {"selector": "names"}
"""The field at which a problem is shown, if its own is not in the form."""


@router.get("/schedules")
async def schedules_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page, or only the list for a refresh by a script."""
    values: dict[str, Any] = {"statuses": await get_services(request).schedules.statuses()}
    if is_fragment(request):
        return render_fragment("calendar/_schedules.html", user=user, **values)
    return await render_page(request, user, "calendar/schedules.html", here="schedules", title="Schedules", **values)


@router.get("/schedules/new")
async def new_schedule_form(request: Request, user: OperatorUser) -> HTMLResponse:
    """A form for a new schedule."""
    values = {"zone": EXAMPLE_ZONE, "windows": "mon-fri 08:00-18:00", "outside": "stop", "enabled": "on"}
    return _render_form(FormState(values))


@router.get("/schedules/preview")
async def preview_schedule(request: Request, user: CurrentUser) -> HTMLResponse:
    """What the form would do, as it is filled in now."""
    query = request.query_params
    fields = {name: query.getlist(name) for name in (*_FIELDS, "schedule_id") if name in query}
    wanted: dict[str, Any] = {**_wanted(fields), "name": form_field(fields, "name") or "preview"}
    if schedule_id := form_field(fields, "schedule_id"):
        wanted["schedule_id"] = schedule_id
    try:
        preview = await get_services(request).schedules.preview(PreviewScheduleRequest.model_validate(wanted))
    except ValidationError as error:
        problems = _problems(error)
        return render_fragment("calendar/_preview.html", preview=None, problems=problems)
    except ProblemError as error:
        return render_fragment("calendar/_preview.html", preview=None, problems=_problem_by_field(error))
    return _render_preview(preview)


@router.get("/schedules/{schedule_id}/edit")
async def edit_schedule_form(request: Request, user: OperatorUser, schedule_id: ScheduleId) -> HTMLResponse:
    """A form with the schedule as it is."""
    status = await get_services(request).schedules.status(schedule_id)
    schedule = status.schedule
    return _render_form(FormState(_shown(status)), schedule_id=schedule.id, version=schedule.version)


@router.get("/schedules/{schedule_id}/week")
async def show_week(request: Request, user: CurrentUser, schedule_id: ScheduleId) -> HTMLResponse:
    """The week and the workers of a schedule, in a dialog."""
    preview = await get_services(request).schedules.preview_saved(schedule_id)
    return _render_preview(preview, "calendar/_week_dialog.html")


@router.post("/schedules/save")
async def save_schedule(request: Request, user: OperatorUser) -> HTMLResponse:
    """Create or change a schedule. An invalid form is shown again."""
    fields = await read_form(request)
    schedule_id, version, key = form_field(fields, "schedule_id"), form_version(fields), None
    wanted, service = _wanted(fields), get_services(request).schedules
    form = {name: form_field(fields, name) for name in _FIELDS}
    try:
        key = form_key(request, user.caller, fields)
        if schedule_id:
            edit = EditScheduleRequest.model_validate(wanted)
            saved = await service.edit(user.caller, schedule_id, edit, version, key)
        else:
            saved = await service.create(user.caller, CreateScheduleRequest.model_validate(wanted), key)
    except ValidationError as error:
        return _render_form(FormState(form, _problems(error)), schedule_id=schedule_id, version=version, status=422)
    except ProblemError as error:
        problems = _problem_by_field(error)
        return _render_form(FormState(form, problems), schedule_id=schedule_id, version=version, status=422)
    response = render_toast(f"Schedule {saved.name} {'saved' if schedule_id else 'created'}", triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


@router.get("/schedules/{schedule_id}/confirm-delete")
async def confirm_delete(request: Request, user: OperatorUser, schedule_id: ScheduleId) -> HTMLResponse:
    """What deleting a schedule would do."""
    preview = await get_services(request).schedules.preview_saved(schedule_id, removed=True)
    return render_fragment("calendar/_confirm_delete.html", schedule=preview.status.schedule, effect=preview.effect)


@router.post("/schedules/{schedule_id}/remove")
async def delete_schedule(request: Request, user: OperatorUser, schedule_id: ScheduleId) -> HTMLResponse:
    """Delete a schedule."""
    key = form_key(request, user.caller, await read_form(request))
    deleted = await get_services(request).schedules.delete(user.caller, schedule_id, key=key)
    return render_toast(f"Schedule {deleted.name} deleted", triggers=DONE_EVENT)


@router.get("/schedules/{schedule_id}/confirm/{switch}")
async def confirm_toggle(request: Request, user: OperatorUser, schedule_id: ScheduleId, switch: Switch) -> HTMLResponse:
    """What enabling or disabling a schedule would do."""
    service = get_services(request).schedules
    return render_fragment(
        "shared/_confirm_switch.html",
        action_url=f"/schedules/{schedule_id}/{switch}",
        verb=switch.capitalize(),
        what=f"schedule {(await service.status(schedule_id)).schedule.name}",
        effect=await service.preview_switch(schedule_id, enabled=switch == "enable"),
    )


@router.post("/schedules/{schedule_id}/{switch}")
async def toggle_schedule(
    request: Request, user: OperatorUser, schedule_id: ScheduleId, switch: Switch
) -> HTMLResponse:
    """Enable or disable a schedule."""
    key = form_key(request, user.caller, await read_form(request))
    edit = EditScheduleRequest(enabled=switch == "enable")
    edited = await get_services(request).schedules.edit(user.caller, schedule_id, edit, key=key)
    return render_toast(f"Schedule {edited.name} {switch}d", triggers=DONE_EVENT)


def _wanted(fields: dict[str, list[str]]) -> dict[str, Any]:
    """The request that the form stands for."""
    return {
        "name": form_field(fields, "name"),
        "zone": form_field(fields, "zone"),
        "windows": _lines(form_field(fields, "windows")),
        "exceptions": _lines(form_field(fields, "exceptions")),
        "selector": {
            "names": comma_list(form_field(fields, "names")),
            "templates": comma_list(form_field(fields, "templates")),
            "teams": comma_list(form_field(fields, "teams")),
            "tags": comma_tags(form_field(fields, "tags")),
        },
        "outside": form_field(fields, "outside"),
        "enabled": form_field(fields, "enabled") == "on",
    }


def _shown(status: ScheduleStatus) -> dict[str, str]:
    """The text in the fields of the form for this schedule."""
    schedule, selector = status.schedule, status.schedule.selector
    return {
        "name": schedule.name,
        "zone": schedule.zone,
        "windows": "\n".join(schedule.windows),
        "exceptions": "\n".join(schedule.exceptions),
        "names": ", ".join(selector.names),
        "templates": ", ".join(selector.templates),
        "teams": ", ".join(status.team_names.get(each, each) for each in selector.teams),
        "tags": ", ".join(f"{name}={value}" for name, value in sorted(selector.tags.items())),
        "outside": schedule.outside.value,
        "enabled": "on" if schedule.enabled else "",
    }


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _problems(error: ValidationError) -> dict[str, str]:
    """The problem of each field; of several lines the first."""
    found: dict[str, str] = {}
    for path, text in field_problems(error).items():
        field, _, rest = path.removeprefix("selector.").partition(".")
        number = rest.partition(".")[0]
        line = f"line {int(number) + 1}: " if number.isdigit() and field in ("windows", "exceptions") else ""
        found.setdefault(_PLACES.get(field, field), f"{line}{text}")
    return found


def _problem_by_field(error: ProblemError) -> dict[str, str]:
    field, _, text = error.detail.partition(": ")
    name = field.removeprefix("selector.")
    return {name: text} if text and name in _FIELDS else problem_by_field(error, _FIELDS)


def _render_form(
    form: FormState, *, schedule_id: str = "", version: int | None = None, status: int = 200
) -> HTMLResponse:
    return render_fragment(
        "calendar/_form.html",
        form=form,
        schedule_id=schedule_id,
        version=version,
        outside=OUTSIDE,
        zones=zone_names(),
        status=status,
    )


def _render_preview(preview: SchedulePreview, template: str = "calendar/_preview.html") -> HTMLResponse:
    rows = week_rows(preview.openings, preview.status.schedule.zone, preview.previewed_at)
    return render_fragment(template, preview=preview, rows=rows, width=BAR_WIDTH, problems={})


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """The zones that are offered: those of places, and UTC."""
    return ("UTC", *sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")))
