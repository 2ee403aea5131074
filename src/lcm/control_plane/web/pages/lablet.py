"""One lablet: where it is and why, how its nodes are reached, what has happened to it, and its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.commands.refusal import Refusal
from lcm.control_plane.fleet import read_fleet
from lcm.control_plane.kinds import WORKERS
from lcm.control_plane.routes.parts import Parts, parts
from lcm.control_plane.store.port import BadCursor
from lcm.control_plane.web.lablet_consequences import foresee_end
from lcm.control_plane.web.lablet_rows import worker_names
from lcm.control_plane.web.lablet_timeline import read_lablet_timeline
from lcm.control_plane.web.pages.acting import DONE
from lcm.control_plane.web.rendering import fragment, page, toast
from lcm.control_plane.web.visitors import Looking, OperatorVisitor, Visitor, field_of, form_of
from lcm.core import clock
from lcm.model.lablet import Lablet
from lcm.model.lablet_attention import lablet_problem, why_lablet
from lcm.model.lablet_status import FINAL
from lcm.model.problems import ProblemCode
from lcm.model.worker import Worker

if TYPE_CHECKING:
    from lcm.control_plane.web.timeline import Timeline
    from lcm.model.worker import Hold

router = APIRouter(include_in_schema=False)
_ID = re.compile(r"[a-z0-9-]{1,64}")


@router.get("/lablets/{lablet_id}")
async def lablet_page(
    request: Request, who: Visitor, lablet_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """The whole page. One that does not exist has a page too, which says so."""
    try:
        values = await _present(parts(request), who, lablet_id)
    except Refusal:
        return await page(
            request, who, "lablet_missing.html", here="lablets", title="No such lablet", status=404, lablet_id=lablet_id
        )
    del values["who"]
    timeline = await _timeline(parts(request), lablet_id, before)
    values |= {"place": f"/lablets/{lablet_id}", "timeline": timeline, "before": before}
    return await page(request, who, "lablet.html", here="lablets", title=values["lablet"].name, **values)


@router.get("/lablets/{lablet_id}/now")
async def lablet_now(request: Request, who: Visitor, lablet_id: str) -> HTMLResponse:
    """What changes with the record."""
    return fragment("_lablet.html", **await _present(parts(request), who, lablet_id))


@router.get("/lablets/{lablet_id}/timeline")
async def lablet_timeline(
    request: Request, who: Visitor, lablet_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """A page of what happened."""
    lablet = await _lablet(parts(request), lablet_id)
    timeline = await _timeline(parts(request), lablet_id, before)
    return fragment("_timeline.html", place=f"/lablets/{lablet.id}", timeline=timeline, before=before)


@router.get("/lablets/{lablet_id}/confirm-end")
async def confirm_end(request: Request, who: OperatorVisitor, lablet_id: str) -> HTMLResponse:
    """What would be lost with it."""
    lablet = await _lablet(parts(request), lablet_id)
    worker = await _worker(parts(request), lablet)
    found = foresee_end(lablet, worker.name if worker else "", await _hold(parts(request), worker), clock.now())
    return fragment("_lablet_end.html", lablet=lablet, found=found)


@router.post("/lablets/{lablet_id}/end")
async def end(request: Request, who: OperatorVisitor, lablet_id: str) -> HTMLResponse:
    """End it, unless it changed since it was looked at."""
    await _lablet(parts(request), lablet_id)
    form = await form_of(request)
    version = field_of(form, "version")
    body = await parts(request).lablets.terminate(
        who.caller,
        lablet_id,
        reason=field_of(form, "reason")[:500] or None,
        if_match=int(version) if version.isdecimal() else None,
    )
    lablet = Lablet.model_validate_json(body)
    return toast(f"{lablet.name}: {'has ended' if lablet.status in FINAL else 'is to end'}", triggers=DONE)


async def _lablet(all_parts: Parts, lablet_id: str) -> Lablet:
    if not _ID.fullmatch(lablet_id):
        raise Refusal(ProblemCode.NOT_FOUND, "there is no such lablet")
    return Lablet.model_validate_json((await all_parts.lablets.get(lablet_id)).body)


async def _worker(all_parts: Parts, lablet: Lablet) -> Worker | None:
    if lablet.worker_id is None:
        return None
    stored = await all_parts.plane.store.get(WORKERS, lablet.worker_id)
    return None if stored is None else Worker.model_validate_json(stored.body)


async def _hold(all_parts: Parts, worker: Worker | None) -> Hold | None:
    """What keeps its lab as it is: a hold of the fleet, or of its worker."""
    fleet = (await read_fleet(all_parts.plane.store)).hold
    holds = (fleet, None if worker is None else worker.hold)
    return next((each for each in holds if each is not None and each.active(clock.now())), None)


async def _timeline(all_parts: Parts, lablet_id: str, before: str | None) -> Timeline:
    """A place that no longer means anything is the newest page, not an error."""
    store = all_parts.plane.store
    try:
        return await read_lablet_timeline(store, lablet_id, before)
    except BadCursor:
        return await read_lablet_timeline(store, lablet_id)


async def _present(all_parts: Parts, who: Looking, lablet_id: str) -> dict[str, Any]:
    lablet = await _lablet(all_parts, lablet_id)
    placement = lablet.placement
    asked_for = None if placement is None else placement.scale_up_worker_id
    left = [each.worker_id for each in lablet.left_behind]
    return {
        "who": who,
        "lablet": lablet,
        "worker": await _worker(all_parts, lablet),
        "names": await worker_names(all_parts.plane.store, [*left, *([asked_for] if asked_for else [])]),
        "problem": lablet_problem(lablet),
        "why": why_lablet(lablet),
        "ended": lablet.status in FINAL,
        "endable": who.operates and lablet.wanted and lablet.status not in FINAL,
    }
