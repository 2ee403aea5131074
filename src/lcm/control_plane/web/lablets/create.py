"""The dialog for a new lablet: what it is made from, for whom, where it would go and what that would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import Refusal
from lcm.control_plane.lablets.preview import preview
from lcm.control_plane.records.kinds import DEFINITIONS
from lcm.control_plane.services import Parts, parts
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import OperatorVisitor, form_of
from lcm.control_plane.web.forms import Typed
from lcm.control_plane.web.lablets.forms import LABLET_FIELDS, lablet_request, refused_at, typed_lablet
from lcm.control_plane.web.rendering import DONE, fragment
from lcm.model.lablet.record import DefinitionSummary, Lablet
from lcm.model.lablet.status import LostWorkerPolicy
from lcm.model.problems import STATUS, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import Store

router = APIRouter(include_in_schema=False)
_MOST = 500
_ABOUT_DEFINITION = (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW)


@router.get("/lablets/new")
async def new_lablet(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """The form for a new lablet."""
    asked = request.query_params.get("definition", "")
    values = {"definition": asked, "owner": who.caller.name, "lost_worker_policy": LostWorkerPolicy.RESCHEDULE.value}
    return await _form(parts(request), Typed(values))


@router.get("/lablets/new/preview")
async def preview_lablet(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """Where it would go now, and what would be launched for it. Nothing is changed."""
    given = {name: request.query_params.get(name, "").strip() for name in LABLET_FIELDS}
    asked, typed = lablet_request(given)
    if asked is None:
        return fragment("lablets/_placement_preview.html", found=None, problems=typed.problems)
    try:
        found = await preview(parts(request).plane, asked)
    except Refusal as refusal:
        return fragment("lablets/_placement_preview.html", found=None, problems=_refused(refusal))
    return fragment("lablets/_placement_preview.html", found=found, problems={})


@router.post("/lablets/new")
async def make_lablet(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """Make it; what is wrong is told at its field, and nothing that was typed is lost."""
    asked, typed = lablet_request(typed_lablet(await form_of(request)))
    if asked is None:
        return await _form(parts(request), typed, status=422)
    try:
        body = await parts(request).lablets.create(who.caller, asked)
    except Refusal as refusal:
        return await _form(parts(request), Typed(typed.values, _refused(refusal)), status=STATUS.get(refusal.code, 409))
    lablet = Lablet.model_validate_json(body)
    return fragment("lablets/_toast_created.html", headers={"HX-Trigger": DONE, "HX-Reswap": "none"}, lablet=lablet)


async def offered_definitions(store: Store) -> dict[str, list[DefinitionSummary]]:
    """Those that lablets can be made from by name, the newest version first."""
    enabled = Where(any_of={"enabled": [True]})
    stored = (await store.find(DEFINITIONS, enabled, sort=Sort("name"), limit=_MOST)).items
    found = [DefinitionSummary.model_validate_json(each.body) for each in stored]
    offered: dict[str, list[DefinitionSummary]] = {}
    for each in sorted(found, key=lambda one: (one.created_at, one.id), reverse=True):
        offered.setdefault(each.name, []).append(each)
    return dict(sorted(offered.items()))


def _refused(refusal: Refusal) -> Mapping[str, str]:
    problems = refused_at(refusal, LABLET_FIELDS)
    if "form" in problems and refusal.code in _ABOUT_DEFINITION:
        return {"definition": refusal.detail}
    return problems


async def _form(all_parts: Parts, typed: Typed, status: int = 200) -> HTMLResponse:
    offered = await offered_definitions(all_parts.plane.store)
    asked = typed.value("definition")
    known = {each.id for versions in offered.values() for each in versions}
    newest = offered[asked] if asked in offered else next(iter(offered.values()), [])
    chosen = asked if asked in known else newest[0].id if newest else ""
    return fragment(
        "lablets/_create.html",
        status=status,
        typed=typed,
        offered=offered,
        chosen=chosen,
        regions=all_parts.plane.regions,
    )
