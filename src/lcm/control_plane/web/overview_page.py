"""The Overview page, where a visit starts: problems first, then the fleet over time, by region, status and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import LABS_PATH, CurrentUser, MemberUser, is_fragment
from lcm.control_plane.web.lablets.list_page import lablet_rows
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.control_plane.web.workers.list_page import WorkerListQuery, worker_rows
from lcm.core import clock
from lcm.model.fleet.history import HISTORY_RANGES, FleetHistory, HistoryRange
from lcm.model.lablet.urgency import LAST_LABLET_PROBLEM
from lcm.model.worker.cost import current_cost
from lcm.model.worker.record import Worker
from lcm.model.worker.status import STATUSES, WorkerStatus
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.state import FleetSummary

router = APIRouter(include_in_schema=False)
_SHOWN = 5


@router.get("/")
async def overview_page(request: Request, user: MemberUser) -> Response:
    """The whole page. The list of workers had this address: its links, and pages that are still open, are led there.

    Instructors begin with the lablets of their teams, learners with their own labs.
    """
    if user.in_teams_only:
        return RedirectResponse("/lablets" if user.can_create else LABS_PATH, 303)
    if is_fragment(request) or not request.query_params.keys().isdisjoint(WorkerListQuery().query_params()):
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{WorkerListQuery.path}{query}", 307)
    values = await _current_values(get_services(request))
    values["ranges"] = list(HISTORY_RANGES)
    return await render_page(request, user, "overview/page.html", here="overview", title="Overview", **values)


@router.get("/overview")
async def overview_part(request: Request, user: CurrentUser) -> Response:
    """The part that changes with the fleet. Links to the page, which had this address, lead to its present one."""
    if not is_fragment(request):
        return RedirectResponse("/", 307)
    return render_fragment("overview/_now.html", user=user, **await _current_values(get_services(request)))


@router.get("/overview/history")
async def overview_history(
    request: Request, user: CurrentUser, history_range: Annotated[HistoryRange, Query(alias="range")] = "24h"
) -> JSONResponse:
    """The data of the charts."""
    return JSONResponse(chart_data(await get_services(request).fleet_history.read(history_range)))


async def _current_values(services: Services) -> dict[str, Any]:
    store = services.context.store
    summary = await services.fleet.summary()
    return {
        "fleet": summary,
        "heatmap": region_heatmap(summary),
        "problems": await _worker_problems(store),
        "lablet_problems": await _lablet_problems(store),
        "expensive": await _most_expensive(store),
    }


async def _worker_problems(store: Store) -> list[Any]:
    where = Where(below={"urgency": int(LAST_WORKER_PROBLEM) + 1})
    page = await store.find(WORKERS, where, sort=Sort("attention"), limit=_SHOWN)
    return await worker_rows(store, page.items)


async def _lablet_problems(store: Store) -> list[Any]:
    where = Where(below={"urgency": int(LAST_LABLET_PROBLEM) + 1}, at_least={"shown_until": clock.now().isoformat()})
    page = await store.find(LABLETS, where, sort=Sort("attention"), limit=_SHOWN)
    return await lablet_rows(store, page.items)


async def _most_expensive(store: Store) -> list[tuple[Worker, float]]:
    where = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
    page = await store.find(WORKERS, where, sort=Sort("billed_usd", descending=True), limit=_SHOWN)
    workers = readable_records(page.items, Worker, "worker")
    costs = [(worker, current_cost(worker)) for worker in workers]
    return [(worker, cost) for worker, cost in costs if cost]


def region_heatmap(summary: FleetSummary) -> dict[str, Any]:
    """Workers by region and status, without TERMINATED; each cell with its share of the largest one, in tenths."""
    known = [status for status in STATUSES if status is not WorkerStatus.TERMINATED]
    counts = {
        region: {status: count for status, count in by_status.items() if status != WorkerStatus.TERMINATED}
        for region, by_status in sorted(summary.by_region.items())
    }
    statuses = [status for status in known if any(status in by_status for by_status in counts.values())]
    largest = max((count for by_status in counts.values() for count in by_status.values()), default=0)
    rows = []
    for region, by_status in counts.items():
        cells = [(status, by_status.get(status, 0)) for status in statuses]
        shades = [0 if not count else max(1, round(10 * count / largest)) for _, count in cells]
        if total := sum(count for _, count in cells):
            rows.append((region, list(zip(cells, shades, strict=True)), total))
    return {"statuses": statuses, "rows": rows}


def chart_data(history: FleetHistory) -> dict[str, Any]:
    """Columns for the charts, with a gap wherever samples are missing."""
    names = ("cost", "workers", "ready", "problems", "cpu", "cpu_used", "memory", "memory_used")
    times: list[float] = []
    columns: dict[str, list[float | None]] = {name: [] for name in names}
    for sample in history.items:
        at = sample.at.timestamp()
        if times and at - times[-1] > 1.5 * history.interval_seconds:
            times.append((at + times[-1]) / 2)
            for column in columns.values():
                column.append(None)
        times.append(at)
        values = (
            sample.cost_per_hour_usd,
            sample.workers,
            sample.ready,
            sample.problems,
            sample.capacity.cpu_cores,
            sample.used.cpu_cores,
            sample.capacity.memory_gb,
            sample.used.memory_gb,
        )
        for name, value in zip(names, values, strict=True):
            columns[name].append(value)
    return {
        "from": history.since.timestamp(),
        "to": history.until.timestamp(),
        "every": history.interval_seconds,
        "times": times,
        "values": columns,
    }
