"""The workers as a scheduler knows them: read anew now and then, and after each thing that it did not expect."""

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
"""A list counts for five times as long as it took: reading a large fleet must not be all that the scheduler does."""


class WorkerCache:
    """All workers but TERMINATED ones."""

    def __init__(self, internal: InternalApi) -> None:
        self._internal = internal
        self._workers: dict[str, Worker] = {}
        self._good_until: float | None = None

    async def workers(self) -> list[Worker]:
        """All of them, no older than a second or so."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._good_until is None or began >= self._good_until:
            found = [worker async for worker in self._internal.workers(exclude_statuses=[WorkerStatus.TERMINATED])]
            self._workers = {worker.id: worker for worker in found}
            self._good_until = loop.time() + max(_MIN_FRESH_SECONDS, _READ_TIME_FACTOR * (loop.time() - began))
        return list(self._workers.values())

    def invalidate(self) -> None:
        """Something is not as it was thought to be: read again before the next plan."""
        self._good_until = None

    def put(self, worker: Worker) -> None:
        """One more, or one that has changed."""
        self._workers[worker.id] = worker

    def reserve(self, worker_id: str, requirements: LabletRequirements, ports: Iterable[int]) -> None:
        """A reservation was made."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            taken = with_lablet(worker.allocation, requirements, ports)
            self._workers[worker_id] = worker.model_copy(update={"allocation": taken})
