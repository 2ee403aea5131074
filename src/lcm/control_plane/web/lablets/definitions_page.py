"""Definitions: what lablets are made from, version by version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import Refusal
from lcm.control_plane.http.api.definitions import DefinitionName, TheVersion
from lcm.control_plane.lablets.control_plane_definitions import add_definition, read_definition, switch_definition
from lcm.control_plane.records.kinds import DEFINITIONS, LABLETS
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import AdminVisitor, OperatorVisitor, Visitor, form_of, is_fragment
from lcm.control_plane.web.forms import Typed
from lcm.control_plane.web.lablets.forms import (
    DEFINITION_FIELDS,
    definition_request,
    form_of_definition,
    refused_at,
    typed_definition,
)
from lcm.control_plane.web.rendering import DONE, fragment, page, toast
from lcm.core import clock
from lcm.model.lablet.record import DefinitionSummary
from lcm.model.problems import STATUS

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Change
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.record import LabletDefinition

router = APIRouter(include_in_schema=False)
MOST = 500
_EMPTY = {"cpu_cores": "1", "memory_gb": "1", "storage_gb": "1", "nodes": "1", "license": "on"}


@router.get("/definitions")
async def definitions(request: Request, who: Visitor) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    store = parts(request).plane.store
    q = request.query_params.get("q", "").strip()[:100]
    found = await store.find(DEFINITIONS, Where(contains={"name": q} if q else {}), sort=Sort("name"), limit=MOST)
    listed = [DefinitionSummary.model_validate_json(each.body) for each in found.items]
    listed.sort(key=lambda each: (each.created_at, each.id), reverse=True)
    listed.sort(key=lambda each: each.name)
    values: dict[str, Any] = {
        "definitions": listed,
        "newest": _newest(listed),
        "used": await _used(store),
        "cut": found.next_after is not None,
        "most": MOST,
        "q": q,
    }
    if is_fragment(request):
        return fragment("definitions/_table.html", who=who, **values)
    return await page(request, who, "definitions/list.html", here="lablets", title="Definitions", **values)


@router.get("/definitions/new")
async def new(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """An empty form, or one that begins as a copy of another version."""
    like = request.query_params.get("like", "")
    values = form_of_definition(await read_definition(parts(request).plane.store, like)) if like else dict(_EMPTY)
    return fragment("definitions/_form.html", typed=Typed(values))


@router.post("/definitions/save")
async def save(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """Make a version. What is wrong is said at its field, and nothing that was typed is lost."""
    asked, typed = definition_request(typed_definition(await form_of(request)))
    if asked is None:
        return fragment("definitions/_form.html", status=422, typed=typed)
    wanted = asked

    async def attempt(change: Change) -> tuple[LabletDefinition, bool]:
        return await add_definition(change, wanted, who.caller.name)

    try:
        made, new = await parts(request).plane.records.change(who.caller.actor, attempt)
    except Refusal as refusal:
        problems = refused_at(refusal, DEFINITION_FIELDS)
        status = STATUS.get(refusal.code, 409)
        return fragment("definitions/_form.html", status=status, typed=Typed(typed.values, problems))
    answer = toast(f"{made.id} {'is made' if new else 'was there already, with the same content'}", triggers=DONE)
    answer.headers["HX-Reswap"] = "none"
    return answer


@router.get("/definitions/{name}/{version}/topology")
async def topology(request: Request, who: Visitor, name: DefinitionName, version: TheVersion) -> HTMLResponse:
    """What CML is given, as it was written."""
    definition = await read_definition(parts(request).plane.store, f"{name}@{version}")
    return fragment("definitions/_topology.html", definition=definition)


@router.post("/definitions/{name}/{version}/{switch}")
async def switch(
    request: Request,
    who: AdminVisitor,
    name: DefinitionName,
    version: TheVersion,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
) -> HTMLResponse:
    """Let lablets be made from it, or no more."""
    definition_id, enabled = f"{name}@{version}", switch == "enable"

    async def attempt(change: Change) -> LabletDefinition:
        return await switch_definition(change, definition_id, enabled=enabled)

    await parts(request).plane.records.change(who.caller.actor, attempt)
    words = "Lablets can be made from" if enabled else "No more lablets can be made from"
    return toast(f"{words} {definition_id}", triggers=DONE)


def _newest(listed: list[DefinitionSummary]) -> set[str]:
    """The version of each name that whoever names none gets: the newest that is enabled."""
    first: dict[str, str] = {}
    for each in listed:
        if each.enabled:
            first.setdefault(each.name, each.id)
    return set(first.values())


async def _used(store: Store) -> dict[str, int]:
    """How many lablets of the present were made from each version."""
    present = Where(at_least={"shown_until": clock.now().isoformat()})
    rows = await store.count_by(LABLETS, ["definition"], present)
    return {str(values[0]): count for values, count, _ in rows}
