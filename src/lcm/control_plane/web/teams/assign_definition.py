"""The dialog on the Definitions page that gives a version to a team, or to none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.definitions import (
    DefinitionNamePath,
    DefinitionVersionPath,
    TeamQuery,
    assign_to_team,
    find_visible,
)
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import AdminUser
from lcm.control_plane.web.forms import FormState, field_problems, form_field, form_key, problem_by_field, read_form
from lcm.control_plane.web.lablets.list_page import visible_teams
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.lablet.record import AssignDefinitionRequest

if TYPE_CHECKING:
    from lcm.control_plane.services import Services
    from lcm.control_plane.web.auth import WebUser
    from lcm.model.lablet.record import LabletDefinitionSummary

router = APIRouter(include_in_schema=False)
FIELDS: Final = ("team",)


@router.get("/definitions/{name}/{version}/assign")
async def assign_definition_dialog(
    request: Request, user: AdminUser, name: DefinitionNamePath, version: DefinitionVersionPath, team: TeamQuery = None
) -> HTMLResponse:
    """The teams to choose from, with that of the version chosen."""
    services = get_services(request)
    found = await find_visible(services, user.caller, name, version, team)
    return await _render(services, user, found, FormState({"team": found.team}))


@router.post("/definitions/{name}/{version}/assign")
async def assign_definition(
    request: Request, user: AdminUser, name: DefinitionNamePath, version: DefinitionVersionPath, team: TeamQuery = None
) -> HTMLResponse:
    """Assign the version. Sent again, it finds the version where it is and changes nothing."""
    fields, services = await read_form(request), get_services(request)
    form = FormState({"team": form_field(fields, "team")})
    found = await find_visible(services, user.caller, name, version, team)
    try:
        requested = AssignDefinitionRequest(team=form.value("team") or None)
        await assign_to_team(services, user.caller, found, requested, form_key(request, user.caller, fields))
    except ValidationError as error:
        return await _render(services, user, found, FormState(form.values, field_problems(error)), status=422)
    except ProblemError as error:
        shown = FormState(form.values, problem_by_field(error, FIELDS))
        return await _render(services, user, found, shown, status=422)
    teams = await visible_teams(services, user)
    response = render_toast(
        f"{found.reference}: assigned to {teams.get(form.value('team'), 'no team')}", triggers=DONE_EVENT
    )
    response.headers["HX-Reswap"] = "none"
    return response


async def _render(
    services: Services, user: WebUser, found: LabletDefinitionSummary, form: FormState, *, status: int = 200
) -> HTMLResponse:
    teams = await visible_teams(services, user)
    return render_fragment("teams/_assign_definition.html", definition=found, teams=teams, form=form, status=status)
