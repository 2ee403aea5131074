"""The dialog that creates a lablet, with a preview of its placement and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.preview import preview_lablet
from lcm.control_plane.records.kinds import DEFINITIONS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.teams.visibility import definitions_in_scope, manages
from lcm.control_plane.web.auth import CreatorUser
from lcm.control_plane.web.forms import (
    WHOLE_FORM,
    FormState,
    field_problems,
    form_field,
    form_key,
    parse_form_time,
    parse_number,
    problem_by_field,
    read_form,
)
from lcm.control_plane.web.lablets.list_page import visible_teams
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment
from lcm.model.lablet.record import CreateLabletRequest, Lablet, LabletDefinitionSummary
from lcm.model.lablet.status import LostWorkerPolicy
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.roles import Scope
    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.auth import WebUser

router = APIRouter(include_in_schema=False)
_MAX_DEFINITIONS = 500
_FORM_FIELDS: Final = (
    "definition",
    "name",
    "team",
    "owner",
    "aws_region",
    "time_to_live_minutes",
    "starts_at",
    "ends_at",
    "lost_worker_policy",
)
_FIELD_HINTS: Final = {
    "definition": "select a definition",
    "starts_at": "is not a valid time; use a format such as 2030-01-31T09:00",
    "ends_at": "is not a valid time; use a format such as 2030-01-31T17:00",
}
_DEFINITION_PROBLEMS = (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW)


@router.get("/lablets/new")
async def new_lablet_form(request: Request, user: CreatorUser) -> HTMLResponse:
    """The empty form."""
    definition = request.query_params.get("definition", "")
    values = {
        "definition": definition,
        "team": request.query_params.get("team", ""),
        "owner": user.caller.name,
        "lost_worker_policy": LostWorkerPolicy.RESCHEDULE.value,
    }
    return await _render_form(get_services(request), user, FormState(values))


@router.get("/lablets/new/preview")
async def preview_placement(request: Request, user: CreatorUser) -> HTMLResponse:
    """Where the lablet would be placed now, and what would be launched. Changes nothing."""
    values = {name: request.query_params.get(name, "").strip() for name in _FORM_FIELDS}
    lablet_request, form = parse_lablet_form(values)
    if lablet_request is None:
        return render_fragment("lablets/_placement_preview.html", preview=None, problems=form.problems)
    try:
        preview = await preview_lablet(
            get_services(request).context, get_services(request).directory, user.caller, lablet_request
        )
    except ProblemError as error:
        return render_fragment("lablets/_placement_preview.html", preview=None, problems=_problems_by_field(error))
    return render_fragment("lablets/_placement_preview.html", preview=preview, problems={})


@router.post("/lablets/new")
async def create_lablet(request: Request, user: CreatorUser) -> HTMLResponse:
    """Create the lablet. An invalid form is shown again, with its problems and everything that was typed."""
    fields = await read_form(request)
    lablet_request, form = parse_lablet_form({name: form_field(fields, name) for name in _FORM_FIELDS})
    if lablet_request is None:
        return await _render_form(get_services(request), user, form, status=422)
    try:
        key = form_key(request, user.caller, fields)
        body = await get_services(request).lablets.create(user.caller, lablet_request, key)
    except ProblemError as error:
        return await _render_form(
            get_services(request),
            user,
            FormState(form.values, _problems_by_field(error)),
            status=HTTP_STATUS_BY_CODE.get(error.code, 409),
        )
    lablet = Lablet.model_validate_json(body)
    return render_fragment(
        "lablets/_toast_created.html", headers={"HX-Trigger": DONE_EVENT, "HX-Reswap": "none"}, lablet=lablet
    )


def parse_lablet_form(values: Mapping[str, str]) -> tuple[CreateLabletRequest | None, FormState]:
    """The request of a form, or None, and the form with its problems. An empty field means the default."""
    request: dict[str, Any] = {name: values[name] for name in _FORM_FIELDS if values.get(name)}
    request.setdefault("definition", "")
    request.setdefault("lost_worker_policy", LostWorkerPolicy.RESCHEDULE.value)
    if "time_to_live_minutes" in request:
        request["time_to_live_minutes"] = parse_number(request["time_to_live_minutes"])
    for name in ("starts_at", "ends_at"):
        if name in request:
            request[name] = parse_form_time(request[name]) or request[name]
    try:
        return CreateLabletRequest.model_validate(request), FormState(values)
    except ValidationError as error:
        return None, FormState(values, field_problems(error, _FIELD_HINTS))


async def enabled_definitions(store: Store, scope: Scope) -> dict[str, list[LabletDefinitionSummary]]:
    """Versions of the enabled definitions by name, the newest version first."""
    enabled = Where(any_of={"enabled": [True], **definitions_in_scope(scope)})
    stored = (await store.find(DEFINITIONS, enabled, sort=Sort("name"), limit=_MAX_DEFINITIONS)).items
    summaries = readable_records(stored, LabletDefinitionSummary, "definition")
    offered: dict[str, list[LabletDefinitionSummary]] = {}
    for each in sorted(summaries, key=lambda one: (one.created_at, one.id), reverse=True):
        offered.setdefault(each.name, []).append(each)
    return dict(sorted(offered.items()))


def _problems_by_field(error: ProblemError) -> Mapping[str, str]:
    problems = problem_by_field(error, _FORM_FIELDS)
    if WHOLE_FORM in problems and error.code in _DEFINITION_PROBLEMS:
        return {"definition": error.detail}
    return problems


async def teams_to_create_in(services: Services, user: WebUser) -> dict[str, str]:
    """The names of the teams in which the user may create something, by id."""
    teams = await visible_teams(services, user)
    return {team: name for team, name in teams.items() if manages(user.caller, team)}


async def _render_form(services: Services, user: WebUser, form: FormState, status: int = 200) -> HTMLResponse:
    definitions = await enabled_definitions(services.context.store, user.caller.scope)
    name_or_id = form.value("definition")
    ids = {each.reference for versions in definitions.values() for each in versions}
    versions = definitions[name_or_id] if name_or_id in definitions else next(iter(definitions.values()), [])
    selected = name_or_id if name_or_id in ids else versions[0].reference if versions else ""
    return render_fragment(
        "lablets/_create.html",
        status=status,
        form=form,
        definitions=definitions,
        selected=selected,
        user=user,
        regions=services.context.regions,
        teams=await teams_to_create_in(services, user),
    )
