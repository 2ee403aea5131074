"""One worker: what it is, why, what has happened to it, how loaded it is, and what can be done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse

from lcm.control_plane.errors import Refusal
from lcm.control_plane.fleet.service import PAYING
from lcm.control_plane.services import Parts, parts
from lcm.control_plane.web.auth import Looking, Visitor
from lcm.control_plane.web.lablets.lablet_rows import lablets_of
from lcm.control_plane.web.rendering import fragment, missing, page
from lcm.control_plane.web.timeline import read_timeline
from lcm.control_plane.web.workers.action_preview import ACTIONS, possible_actions
from lcm.control_plane.web.workers.plots import HOURS, read_plots
from lcm.core import clock
from lcm.model.worker.cost import cost_so_far
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerStatus
from lcm.model.worker.urgency import problem_of

router = APIRouter(include_in_schema=False)


@router.get("/workers/{worker_id}")
async def worker_page(
    request: Request, who: Visitor, worker_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """The whole page. One that does not exist has a page too, which says so."""
    try:
        values = await _present(parts(request), who, worker_id)
    except Refusal:
        return await missing(request, who, here="fleet", noun="worker", record_id=worker_id)
    timeline = await read_timeline(parts(request).plane.store, worker_id, before)
    values |= {"place": f"/workers/{worker_id}", "timeline": timeline, "before": before, "hours": HOURS}
    return await page(request, who, "workers/detail.html", here="fleet", title=values["worker"].name, **values)


@router.get("/workers/{worker_id}/now")
async def worker_now(request: Request, who: Visitor, worker_id: str) -> HTMLResponse:
    """What changes with the record and with what is decided."""
    return fragment("workers/_detail.html", who=who, **await _present(parts(request), who, worker_id))


@router.get("/workers/{worker_id}/timeline")
async def worker_timeline(
    request: Request, who: Visitor, worker_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """A page of what happened."""
    worker = await _worker(parts(request), worker_id)
    timeline = await read_timeline(parts(request).plane.store, worker_id, before)
    return fragment("shared/_timeline.html", place=f"/workers/{worker.id}", timeline=timeline, before=before)


@router.get("/workers/{worker_id}/plots")
async def worker_plots(request: Request, who: Visitor, worker_id: str, hours: int = 1) -> JSONResponse:
    """Figures for the plots. A span that is not offered is the shortest one."""
    worker = await _worker(parts(request), worker_id)
    now = clock.now()
    since = now - timedelta(hours=hours if hours in HOURS else HOURS[0])
    return JSONResponse(await read_plots(parts(request).plane.store, worker, since, now))


async def _worker(all_parts: Parts, worker_id: str) -> Worker:
    return Worker.model_validate_json((await all_parts.workers.get(worker_id)).body)


async def _present(all_parts: Parts, who: Looking, worker_id: str) -> dict[str, Any]:
    # The record first: what is read after it may be newer, never older than the version that is shown.
    worker = await _worker(all_parts, worker_id)
    explanation = await all_parts.workers.explain(worker_id)
    now = clock.now()
    changeable = who.operates and worker.status is not WorkerStatus.TERMINATED
    return {
        "worker": worker,
        "explanation": explanation,
        "decision": explanation.decision,
        "problem": problem_of(worker),
        "actions": _actions(worker) if who.operates else [],
        "changeable": changeable,
        "licence_operations": licence_operations(worker) if changeable else [],
        "paying": worker.status in PAYING,
        "cost": cost_so_far(worker, now),
        "saved": _saved(worker),
        "lablets": await lablets_of(all_parts.plane.store, worker_id),
    }


def _actions(worker: Worker) -> list[tuple[str, str]]:
    now = clock.now()
    held = worker.hold is not None and worker.hold.active(now)
    return [
        (action, "Change the hold" if action == "hold" and held else ACTIONS[action].removesuffix(" of"))
        for action in possible_actions(worker, now)
    ]


def licence_operations(worker: Worker) -> list[LicenseOperation]:
    """What can be done with its licence now."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return []
    pending = worker.pending_license_operation
    has_one = worker.has_license_token or worker.license_status in (
        LicenseStatus.REGISTERED,
        LicenseStatus.REGISTERING,
        LicenseStatus.FAILED,
    )
    asked_back = pending is not None and pending.operation is LicenseOperation.DEREGISTER
    back = [LicenseOperation.DEREGISTER] if has_one and not asked_back else []
    return [LicenseOperation.REGISTER, *back]


def _saved(worker: Worker) -> float | None:
    """What its stops have saved."""
    if worker.cost_per_hour_usd is None:
        return None
    seconds = worker.stopped_seconds
    if worker.status is WorkerStatus.STOPPED:
        seconds += (clock.now() - worker.status_since).total_seconds()
    return worker.cost_per_hour_usd * seconds / 3600
