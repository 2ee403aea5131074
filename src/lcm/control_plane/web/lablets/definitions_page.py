"""Definitions: what lablets are made from, version by version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.definitions import DefinitionNamePath, DefinitionVersionPath
from lcm.control_plane.lablets.definitions import add_definition, read_definition, set_definition_enabled
from lcm.control_plane.records.kinds import DEFINITIONS, LABLETS
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import AdminUser, CurrentUser, OperatorUser, is_fragment, read_form
from lcm.control_plane.web.forms import FormState
from lcm.control_plane.web.lablets.forms import (
    DEFINITION_FIELDS,
    copied_definition_values,
    definition_form_values,
    parse_definition_form,
    problem_by_field,
)
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.core import clock
from lcm.model.lablet.record import LabletDefinitionSummary
from lcm.model.problems import HTTP_STATUS_BY_CODE

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.record import LabletDefinition

router = APIRouter(include_in_schema=False)
MAX_DEFINITIONS = 500
_EMPTY_FORM = {"cpu_cores": "1", "memory_gb": "1", "storage_gb": "1", "nodes": "1", "license": "on"}


@router.get("/definitions")
async def definitions_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    store = get_services(request).plane.store
    q = request.query_params.get("q", "").strip()[:100]
    found = await store.find(
        DEFINITIONS, Where(contains={"name": q} if q else {}), sort=Sort("name"), limit=MAX_DEFINITIONS
    )
    listed = [LabletDefinitionSummary.model_validate_json(each.body) for each in found.items]
    listed.sort(key=lambda each: (each.created_at, each.id), reverse=True)
    listed.sort(key=lambda each: each.name)
    values: dict[str, Any] = {
        "definitions": listed,
        "newest": _newest_enabled(listed),
        "used": await _lablets_per_definition(store),
        "cut": found.next_cursor is not None,
        "most": MAX_DEFINITIONS,
        "q": q,
    }
    if is_fragment(request):
        return render_fragment("definitions/_table.html", who=who, **values)
    return await render_page(request, who, "definitions/list.html", here="lablets", title="Definitions", **values)


@router.get("/definitions/new")
async def new_definition_form(request: Request, who: OperatorUser) -> HTMLResponse:
    """An empty form, or one that begins as a copy of another version."""
    like = request.query_params.get("like", "")
    values = (
        copied_definition_values(await read_definition(get_services(request).plane.store, like))
        if like
        else dict(_EMPTY_FORM)
    )
    return render_fragment("definitions/_form.html", typed=FormState(values))


@router.post("/definitions/save")
async def save_definition(request: Request, who: OperatorUser) -> HTMLResponse:
    """Make a version. What is wrong is said at its field, and nothing that was typed is lost."""
    asked, typed = parse_definition_form(definition_form_values(await read_form(request)))
    if asked is None:
        return render_fragment("definitions/_form.html", status=422, typed=typed)
    wanted = asked

    async def attempt(change: Transaction) -> tuple[LabletDefinition, bool]:
        return await add_definition(change, wanted, who.caller.name)

    try:
        made, new_definition_form = await get_services(request).plane.records.change(who.caller.actor, attempt)
    except ProblemError as refusal:
        problems = problem_by_field(refusal, DEFINITION_FIELDS)
        status = HTTP_STATUS_BY_CODE.get(refusal.code, 409)
        return render_fragment("definitions/_form.html", status=status, typed=FormState(typed.values, problems))
    answer = render_toast(
        f"{made.id} {'is made' if new_definition_form else 'was there already, with the same content'}",
        triggers=DONE_EVENT,
    )
    answer.headers["HX-Reswap"] = "none"
    return answer


@router.get("/definitions/{name}/{version}/topology")
async def topology_dialog(
    request: Request, who: CurrentUser, name: DefinitionNamePath, version: DefinitionVersionPath
) -> HTMLResponse:
    """What CML is given, as it was written."""
    definition = await read_definition(get_services(request).plane.store, f"{name}@{version}")
    return render_fragment("definitions/_topology.html", definition=definition)


@router.post("/definitions/{name}/{version}/{switch}")
async def toggle_definition(
    request: Request,
    who: AdminUser,
    name: DefinitionNamePath,
    version: DefinitionVersionPath,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
) -> HTMLResponse:
    """Let lablets be made from it, or no more."""
    definition_id, enabled = f"{name}@{version}", switch == "enable"

    async def attempt(change: Transaction) -> LabletDefinition:
        return await set_definition_enabled(change, definition_id, enabled=enabled)

    await get_services(request).plane.records.change(who.caller.actor, attempt)
    words = "Lablets can be made from" if enabled else "No more lablets can be made from"
    return render_toast(f"{words} {definition_id}", triggers=DONE_EVENT)


def _newest_enabled(listed: list[LabletDefinitionSummary]) -> set[str]:
    """The version of each name that whoever names none gets: the newest that is enabled."""
    first: dict[str, str] = {}
    for each in listed:
        if each.enabled:
            first.setdefault(each.name, each.id)
    return set(first.values())


async def _lablets_per_definition(store: Store) -> dict[str, int]:
    """How many lablets of the present were made from each version."""
    present = Where(at_least={"shown_until": clock.now().isoformat()})
    rows = await store.count_by(LABLETS, ["definition"], present)
    return {str(values[0]): count for values, count, _ in rows}
