"""The page of one lablet: status details, how to reach it, placement, and the timeline."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.bookings.protection import next_step_of_seat
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.teams.visibility import lablet_not_found, manages, may_change
from lcm.control_plane.web.auth import MemberUser, WebUser
from lcm.control_plane.web.lablets.list_page import worker_names
from lcm.control_plane.web.rendering import render_fragment, render_not_found, render_page
from lcm.control_plane.web.timeline import read_lablet_timeline
from lcm.core import clock
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import lablet_problem, lablet_reason
from lcm.model.worker.record import Worker

router = APIRouter(include_in_schema=False)
_LABLET_ID = re.compile(r"[a-z0-9-]{1,64}")


@router.get("/lablets/{lablet_id}")
async def lablet_page(
    request: Request, user: MemberUser, lablet_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """The whole page; a page that says so if there is no such lablet."""
    try:
        values = await _detail_values(get_services(request), user, lablet_id)
    except ProblemError:
        return await render_not_found(request, user, here="lablets", noun="lablet", record_id=lablet_id)
    store, scope = get_services(request).context.store, user.caller.scope
    timeline = await read_lablet_timeline(store, lablet_id, before, scope=scope)
    values |= {"page_url": f"/lablets/{lablet_id}", "timeline": timeline, "before": before}
    return await render_page(
        request, user, "lablets/detail.html", here="lablets", title=values["lablet"].name, **values
    )


@router.get("/lablets/{lablet_id}/now")
async def lablet_current(request: Request, user: MemberUser, lablet_id: str) -> HTMLResponse:
    """The part that changes with the record."""
    return render_fragment(
        "lablets/_detail.html", user=user, **await _detail_values(get_services(request), user, lablet_id)
    )


@router.get("/lablets/{lablet_id}/timeline")
async def lablet_timeline(
    request: Request, user: MemberUser, lablet_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """One page of the timeline."""
    lablet = await read_lablet(get_services(request), user.caller, lablet_id)
    store, scope = get_services(request).context.store, user.caller.scope
    timeline = await read_lablet_timeline(store, lablet_id, before, scope=scope)
    return render_fragment("shared/_timeline.html", page_url=f"/lablets/{lablet.id}", timeline=timeline, before=before)


async def read_lablet(services: Services, caller: Caller, lablet_id: str) -> Lablet:
    """One lablet. Text that cannot be an ID is rejected without a read of the store."""
    if not _LABLET_ID.fullmatch(lablet_id):
        raise lablet_not_found(lablet_id[:64])
    return Lablet.model_validate_json((await services.lablets.get(caller, lablet_id)).body)


async def _assigned_worker(services: Services, lablet: Lablet) -> Worker | None:
    if lablet.worker_id is None:
        return None
    stored = await services.context.store.get(WORKERS, lablet.worker_id)
    return None if stored is None else Worker.model_validate_json(stored.body)


async def _detail_values(services: Services, user: WebUser, lablet_id: str) -> dict[str, Any]:
    lablet = await read_lablet(services, user.caller, lablet_id)
    placement = lablet.placement
    scale_up_worker = None if placement is None else placement.scale_up_worker_id
    may, now = may_change(user.caller, lablet) and lablet.wanted, clock.now()
    next_step = await next_step_of_seat(services.context.store, lablet, now)
    left_behind = [each.worker_id for each in lablet.left_behind]
    return {
        "lablet": lablet,
        "worker": await _assigned_worker(services, lablet),
        "access": await services.lablets.access(user.caller, lablet_id),
        "names": await worker_names(
            services.context.store, [*left_behind, *([scale_up_worker] if scale_up_worker else [])]
        ),
        "team": (await services.directory.teams()).name(lablet.team),
        "problem": lablet_problem(lablet),
        "why": lablet_reason(lablet),
        "ended": lablet.status in FINAL_LABLET_STATUSES,
        "next_step": next_step,
        "resettable": may and (lablet.status is LabletStatus.RUNNING or bool(next_step)),
        "endable": may and lablet.status not in FINAL_LABLET_STATUSES,
        "manages": manages(user.caller, lablet.team),
    }
