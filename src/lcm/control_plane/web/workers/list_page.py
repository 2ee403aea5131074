"""The Fleet page: the list of workers, its filters and views, and the parts that scripts refresh."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import SplitResult, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import QueryParams

from lcm.control_plane.records.kinds import TEMPLATES, WORKER_HISTORY, WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.records.search_text import search_condition
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.auth import CurrentUser, is_fragment
from lcm.control_plane.web.forms import query_ids
from lcm.control_plane.web.list_query import ListQuery, read_list_page
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.control_plane.workers.decisions import read_decisions
from lcm.control_plane.workers.metrics import read_metrics
from lcm.core import clock
from lcm.model.audit import WorkerHistoryEntry
from lcm.model.worker.conditions import ConditionType, find_condition, is_condition_true
from lcm.model.worker.cost import cost_if, instance_runs
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.status import CML_STATUSES, WorkerStatus
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM, WorkerUrgency, worker_problem, worker_urgency

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import FieldValue, Store, StoredDocument


router = APIRouter(include_in_schema=False)
_TERMINATED = WorkerStatus.TERMINATED.value
# A worker that was never launched is settled too, but nobody stopped it.
_STATUS_OF_VIEW = {
    "stopped": WorkerStatus.STOPPED,
    "unlaunched": WorkerStatus.PENDING,
    "ended": WorkerStatus.TERMINATED,
}
_URGENCY_OF_VIEW = {
    "moving": WorkerUrgency.IN_PROGRESS,
    "stopped": WorkerUrgency.SETTLED,
    "unlaunched": WorkerUrgency.SETTLED,
}
_SPARKLINE_WINDOW = timedelta(hours=1)
_SPARKLINE_POINTS = 24
_MAX_SAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerListQuery(ListQuery):
    """Filters of the list of workers."""

    path = "/fleet"
    views: ClassVar[Mapping[str, str]] = {
        "": "All",
        "problems": "Problems",
        "moving": "In progress",
        "ready": "Ready",
        "stopped": "Stopped",
        "unlaunched": "Not launched",
        "held": "Held",
        "ended": "Terminated",
    }
    columns = ("attention", "name", "status", "aws_region", "template_name", "billed_usd", "updated_at")
    statuses = frozenset(WorkerStatus)

    region: tuple[str, ...] = ()
    template: tuple[str, ...] = ()

    def where(self) -> Where:
        """The filter for the store. Terminated workers are shown only on request."""
        any_of: dict[str, list[FieldValue]] = {}
        none_of: dict[str, list[FieldValue]] = {}
        below: dict[str, FieldValue] = {}
        if self.view in _STATUS_OF_VIEW:
            status = _STATUS_OF_VIEW[self.view].value
            any_of["status"] = [status] if not self.status or status in self.status else []
        elif self.status:
            any_of["status"] = list(self.status)
        else:
            none_of["status"] = [_TERMINATED]
        if self.view == "problems":
            below["urgency"] = int(LAST_WORKER_PROBLEM) + 1
        elif self.view in _URGENCY_OF_VIEW:
            any_of["urgency"] = [int(_URGENCY_OF_VIEW[self.view])]
        elif self.view in ("ready", "held"):
            any_of[self.view] = [True]
        if self.region:
            any_of["aws_region"] = list(self.region)
        if self.template:
            any_of["template_name"] = list(self.template)
        return Where(any_of=any_of, none_of=none_of, below=below, contains_all=search_condition(self.q))


@router.get(WorkerListQuery.path)
async def workers_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page, or only the table for a refresh by a script."""
    store = get_services(request).context.store
    documents, values = await read_list_page(store, WORKERS, WorkerListQuery.from_query(request.query_params))
    values["rows"] = await worker_rows(store, documents)
    if is_fragment(request):
        return render_fragment("workers/_table.html", user=user, **values)
    values |= {
        "views": await _view_counts(store),
        "regions": get_services(request).context.regions,
        "templates": [stored.id for stored in (await store.find(TEMPLATES, limit=500)).items],
        "statuses": list(WorkerStatus),
    }
    return await render_page(request, user, "workers/list.html", here="fleet", title="Fleet", **values)


@router.get("/fleet/rows")
async def changed_rows(request: Request, user: CurrentUser) -> HTMLResponse:
    """Rows that changed; each replaces its row on the page."""
    rows = await worker_rows_by_id(get_services(request).context.store, query_ids(request))
    return render_fragment("workers/_rows.html", rows=rows, user=user)


@router.get("/fleet/figures")
async def row_metrics(request: Request, user: CurrentUser) -> HTMLResponse:
    """Load and labs of the rows on the page."""
    metrics = await worker_row_metrics(get_services(request).context.store, query_ids(request))
    return render_fragment("workers/_row_metrics.html", metrics=metrics)


def _split_url(text: str) -> SplitResult:
    """The parts of the URL that a browser names; of text that is none, nothing."""
    try:
        return urlsplit(text)
    except ValueError:  # such as http://[
        return urlsplit("")


@router.get("/fleet/summary")
async def fleet_summary(request: Request, user: CurrentUser) -> HTMLResponse:
    """The header of every page: counts, cost, hold and breakers."""
    current_url = _split_url(request.headers.get("HX-Current-URL", ""))
    query = (
        WorkerListQuery.from_query(QueryParams(current_url.query)) if current_url.path == WorkerListQuery.path else None
    )
    views = await _view_counts(get_services(request).context.store) if query is not None else {}
    return render_fragment(
        "fleet/_summary_live.html",
        summary=await get_services(request).fleet.summary(),
        views=views,
        user=user,
        query=query,
    )


