"""The dialog on a lablet's page that gives it to a team, and to a person in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.teams.choice import choose_owner, find_team
from lcm.control_plane.web.auth import AdminUser
from lcm.control_plane.web.forms import FormState, field_problems, form_field, form_key, problem_by_field, read_form
from lcm.control_plane.web.lablets.detail_page import read_lablet
from lcm.control_plane.web.lablets.list_page import visible_teams
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.lablet.record import AssignLabletRequest, Lablet
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.services import Services
    from lcm.control_plane.web.auth import WebUser

router = APIRouter(include_in_schema=False)
FIELDS: Final = ("team", "owner")


@router.get("/lablets/{lablet_id}/assign")
async def assign_dialog(request: Request, user: AdminUser, lablet_id: str) -> HTMLResponse:
    """The teams to choose from, with the lablet's own chosen."""
    services = get_services(request)
    lablet = await read_lablet(services, user.caller, lablet_id)
    return await _render(services, user, lablet, FormState({"team": lablet.team}))


@router.post("/lablets/{lablet_id}/assign")
async def assign_lablet(request: Request, user: AdminUser, lablet_id: str) -> HTMLResponse:
    """Assign the lablet. An invalid form is shown again, with everything that was typed."""
    fields, services = await read_form(request), get_services(request)
    lablet = await read_lablet(services, user.caller, lablet_id)
    values = {name: form_field(fields, name) for name in FIELDS}
    try:
        wanted = AssignLabletRequest(team=values["team"], owner=values["owner"] or None)
        await _check_owner(services, user.caller, wanted)
        key = form_key(request, user.caller, fields)
        assigned = Lablet.model_validate_json(await services.lablets.assign(user.caller, lablet.id, wanted, key))
    except ValidationError as error:
        problems = field_problems(error)
        if not values["team"]:
            problems["team"] = "choose a team"
        return await _render(services, user, lablet, FormState(values, problems), status=422)
    except ProblemError as error:
        form = FormState(values, problem_by_field(error, FIELDS))
        return await _render(services, user, lablet, form, status=422)
    team = (await services.directory.teams()).name(assigned.team)
    response = render_toast(f"{assigned.name}: assigned to team {team}", triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


async def _check_owner(services: Services, caller: Caller, wanted: AssignLabletRequest) -> None:
    """An owner whom nothing identifies would never see the lablet."""
    if wanted.owner is None:
        return
    team = find_team(await services.directory.teams(), caller, wanted.team)
    if not choose_owner(team, caller, wanted.owner).identity:
        detail = f"owner: no member of team {team.name} has this address; add it to the team first, or leave this empty"
        raise ProblemError(ProblemCode.INVALID, detail)


async def _render(
    services: Services, user: WebUser, lablet: Lablet, form: FormState, *, status: int = 200
) -> HTMLResponse:
    teams = await visible_teams(services, user)
    name = (await services.directory.teams()).name(lablet.team)
    return render_fragment("teams/_assign.html", lablet=lablet, team=name, teams=teams, form=form, status=status)
