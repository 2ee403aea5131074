"""The scheduler's cache of workers: refreshed periodically and after every unexpected result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.model.lablet.placement import with_lablet
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.client.resources.internal import InternalApi
    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.record import Worker

_MIN_FRESH_SECONDS = 1.0
_READ_TIME_FACTOR = 5.0
"""A list is valid for five times the duration of reading it, so that the scheduler does not only read large fleets."""


class WorkerCache:
    """All workers that are not TERMINATED."""

    def __init__(self, internal: InternalApi) -> None:
        self._internal = internal
        self._workers: dict[str, Worker] = {}
        self._good_until: float | None = None

    async def workers(self) -> list[Worker]:
        """All workers, at most a short time old."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._good_until is None or began >= self._good_until:
            found = [worker async for worker in self._internal.workers(exclude_statuses=[WorkerStatus.TERMINATED])]
            self._workers = {worker.id: worker for worker in found}
            self._good_until = loop.time() + max(_MIN_FRESH_SECONDS, _READ_TIME_FACTOR * (loop.time() - began))
        return list(self._workers.values())

    def invalidate(self) -> None:
        """Read again before the next plan, because something has changed unexpectedly."""
        self._good_until = None

    def put(self, worker: Worker) -> None:
        """Add or replace a worker."""
        self._workers[worker.id] = worker

    def reserve(self, worker_id: str, requirements: LabletRequirements, ports: Iterable[int]) -> None:
        """Apply a reservation to the cached worker."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            taken = with_lablet(worker.allocation, requirements, ports)
            self._workers[worker_id] = worker.model_copy(update={"allocation": taken})
