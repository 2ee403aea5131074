"""The Teams page: who is in each team and what it may use, read by all roles of the fleet, changed by admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import AdminUser, CurrentUser, is_fragment
from lcm.control_plane.web.forms import FormState, form_field, form_key, form_version, problem_by_field, read_form
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.control_plane.web.teams.team_form import FIELDS, problems_of_form, shown_values, typed_values, wanted_team
from lcm.core import clock
from lcm.model.team import CreateTeamRequest, Team, UpdateTeamRequest

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.tokens import TokenService
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.teams.service import TeamService
    from lcm.model.access import TokenInfo

router = APIRouter(include_in_schema=False)
TeamId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$")]
TEAMS_PER_PAGE: Final = 50
_TOKENS_AT_ONCE: Final = 500


@router.get("/teams")
async def teams_page(
    request: Request, user: CurrentUser, after: Annotated[str | None, Query(max_length=300)] = None
) -> HTMLResponse:
    """The whole page, or only the list for a refresh by a script."""
    teams, following = await get_services(request).teams.page(user.caller, after, TEAMS_PER_PAGE)
    values: dict[str, Any] = {"teams": teams, "after": after, "following": following}
    if is_fragment(request):
        return render_fragment("teams/_teams.html", user=user, **values)
    return await render_page(request, user, "teams/teams.html", here="teams", title="Teams", **values)


@router.get("/teams/new")
async def new_team_form(request: Request, user: AdminUser) -> HTMLResponse:
    """A form for a new team."""
    return _render_form(FormState())


@router.get("/teams/{team_id}/edit")
async def edit_team_form(request: Request, user: AdminUser, team_id: TeamId) -> HTMLResponse:
    """A form with the team as it is."""
    team = await get_services(request).teams.get(user.caller, team_id)
    return _render_form(FormState(shown_values(team)), team_id=team.id, version=team.version)


@router.post("/teams/save")
async def save_team(request: Request, user: AdminUser) -> HTMLResponse:
    """Create or change a team. An invalid form is shown again, with everything that was typed."""
    fields = await read_form(request)
    team_id, version, values = form_field(fields, "team_id"), form_version(fields), typed_values(fields)
    try:
        key = form_key(request, user.caller, fields)
        saved = await _save(get_services(request).teams, user.caller, values, team_id, version, key)
    except ValidationError as error:
        form = FormState(values, problems_of_form(error, values))
        return _render_form(form, team_id=team_id, version=version, status=422)
    except ProblemError as error:
        form = FormState(values, problem_by_field(error, FIELDS))
        return _render_form(form, team_id=team_id, version=version, status=422)
    response = render_toast(f"Team {saved.name} {'saved' if team_id else 'created'}", triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


@router.get("/teams/{team_id}/confirm-delete")
async def confirm_delete(request: Request, user: AdminUser, team_id: TeamId) -> HTMLResponse:
    """What is lost with a team, or what keeps it from being deleted."""
    services = get_services(request)
    team = await services.teams.get(user.caller, team_id)
    used = await services.teams.still_used(user.caller, team_id)
    tokens = await _count_tokens(services.authenticator.tokens, team.id)
    return render_fragment("teams/_confirm_delete.html", team=team, used=used, tokens=tokens)


@router.post("/teams/{team_id}/remove")
async def delete_team(request: Request, user: AdminUser, team_id: TeamId) -> HTMLResponse:
    """Delete a team that nothing uses any more."""
    teams = get_services(request).teams
    name = (await teams.get(user.caller, team_id)).name
    await teams.delete(user.caller, team_id)
    return render_toast(f"Team {name} deleted", triggers=DONE_EVENT)


async def _save(
    teams: TeamService,
    caller: Caller,
    values: dict[str, str],
    team_id: str,
    version: int | None,
    key: IdempotencyKey | None,
) -> Team:
    wanted = wanted_team(values)
    if not team_id:
        return Team.model_validate_json(await teams.create(caller, CreateTeamRequest.model_validate(wanted), key))
    request = UpdateTeamRequest.model_validate(wanted)
    # The form sorts members by role: without their order, every save would be a change of the members.
    before = {each.key: place for place, each in enumerate((await teams.get(caller, team_id)).members)}
    members = sorted(request.members or (), key=lambda each: before.get((each.group, each.email), len(before)))
    request = request.model_copy(update={"members": tuple(members)})
    return Team.model_validate_json(await teams.update(caller, team_id, request, if_match=version, key=key))


async def _count_tokens(tokens: TokenService, team_id: str) -> int:
    """Tokens for the team that still open something."""
    count, after, now = 0, None, clock.now()
    while True:
        page = await tokens.page(after=after, limit=_TOKENS_AT_ONCE)
        count += sum(each.team == team_id and _opens(each, now) for each in page.items)
        after = page.next_cursor
        if after is None:
            return count


def _opens(token: TokenInfo, now: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def _render_form(form: FormState, *, team_id: str = "", version: int | None = None, status: int = 200) -> HTMLResponse:
    return render_fragment("teams/_form.html", form=form, team_id=team_id, version=version, status=status)
