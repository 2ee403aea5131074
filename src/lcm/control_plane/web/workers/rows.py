"""Workers as rows of a list: what is shown of each, gathered for a whole page at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.service import PAYING
from lcm.control_plane.records.kinds import HISTORY, WORKERS
from lcm.control_plane.workers.decisions import read_decisions
from lcm.control_plane.workers.metrics import SERIES
from lcm.core import clock
from lcm.model.audit import HistoryEntry
from lcm.model.worker.conditions import ConditionType, find_condition, holds
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import LAST_PROBLEM, problem_of, urgency_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store, Stored

_WINDOW = timedelta(hours=1)
_POINTS = 24
_MOST_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Row:
    """One worker in the list."""

    worker: Worker
    problem: str | None
    why: str
    idle_since: datetime | None
    idle: bool
    paying: bool


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Load of the last hour, and what runs on it."""

    worker_id: str
    points: list[float]
    labs: int | None
    running_nodes: int | None


async def rows_of(store: Store, stored: Sequence[Stored]) -> list[Row]:
    """Rows of these workers. Why something is wrong is told by the step into FAILED, else by the last decision."""
    workers = [Worker.model_validate_json(each.body) for each in stored]
    failed = [worker.id for worker in workers if worker.status is WorkerStatus.FAILED]
    troubled = [worker.id for worker in workers if urgency_of(worker) <= LAST_PROBLEM and worker.id not in failed]
    decisions = await read_decisions(store, troubled) if troubled else {}
    told = {worker_id: decision.reason for worker_id, decision in decisions.items()} | await _failures(store, failed)
    return [_row(worker, told.get(worker.id, "")) for worker in workers]


async def _failures(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """Why each of these has failed."""
    steps = await asyncio.gather(
        *(store.journal(topics=[HISTORY], subjects=[each], newest_first=True, limit=1) for each in ids)
    )
    return {
        each: HistoryEntry.model_validate_json(step[0].body).reason
        for each, step in zip(ids, steps, strict=True)
        if step
    }


async def rows_by_id(store: Store, ids: Sequence[str]) -> list[Row]:
    """Rows of those that there are, in the order asked for."""
    found = await store.get_many(WORKERS, ids)
    return await rows_of(store, [found[each] for each in ids if each in found])


async def figures_of(store: Store, ids: Sequence[str]) -> list[RowFigures]:
    """Figures of these workers; one without any is left out."""
    workers = {
        each: Worker.model_validate_json(stored.body) for each, stored in (await store.get_many(WORKERS, ids)).items()
    }
    since = clock.now() - _WINDOW
    series = await asyncio.gather(
        *(store.series(SERIES, worker_id, since=since, limit=_MOST_SAMPLES) for worker_id in workers)
    )
    return [
        _figures(workers[worker_id], [MetricsSample.model_validate_json(each.body) for each in samples])
        for worker_id, samples in zip(workers, series, strict=True)
        if samples
    ]


def _figures(worker: Worker, samples: list[MetricsSample]) -> RowFigures:
    loads = [each.cpu_utilization for each in samples if each.cpu_utilization is not None]
    runs = worker.status in (WorkerStatus.RUNNING, WorkerStatus.DRAINING)
    counted = next((each for each in reversed(samples) if each.labs_count is not None), None) if runs else None
    return RowFigures(
        worker.id,
        _thinned(loads),
        None if counted is None else counted.labs_count,
        None if counted is None else counted.running_nodes,
    )


def _thinned(points: list[float]) -> list[float]:
    """At most so many points, each the highest of its part: a peak is what one looks for."""
    if len(points) <= _POINTS:
        return points
    size = len(points) / _POINTS
    return [
        max(points[int(part * size) : max(int((part + 1) * size), int(part * size) + 1)]) for part in range(_POINTS)
    ]


def _row(worker: Worker, why: str) -> Row:
    idle = find_condition(worker.conditions, ConditionType.IDLE)
    used = worker.last_activity_at or worker.last_resumed_at
    running = worker.status is WorkerStatus.RUNNING
    return Row(
        worker,
        problem_of(worker),
        why,
        used if running else None,
        idle=running and idle is not None and holds(worker.conditions, ConditionType.IDLE),
        paying=worker.status in PAYING,
    )
