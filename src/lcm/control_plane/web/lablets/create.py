"""The dialog for a new lablet: what it is made from, for whom, where it would go and what that would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.preview import preview_lablet
from lcm.control_plane.records.kinds import DEFINITIONS
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import OperatorUser, read_form
from lcm.control_plane.web.forms import FormState
from lcm.control_plane.web.lablets.forms import LABLET_FIELDS, lablet_form_values, parse_lablet_form, problem_by_field
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment
from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
from lcm.model.lablet.status import LostWorkerPolicy
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import Store

router = APIRouter(include_in_schema=False)
_MAX_DEFINITIONS = 500
_DEFINITION_PROBLEMS = (ProblemCode.NOT_FOUND, ProblemCode.NOT_POSSIBLE_NOW)


@router.get("/lablets/new")
async def new_lablet_form(request: Request, who: OperatorUser) -> HTMLResponse:
    """The form for a new lablet."""
    asked = request.query_params.get("definition", "")
    values = {"definition": asked, "owner": who.caller.name, "lost_worker_policy": LostWorkerPolicy.RESCHEDULE.value}
    return await _render_form(get_services(request), FormState(values))


@router.get("/lablets/new/preview")
async def preview_placement(request: Request, who: OperatorUser) -> HTMLResponse:
    """Where it would go now, and what would be launched for it. Nothing is changed."""
    given = {name: request.query_params.get(name, "").strip() for name in LABLET_FIELDS}
    asked, typed = parse_lablet_form(given)
    if asked is None:
        return render_fragment("lablets/_placement_preview.html", found=None, problems=typed.problems)
    try:
        found = await preview_lablet(get_services(request).plane, asked)
    except ProblemError as refusal:
        return render_fragment("lablets/_placement_preview.html", found=None, problems=_problems_by_field(refusal))
    return render_fragment("lablets/_placement_preview.html", found=found, problems={})


@router.post("/lablets/new")
async def create_lablet(request: Request, who: OperatorUser) -> HTMLResponse:
    """Make it; what is wrong is told at its field, and nothing that was typed is lost."""
    asked, typed = parse_lablet_form(lablet_form_values(await read_form(request)))
    if asked is None:
        return await _render_form(get_services(request), typed, status=422)
    try:
        body = await get_services(request).lablets.create(who.caller, asked)
    except ProblemError as refusal:
        return await _render_form(
            get_services(request),
            FormState(typed.values, _problems_by_field(refusal)),
            status=HTTP_STATUS_BY_CODE.get(refusal.code, 409),
        )
    lablet = Lablet.model_validate_json(body)
    return render_fragment(
        "lablets/_toast_created.html", headers={"HX-Trigger": DONE_EVENT, "HX-Reswap": "none"}, lablet=lablet
    )


async def enabled_definitions(store: Store) -> dict[str, list[LabletDefinitionSummary]]:
    """Those that lablets can be made from by name, the newest version first."""
    enabled = Where(any_of={"enabled": [True]})
    stored = (await store.find(DEFINITIONS, enabled, sort=Sort("name"), limit=_MAX_DEFINITIONS)).items
    found = [LabletDefinitionSummary.model_validate_json(each.body) for each in stored]
    offered: dict[str, list[LabletDefinitionSummary]] = {}
    for each in sorted(found, key=lambda one: (one.created_at, one.id), reverse=True):
        offered.setdefault(each.name, []).append(each)
    return dict(sorted(offered.items()))


def _problems_by_field(refusal: ProblemError) -> Mapping[str, str]:
    problems = problem_by_field(refusal, LABLET_FIELDS)
    if "form" in problems and refusal.code in _DEFINITION_PROBLEMS:
        return {"definition": refusal.detail}
    return problems


async def _render_form(all_parts: Services, typed: FormState, status: int = 200) -> HTMLResponse:
    offered = await enabled_definitions(all_parts.plane.store)
    asked = typed.value("definition")
    known = {each.id for versions in offered.values() for each in versions}
    newest = offered[asked] if asked in offered else next(iter(offered.values()), [])
    chosen = asked if asked in known else newest[0].id if newest else ""
    return render_fragment(
        "lablets/_create.html",
        status=status,
        typed=typed,
        offered=offered,
        chosen=chosen,
        regions=all_parts.plane.regions,
    )
