"""Workers as rows of a list: what is shown of each, gathered for a whole page at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.service import BILLED_STATUSES
from lcm.control_plane.records.kinds import WORKER_HISTORY, WORKERS
from lcm.control_plane.workers.decisions import read_decisions
from lcm.control_plane.workers.metrics import METRICS_SERIES
from lcm.core import clock
from lcm.model.audit import WorkerHistoryEntry
from lcm.model.worker.conditions import ConditionType, find_condition, is_condition_true
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM, worker_problem, worker_urgency

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store, StoredDocument

_SPARKLINE_WINDOW = timedelta(hours=1)
_SPARKLINE_POINTS = 24
_MAX_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker in the list."""

    worker: Worker
    problem: str | None
    why: str
    idle_since: datetime | None
    idle: bool
    paying: bool


@dataclass(frozen=True, slots=True)
class WorkerRowMetrics:
    """Load of the last hour, and what runs on it."""

    worker_id: str
    points: list[float]
    labs: int | None
    running_nodes: int | None


async def worker_rows(store: Store, stored: Sequence[StoredDocument]) -> list[WorkerRow]:
    """Rows of these workers. Why something is wrong is told by the step into FAILED, else by the last decision."""
    workers = [Worker.model_validate_json(each.body) for each in stored]
    failed = [worker.id for worker in workers if worker.status is WorkerStatus.FAILED]
    troubled = [
        worker.id for worker in workers if worker_urgency(worker) <= LAST_WORKER_PROBLEM and worker.id not in failed
    ]
    decisions = await read_decisions(store, troubled) if troubled else {}
    told = {worker_id: decision.reason for worker_id, decision in decisions.items()} | await _failure_reasons(
        store, failed
    )
    return [_worker_row(worker, told.get(worker.id, "")) for worker in workers]


async def _failure_reasons(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """Why each of these has failed."""
    steps = await asyncio.gather(
        *(store.journal(topics=[WORKER_HISTORY], subjects=[each], newest_first=True, limit=1) for each in ids)
    )
    return {
        each: WorkerHistoryEntry.model_validate_json(step[0].body).reason
        for each, step in zip(ids, steps, strict=True)
        if step
    }


async def worker_rows_by_id(store: Store, ids: Sequence[str]) -> list[WorkerRow]:
    """Rows of those that there are, in the order asked for."""
    found = await store.get_many(WORKERS, ids)
    return await worker_rows(store, [found[each] for each in ids if each in found])


async def worker_row_metrics(store: Store, ids: Sequence[str]) -> list[WorkerRowMetrics]:
    """Figures of these workers; one without any is left out."""
    workers = {
        each: Worker.model_validate_json(stored.body) for each, stored in (await store.get_many(WORKERS, ids)).items()
    }
    since = clock.now() - _SPARKLINE_WINDOW
    series = await asyncio.gather(
        *(store.series(METRICS_SERIES, worker_id, since=since, limit=_MAX_SAMPLES) for worker_id in workers)
    )
    return [
        _row_metrics(workers[worker_id], [MetricsSample.model_validate_json(each.body) for each in samples])
        for worker_id, samples in zip(workers, series, strict=True)
        if samples
    ]


def _row_metrics(worker: Worker, samples: list[MetricsSample]) -> WorkerRowMetrics:
    loads = [each.cpu_utilization for each in samples if each.cpu_utilization is not None]
    runs = worker.status in (WorkerStatus.RUNNING, WorkerStatus.DRAINING)
    counted = next((each for each in reversed(samples) if each.labs_count is not None), None) if runs else None
    return WorkerRowMetrics(
        worker.id,
        _downsample(loads),
        None if counted is None else counted.labs_count,
        None if counted is None else counted.running_nodes,
    )


def _downsample(points: list[float]) -> list[float]:
    """At most so many points, each the highest of its part: a peak is what one looks for."""
    if len(points) <= _SPARKLINE_POINTS:
        return points
    size = len(points) / _SPARKLINE_POINTS
    return [
        max(points[int(part * size) : max(int((part + 1) * size), int(part * size) + 1)])
        for part in range(_SPARKLINE_POINTS)
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
        paying=worker.status in BILLED_STATUSES,
    )
