"""Metrics of workers: kept for a limited time and downsampled with age. They do not change the records."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.store.port import Sample
from lcm.core import clock
from lcm.core.clock_guard import TOLERANCE_SECONDS
from lcm.model.problems import ProblemCode
from lcm.model.worker.cost import METRICS_MAX_AGE
from lcm.model.worker.metrics import BatchResult, MetricsSample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Leader
    from lcm.control_plane.store.port import Store
    from lcm.model.worker.requests import MetricsBatch

METRICS_SERIES = "metrics"
_BATCH_SIZE = 100
_FULL_RESOLUTION = timedelta(hours=2)
_DOWNSAMPLE_SECONDS = 300


async def read_metrics(store: Store, worker_id: str, *, since: datetime, limit: int = 10_000) -> Sequence[Sample]:
    """A worker's samples since a time, oldest first.

    Samples of the future are left out: a clock was ahead, and they would hide what is measured now.
    """
    until = clock.now() + timedelta(seconds=TOLERANCE_SECONDS)
    samples = await store.read_samples(METRICS_SERIES, worker_id, since=since, limit=limit)
    return [sample for sample in samples if sample.at <= until]


async def read_latest_sample(store: Store, worker_id: str) -> MetricsSample | None:
    """Its newest sample; None if that is too old for statements about the present."""
    samples = await read_metrics(store, worker_id, since=clock.now() - METRICS_MAX_AGE)
    return MetricsSample.model_validate_json(samples[-1].body) if samples else None


class MetricsService:
    """Stores batches of samples and returns series. A worker's newest sample time is kept in memory only."""

    def __init__(self, context: ControlPlaneContext, retention_hours: float = 48.0) -> None:
        self._context = context
        self._retention = timedelta(hours=retention_hours)
        self._newest: dict[str, datetime] = {}

    async def record(self, leader: Leader, batch: MetricsBatch) -> BatchResult:
        """Store samples of a worker's current instance that are newer than the last; count the others as dropped."""
        await self._context.unit_of_work.run(leader.actor, lambda tx: tx.fence(leader.controller, leader.term))
        instances, now = await self._instances([item.worker_id for item in batch.items]), clock.now()
        accepted: list[MetricsSample] = []
        for item in batch.items:
            newest, at = self._newest.get(item.worker_id), item.collected_at
            outdated = newest is not None and (at == newest or leader.is_outdated(at, newest, now))
            if instances.get(item.worker_id) == item.instance_id and not outdated:
                self._newest[item.worker_id] = at
                accepted.append(item)
        samples = [Sample(item.worker_id, item.collected_at, item.model_dump_json().encode()) for item in accepted]
        if samples:
            await self._context.store.append_samples(METRICS_SERIES, samples)
        return BatchResult(kept=len(accepted), dropped=len(batch.items) - len(accepted))

    async def series(self, worker_id: str, since: datetime | None, limit: int) -> Sequence[Sample]:
        """A worker's samples, oldest first; by default those of the last hour."""
        if await self._context.store.get(WORKERS, worker_id) is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no worker {worker_id}")
        begin = since or clock.now() - timedelta(hours=1)
        return await read_metrics(self._context.store, worker_id, since=begin, limit=limit)

    async def downsample(self) -> int:
        """Delete expired samples and downsample old ones; returns the number of deleted rows."""
        now = clock.earliest_now()
        expired = await self._context.store.downsample(
            METRICS_SERIES, before=now - self._retention, keep_every_seconds=0
        )
        thinned = await self._context.store.downsample(
            METRICS_SERIES, before=now - _FULL_RESOLUTION, keep_every_seconds=_DOWNSAMPLE_SECONDS
        )
        self._newest = {subject: at for subject, at in self._newest.items() if at > now - self._retention}
        return expired + thinned

    async def _instances(self, worker_ids: Sequence[str]) -> dict[str, str | None]:
        """The current instance of each worker."""
        instances: dict[str, str | None] = {}
        for begin in range(0, len(worker_ids), _BATCH_SIZE):
            batch = await self._context.store.get_many(WORKERS, worker_ids[begin : begin + _BATCH_SIZE])
            instances |= {worker_id: json.loads(stored.body)["instance_id"] for worker_id, stored in batch.items()}
        return instances
