"""Figures of workers: kept for a while, thinned with age, beside the records and without moving them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.store.port import Sample
from lcm.core import clock
from lcm.model.problems import ProblemCode
from lcm.model.worker.metrics import BatchResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.workers.controller_writes import Leader
    from lcm.model.fleet.state import LeadershipTerm
    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.requests import MetricsBatch

METRICS_SERIES = "metrics"
_BATCH_SIZE = 100
_FULL_RESOLUTION = timedelta(hours=2)
_DOWNSAMPLE_SECONDS = 300


class MetricsService:
    """Takes batches of figures and gives series. Which figures are newest is only remembered, never stored."""

    def __init__(self, plane: ControlPlaneContext, retention_hours: float = 48.0) -> None:
        self._plane = plane
        self._retention = timedelta(hours=retention_hours)
        self._newest: dict[str, datetime] = {}

    async def take(self, leader: Leader, batch: MetricsBatch) -> BatchResult:
        """Keep what belongs to a worker and its present instance and is newer than what is known; count the rest."""

        async def fence(change: Transaction) -> LeadershipTerm:
            return await change.fence(leader.controller, leader.term)

        await self._plane.records.change(leader.actor, fence)
        instances = await self._instances([item.worker_id for item in batch.items])
        kept: list[MetricsSample] = []
        for item in batch.items:
            newest = self._newest.get(item.worker_id)
            if instances.get(item.worker_id) == item.instance_id and (newest is None or item.collected_at > newest):
                self._newest[item.worker_id] = item.collected_at
                kept.append(item)
        samples = [Sample(item.worker_id, item.collected_at, item.model_dump_json().encode()) for item in kept]
        if samples:
            await self._plane.store.append(METRICS_SERIES, samples)
        return BatchResult(kept=len(kept), dropped=len(batch.items) - len(kept))

    async def series(self, worker_id: str, since: datetime | None, limit: int) -> Sequence[Sample]:
        """A worker's figures, oldest first; without a moment those of the last hour."""
        if await self._plane.store.get(WORKERS, worker_id) is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no worker {worker_id}")
        begin = since or clock.now() - timedelta(hours=1)
        return await self._plane.store.series(METRICS_SERIES, worker_id, since=begin, limit=limit)

    async def tidy(self) -> int:
        """Drop what is too old and thin what is old; says how many rows went."""
        now = clock.now()
        gone = await self._plane.store.downsample(METRICS_SERIES, before=now - self._retention, keep_every_seconds=0)
        thinned = await self._plane.store.downsample(
            METRICS_SERIES, before=now - _FULL_RESOLUTION, keep_every_seconds=_DOWNSAMPLE_SECONDS
        )
        self._newest = {subject: at for subject, at in self._newest.items() if at > now - self._retention}
        return gone + thinned

    async def _instances(self, worker_ids: Sequence[str]) -> dict[str, str | None]:
        """The present instance of each worker."""
        found: dict[str, str | None] = {}
        for begin in range(0, len(worker_ids), _BATCH_SIZE):
            some = await self._plane.store.get_many(WORKERS, worker_ids[begin : begin + _BATCH_SIZE])
            found |= {worker_id: json.loads(stored.body)["instance_id"] for worker_id, stored in some.items()}
        return found
