"""The page of one worker: status details, conditions, timeline, load plots, and the available actions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.web.auth import CurrentUser, WebUser
from lcm.control_plane.web.lablets.list_page import lablets_on_worker
from lcm.control_plane.web.rendering import render_fragment, render_not_found, render_page
from lcm.control_plane.web.timeline import read_worker_timeline
from lcm.control_plane.web.workers.plots import PLOT_HOURS, read_plots
from lcm.control_plane.workers.action_preview import WORKER_ACTIONS, available_actions
from lcm.core import clock
from lcm.model.worker.cost import cost_if, cost_so_far, instance_runs
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerStatus
from lcm.model.worker.urgency import worker_problem

router = APIRouter(include_in_schema=False)


@router.get("/workers/{worker_id}")
async def worker_page(
    request: Request, user: CurrentUser, worker_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """The whole page; a page that says so if there is no such worker."""
    try:
        values = await _detail_values(get_services(request), user, worker_id)
    except ProblemError:
        return await render_not_found(request, user, here="fleet", noun="worker", record_id=worker_id)
    timeline = await read_worker_timeline(get_services(request).context.store, worker_id, before)
    values |= {"page_url": f"/workers/{worker_id}", "timeline": timeline, "before": before, "hours": PLOT_HOURS}
    return await render_page(request, user, "workers/detail.html", here="fleet", title=values["worker"].name, **values)


@router.get("/workers/{worker_id}/now")
async def worker_current(request: Request, user: CurrentUser, worker_id: str) -> HTMLResponse:
    """The part that changes with the record and with decisions."""
    return render_fragment(
        "workers/_detail.html", user=user, **await _detail_values(get_services(request), user, worker_id)
    )


@router.get("/workers/{worker_id}/timeline")
async def worker_timeline(
    request: Request, user: CurrentUser, worker_id: str, before: str | None = Query(None, max_length=64)
) -> HTMLResponse:
    """One page of the timeline."""
    worker = await _read_worker(get_services(request), worker_id)
    timeline = await read_worker_timeline(get_services(request).context.store, worker_id, before)
    return render_fragment("shared/_timeline.html", page_url=f"/workers/{worker.id}", timeline=timeline, before=before)


@router.get("/workers/{worker_id}/plots")
async def worker_plots(request: Request, user: CurrentUser, worker_id: str, hours: int = 1) -> JSONResponse:
    """Data for the plots. An unknown range gives the shortest one."""
    worker = await _read_worker(get_services(request), worker_id)
    now = clock.now()
    since = now - timedelta(hours=hours if hours in PLOT_HOURS else PLOT_HOURS[0])
    return JSONResponse(await read_plots(get_services(request).context.store, worker, since, now))


async def _read_worker(services: Services, worker_id: str) -> Worker:
    return Worker.model_validate_json((await services.workers.get(worker_id)).body)


async def _detail_values(services: Services, user: WebUser, worker_id: str) -> dict[str, Any]:
    # The record is read first: whatever is read later may be newer than the version shown, but never older.
    worker = await _read_worker(services, worker_id)
    explanation = await services.workers.explain(worker_id)
    now = clock.now()
    changeable = user.can_operate and worker.status is not WorkerStatus.TERMINATED
    return {
        "worker": worker,
        "explanation": explanation,
        "decision": explanation.decision,
        "problem": worker_problem(worker),
        "override": worker.override if worker.override is not None and worker.override.active(now) else None,
        "schedules": await services.schedules.statuses_of(worker),
        "actions": _offered_actions(worker) if user.can_operate else [],
        "changeable": changeable,
        "license_operations": license_operations(worker) if changeable else [],
        "billed": instance_runs(worker),
        "cost_when_running": cost_if(worker, running=True),
        "cost": cost_so_far(worker, now),
        "saved": _saved_by_stops(worker),
        "lablets": await lablets_on_worker(services.context.store, worker_id),
        "team": (await services.directory.teams()).name(worker.team) if worker.team else "",
        "booked": worker.is_booked(now),
    }


def _offered_actions(worker: Worker) -> list[tuple[str, str]]:
    now = clock.now()
    held = worker.hold is not None and worker.hold.active(now)
    return [
        (action, "Change the hold" if action == "hold" and held else WORKER_ACTIONS[action].removesuffix(" of"))
        for action in available_actions(worker, now)
    ]


def license_operations(worker: Worker) -> list[LicenseOperation]:
    """The license operations that can be requested now."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return []
    pending = worker.pending_license_operation
    licensed = worker.has_license_token or worker.license_status in (
        LicenseStatus.REGISTERED,
        LicenseStatus.REGISTERING,
        LicenseStatus.FAILED,
    )
    deregistering = pending is not None and pending.operation is LicenseOperation.DEREGISTER
    deregister = [LicenseOperation.DEREGISTER] if licensed and not deregistering else []
    return [LicenseOperation.REGISTER, *deregister]


def _saved_by_stops(worker: Worker) -> float | None:
    if worker.cost_per_hour_usd is None:
        return None
    seconds = worker.stopped_seconds
    if worker.status is WorkerStatus.STOPPED:
        seconds += (clock.now() - worker.status_since).total_seconds()
    return worker.cost_per_hour_usd * seconds / 3600