async def _view_counts(store: Store) -> dict[str, tuple[str, int]]:
    """The title and the number of workers of each view."""
    counted = await store.count_by(WORKERS, ["urgency", "status"])
    counts: Counter[int] = Counter()
    settled: Counter[str] = Counter()  # by status
    for (urgency, status), count, _ in counted:
        # During an upgrade an older version may write records without this field; the next start fills it in.
        if urgency is not None:
            counts[int(str(urgency))] += count
        if urgency == WorkerUrgency.SETTLED:
            settled[str(status)] += count
    flags = {}
    for name in ("ready", "held"):
        flagged = await store.count_by(
            WORKERS, [name], Where(any_of={name: [True]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
        )
        flags[name] = sum(count for _, count, _ in flagged)
    ended = counts[int(WorkerUrgency.ENDED)]
    view_counts = {
        "": sum(counts.values()) - ended,
        "problems": sum(count for rank, count in counts.items() if rank <= LAST_WORKER_PROBLEM),
        "moving": counts[int(WorkerUrgency.IN_PROGRESS)],
        "stopped": settled[WorkerStatus.STOPPED.value],
        "unlaunched": settled[WorkerStatus.PENDING.value],
        "ended": ended,
        **flags,
    }
    return {name: (title, view_counts[name]) for name, title in WorkerListQuery.views.items()}


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker in the list."""

    worker: Worker
    problem: str | None
    why: str
    idle_since: datetime | None
    idle: bool
    billed: bool
    cost_when_running: float | None


@dataclass(frozen=True, slots=True)
class WorkerRowMetrics:
    """CPU load of the last hour, and the labs and nodes of a worker."""

    worker_id: str
    points: list[float]
    labs: int | None
    running_nodes: int | None


async def worker_rows(store: Store, stored: Sequence[StoredDocument]) -> list[WorkerRow]:
    """Rows of workers. The reason of a problem is that of the step to FAILED, or else of the last decision."""
    workers = readable_records(stored, Worker, "worker")
    failed = [worker.id for worker in workers if worker.status is WorkerStatus.FAILED]
    with_problems = [
        worker.id for worker in workers if worker_urgency(worker) <= LAST_WORKER_PROBLEM and worker.id not in failed
    ]
    decisions = await read_decisions(store, with_problems) if with_problems else {}
    reasons = {worker_id: decision.reason for worker_id, decision in decisions.items()} | await _failure_reasons(
        store, failed
    )
    return [_worker_row(worker, reasons.get(worker.id, "")) for worker in workers]


async def _failure_reasons(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """The reason of the last step of each worker: with one read for most of them, as a page may have fifty."""
    if not ids:
        return {}
    limit = 2 * len(ids)
    newest = await store.read_journal(topics=[WORKER_HISTORY], subjects=ids, newest_first=True, limit=limit)
    found = {entry.subject: entry for entry in reversed(newest)}
    if len(newest) == limit:  # older entries were left out
        others = [each for each in ids if each not in found]
        steps = await asyncio.gather(
            *(
                store.read_journal(topics=[WORKER_HISTORY], subjects=[each], newest_first=True, limit=1)
                for each in others
            )
        )
        found |= {each: step[0] for each, step in zip(others, steps, strict=True) if step}
    return {each: WorkerHistoryEntry.model_validate_json(entry.body).reason for each, entry in found.items()}


async def worker_rows_by_id(store: Store, ids: Sequence[str]) -> list[WorkerRow]:
    """Rows of the workers that exist, in the order of `ids`."""
    documents = await store.get_many(WORKERS, ids)
    return await worker_rows(store, [documents[each] for each in ids if each in documents])


async def worker_row_metrics(store: Store, ids: Sequence[str]) -> list[WorkerRowMetrics]:
    """Metrics of workers; those without samples are left out."""
    stored = (await store.get_many(WORKERS, ids)).values()
    workers = {each.id: each for each in readable_records(stored, Worker, "worker")}
    since = clock.now() - _SPARKLINE_WINDOW
    series = await asyncio.gather(
        *(read_metrics(store, worker_id, since=since, limit=_MAX_SAMPLES) for worker_id in workers)
    )
    return [
        _row_metrics(workers[worker_id], [MetricsSample.model_validate_json(each.body) for each in samples])
        for worker_id, samples in zip(workers, series, strict=True)
        if samples
    ]


def _row_metrics(worker: Worker, samples: list[MetricsSample]) -> WorkerRowMetrics:
    loads = [each.cpu_utilization for each in samples if each.cpu_utilization is not None]
    runs = worker.status in CML_STATUSES
    counted = next((each for each in reversed(samples) if each.labs_count is not None), None) if runs else None
    return WorkerRowMetrics(
        worker.id,
        _downsample(loads),
        None if counted is None else counted.labs_count,
        None if counted is None else counted.running_nodes,
    )


def _downsample(points: list[float]) -> list[float]:
    """At most `_SPARKLINE_POINTS` points. Each is the maximum of its bucket, so that peaks stay visible."""
    if len(points) <= _SPARKLINE_POINTS:
        return points
    size = len(points) / _SPARKLINE_POINTS
    return [
        max(points[int(bucket * size) : max(int((bucket + 1) * size), int(bucket * size) + 1)])
        for bucket in range(_SPARKLINE_POINTS)
    ]


def _worker_row(worker: Worker, why: str) -> WorkerRow:
    idle = find_condition(worker.conditions, ConditionType.IDLE)
    used = worker.last_activity_at or worker.last_resumed_at
    running = worker.status is WorkerStatus.RUNNING
    return WorkerRow(
        worker,
        worker_problem(worker),
        why,
        used if running else None,
        idle=running and idle is not None and is_condition_true(worker.conditions, ConditionType.IDLE),
        billed=instance_runs(worker),
        cost_when_running=cost_if(worker, running=True),
    )
