"""A cache of the workers and the fleet state: filled by lists, and refreshed when it is too old to act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.client.errors import NotFoundError
from lcm.core import clock
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Collection

    from lcm.client.resources.internal import InternalApi
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Hold, Worker

MAX_WORKER_AGE_SECONDS: Final = 5.0
MAX_VERIFIED_AGE_SECONDS: Final = 2.0
MAX_LIST_AGE_SECONDS: Final = 120.0
WORKER_CONTROLLER: Final = "worker-controller"


class FleetCache:
    """Workers that are not TERMINATED, the fleet's hold, and whether the worker controller has verified its workers."""

    def __init__(self, internal: InternalApi) -> None:
        self._internal = internal
        self._workers: dict[str, tuple[Worker, float]] = {}
        self._verified = (False, float("-inf"))
        self._hold: Hold | None = None
        self._fleet_read_at = self._listed_at = float("-inf")

    async def all(self) -> list[Worker]:
        """All workers, from a list that is not too old. Polling may be switched off, so this lists by itself."""
        if clock.boottime() - self._listed_at > MAX_LIST_AGE_SECONDS:
            await self.read()
        return [worker for worker, _ in self._workers.values()]

    async def read(self) -> None:
        """Read all workers and the fleet state."""
        began = clock.boottime()
        workers = [worker async for worker in self._internal.workers(exclude_statuses=[WorkerStatus.TERMINATED])]
        fleet = await self._internal.fleet()
        self._workers = {worker.id: (worker, began) for worker in workers}
        self._listed_at = began
        self._put_fleet(fleet)

    def ids(self) -> Collection[str]:
        """The ids of all workers of the last list."""
        return self._workers.keys()

    async def hold(self) -> Hold | None:
        """The fleet's hold. An old one is read again: it may be over, and polling may be switched off."""
        if self._hold is not None and clock.boottime() - self._fleet_read_at > MAX_WORKER_AGE_SECONDS:
            self._put_fleet(await self._internal.fleet())
        return self._hold

    async def get(self, worker_id: str, *, max_age: float = MAX_WORKER_AGE_SECONDS) -> Worker | None:
        """One worker, at most `max_age` seconds old; None if it does not exist."""
        cached = self._workers.get(worker_id)
        began = clock.boottime()
        if cached is not None and began - cached[1] < max_age:
            return cached[0]
        try:
            worker = await self._internal.worker(worker_id)
        except NotFoundError:
            self._workers.pop(worker_id, None)
            return None
        self._workers[worker_id] = (worker, began)
        return worker

    def put(self, fleet: FleetState, worker: Worker) -> None:
        """Store what was read elsewhere."""
        self._put_fleet(fleet)
        self._workers[worker.id] = (worker, clock.boottime())

    async def verified(self) -> bool:
        """Whether the worker controller's current leader has verified all workers. Only then are records reliable."""
        is_verified, at = self._verified
        now = clock.boottime()
        if now - at > MAX_VERIFIED_AGE_SECONDS:
            leaders = await self._internal.leaders()
            is_verified = any(
                leader.controller == WORKER_CONTROLLER and leader.startup_sweep_done for leader in leaders
            )
            self._verified = (is_verified, now)
        return is_verified

    def _put_fleet(self, fleet: FleetState) -> None:
        self._hold, self._fleet_read_at = fleet.hold, clock.boottime()
