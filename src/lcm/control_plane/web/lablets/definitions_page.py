"""The Definitions page: the versions that lablets are created from, and the form for a new version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.definitions import (
    DefinitionNamePath,
    DefinitionVersionPath,
    TeamQuery,
    find_visible,
    require_switch,
)
from lcm.control_plane.lablets.definition_preview import preview_definition_change
from lcm.control_plane.lablets.definitions import (
    add_definition,
    definition_not_found,
    read_definition,
    read_definition_summary,
    set_definition_enabled,
)
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import DEFINITIONS, LABLETS, in_team
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.teams.choice import add_to_team, choose_team
from lcm.control_plane.teams.visibility import definitions_in_scope, lablets_in_scope
from lcm.control_plane.web.auth import CreatorUser, InstructorUser, SwitchUser, is_fragment
from lcm.control_plane.web.forms import (
    FormState,
    field_problems,
    form_field,
    form_key,
    parse_number,
    problem_by_field,
    read_form,
)
from lcm.control_plane.web.lablets.create import teams_to_create_in
from lcm.control_plane.web.lablets.list_page import chosen_team, team_condition, visible_teams
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.core import clock
from lcm.model.change_preview import DefinitionAction
from lcm.model.lablet.record import CreateDefinitionRequest, LabletDefinitionSummary
from lcm.model.problems import HTTP_STATUS_BY_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.roles import Scope
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.record import LabletDefinition

router = APIRouter(include_in_schema=False)
MAX_DEFINITIONS = 500
_FORM_FIELDS: Final = (
    "name",
    "version",
    "team",
    "description",
    "topology",
    "cpu_cores",
    "memory_gb",
    "storage_gb",
    "nodes",
    "license",
    "cml_version",
    "node_definitions",
    "ports",
    "time_to_live_minutes",
)
_NUMBER_FIELDS = ("cpu_cores", "memory_gb", "storage_gb", "nodes")
_LIST_FIELDS = ("node_definitions", "ports")
_FIELD_HINTS: Final = {
    "ports": "capital letters, digits and underscores, each name once, such as SSH_PORT",
}
_SEPARATOR = re.compile(r"[\s,]+")
_EMPTY_FORM = {"cpu_cores": "1", "memory_gb": "1", "storage_gb": "1", "nodes": "1", "license": "on"}


class SavedDefinition(BaseModel):
    """The outcome of the form: which version, and whether it is new."""

    id: str
    created: bool


@router.get("/definitions")
async def definitions_page(request: Request, user: InstructorUser) -> HTMLResponse:
    """The whole page, or only the table for a refresh by a script."""
    store = get_services(request).context.store
    q = request.query_params.get("q", "").strip()[:100]
    scope = user.caller.scope
    team = chosen_team(request)
    where = Where(any_of=team_condition(team), contains={"name": q} if q else {}, either=definitions_in_scope(scope))
    page = await store.find(DEFINITIONS, where, sort=Sort("name"), limit=MAX_DEFINITIONS)
    definitions = readable_records(page.items, LabletDefinitionSummary, "definition")
    definitions.sort(key=lambda each: (each.created_at, each.id), reverse=True)
    definitions.sort(key=lambda each: each.name)
    values: dict[str, Any] = {
        "definitions": definitions,
        "newest": _newest_enabled(definitions),
        "used": await _lablets_per_definition(store, scope),
        "teams": await visible_teams(get_services(request), user),
        "truncated": page.next_cursor is not None,
        "limit": MAX_DEFINITIONS,
        "q": q,
        "team": team,
        "address": f"/definitions?{urlencode({'q': q, 'team': team})}" if q or team else "/definitions",
    }
    if is_fragment(request):
        return render_fragment("definitions/_table.html", user=user, **values)
    return await render_page(request, user, "definitions/list.html", here="lablets", title="Definitions", **values)


@router.get("/definitions/new")
async def new_definition_form(request: Request, user: CreatorUser) -> HTMLResponse:
    """An empty form, or a copy of another version."""
    services, like = get_services(request), request.query_params.get("like", "")
    values = dict(_EMPTY_FORM)
    if like:
        # Not with the topology: what another team has is read as far as what does not exist.
        found = await read_definition_summary(services.context.store, like)
        if not user.caller.scope.manages(found.team):
            raise definition_not_found(like)
        values = copied_definition_values(await read_definition(services.context.store, like))
    teams = await teams_to_create_in(services, user)
    return render_fragment("definitions/_form.html", form=FormState(values), teams=teams, user=user)


@router.post("/definitions/save")
async def save_definition(request: Request, user: CreatorUser) -> HTMLResponse:
    """Create a version. An invalid form is shown again, with its problems and everything that was typed."""
    fields = await read_form(request)
    services = get_services(request)
    shared: dict[str, Any] = {"teams": await teams_to_create_in(services, user), "user": user}
    create_request, form = parse_definition_form(definition_form_values(fields))
    if create_request is None:
        return render_fragment("definitions/_form.html", status=422, form=form, **shared)
    key = form_key(request, user.caller, fields)
    try:
        team = choose_team(await services.directory.teams(), user.caller, create_request.team)
        team_id = "" if team is None else team.id

        async def attempt(tx: Transaction) -> SavedDefinition:
            await add_to_team(tx, team_id)
            definition, created = await add_definition(tx, create_request, user.caller.name, team_id)
            return SavedDefinition(id=definition.reference, created=created)

        body = await run_idempotent(services.context.unit_of_work, user.caller.actor, key, attempt)
    except ProblemError as error:
        problems = problem_by_field(error, _FORM_FIELDS)
        status = HTTP_STATUS_BY_CODE.get(error.code, 409)
        form = FormState(form.values, problems)
        return render_fragment("definitions/_form.html", status=status, form=form, **shared)
    saved = SavedDefinition.model_validate_json(body)
    outcome = "created" if saved.created else "already exists with the same content"
    response = render_toast(f"{saved.id} {outcome}", triggers=DONE_EVENT)
    response.headers["HX-Reswap"] = "none"
    return response


@router.get("/definitions/{name}/{version}/topology")
async def topology_dialog(
    request: Request,
    user: InstructorUser,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    team: TeamQuery = None,
) -> HTMLResponse:
    """The topology as it was written."""
    services = get_services(request)
    found = await find_visible(services, user.caller, name, version, team)
    definition = await read_definition(services.context.store, found.id)
    return render_fragment("definitions/_topology.html", definition=definition)


@router.get("/definitions/{name}/{version}/confirm-disable")
async def confirm_disable(
    request: Request,
    user: SwitchUser,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    team: TeamQuery = None,
) -> HTMLResponse:
    """What disabling a version would do."""
    services = get_services(request)
    found = await find_visible(services, user.caller, name, version, team)
    preview = await preview_definition_change(services.context.store, found, DefinitionAction.DISABLE)
    return render_fragment(
        "shared/_confirm_switch.html",
        verb="Disable",
        action_url=f"/definitions/{name}/{version}/disable{_team_query(found)}",
        what=found.reference,
        effect=preview.effect,
    )


@router.post("/definitions/{name}/{version}/{switch}")
async def toggle_definition(
    request: Request,
    user: SwitchUser,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
    team: TeamQuery = None,
) -> HTMLResponse:
    """Enable or disable a version for new lablets."""
    enabled = switch == "enable"
    key = form_key(request, user.caller, await read_form(request))
    services = get_services(request)
    found = await find_visible(services, user.caller, name, version, team)
    require_switch(user.caller, found)

    async def attempt(tx: Transaction) -> LabletDefinition:
        return await set_definition_enabled(tx, found.id, enabled=enabled)

    await run_idempotent(services.context.unit_of_work, user.caller.actor, key, attempt)
    return render_toast(f"{found.reference} {'enabled' if enabled else 'disabled'}", triggers=DONE_EVENT)


def _team_query(definition: LabletDefinitionSummary) -> str:
    return f"?team={definition.team}" if definition.team else ""


def definition_form_values(fields: dict[str, list[str]]) -> dict[str, str]:
    """The text of each field. Browsers send line ends as CR LF, which the topology does not keep."""
    values = {name: form_field(fields, name) for name in _FORM_FIELDS}
    return {**values, "topology": fields.get("topology", [""])[-1].replace("\r\n", "\n")}


def parse_definition_form(values: Mapping[str, str]) -> tuple[CreateDefinitionRequest | None, FormState]:
    """The request of a form, or None, and the form with its problems."""
    needs: dict[str, Any] = {name: parse_number(values.get(name, "")) for name in _NUMBER_FIELDS}
    needs |= {name: [each for each in _SEPARATOR.split(values.get(name, "")) if each] for name in _LIST_FIELDS}
    needs |= {"license": values.get("license") == "on", "cml_version": values.get("cml_version") or None}
    request: dict[str, Any] = {name: values.get(name, "") for name in ("name", "version", "description", "topology")}
    if values.get("team"):
        request["team"] = values["team"]
    if values.get("time_to_live_minutes"):
        request["time_to_live_minutes"] = parse_number(values["time_to_live_minutes"])
    try:
        return CreateDefinitionRequest.model_validate({**request, "requirements": needs}), FormState(values)
    except ValidationError as error:
        problems = _definition_problems(error)
        empty = {name: "must not be empty" for name in problems if not values.get(name)}
        return None, FormState(values, problems | empty)


def copied_definition_values(definition: LabletDefinition) -> dict[str, str]:
    """The fields for a new version of a definition. The version itself is left for the user to enter."""
    needs = definition.requirements
    time_limit = definition.time_to_live_minutes
    return {
        "name": definition.name,
        "version": "",
        "team": definition.team,
        "description": definition.description,
        "topology": definition.topology,
        "cpu_cores": f"{needs.cpu_cores:.15g}",
        "memory_gb": f"{needs.memory_gb:.15g}",
        "storage_gb": f"{needs.storage_gb:.15g}",
        "nodes": str(needs.nodes),
        "license": "on" if needs.license else "",
        "cml_version": needs.cml_version or "",
        "node_definitions": ", ".join(needs.node_definitions),
        "ports": ", ".join(needs.ports),
        "time_to_live_minutes": "" if time_limit is None else f"{time_limit:.15g}",
    }


def _definition_problems(error: ValidationError) -> dict[str, str]:
    """The first problem of each field, wherever in the requirements or in a list it is."""
    problems: dict[str, str] = {}
    for path, text in field_problems(error).items():
        name = path.removeprefix("requirements.").partition(".")[0]
        problems.setdefault(name, _FIELD_HINTS.get(name, text))
    return problems


def _newest_enabled(definitions: list[LabletDefinitionSummary]) -> set[str]:
    """The newest enabled version of each name in each team, which is the default version."""
    first: dict[tuple[str, str], str] = {}
    for each in definitions:
        if each.enabled:
            first.setdefault((each.team, each.name), each.id)
    return set(first.values())


async def _lablets_per_definition(store: Store, scope: Scope) -> dict[str, int]:
    """How many current lablets use each version, by team and version."""
    current = Where(at_least={"shown_until": clock.now().isoformat()}, either=lablets_in_scope(scope))
    rows = await store.count_by(LABLETS, ["team", "definition"], current)
    return {in_team(str(values[0] or ""), str(values[1])): count for values, count, _ in rows}
