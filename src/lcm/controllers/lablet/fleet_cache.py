"""What is known of workers and of the fleet: read with the lists, and again when it is too old to act by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.client.errors import NotFoundError
from lcm.core import clock
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
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
        self._known: dict[str, tuple[Worker, float]] = {}
        self._verified = (False, float("-inf"))
        self._hold: Hold | None = None
        self._heard_at = self._listed_at = float("-inf")

    async def all(self) -> list[Worker]:
        """All of them, by a list that is not too old: those that come with the polls may be switched off."""
        if clock.boottime() - self._listed_at > MAX_LIST_AGE_SECONDS:
            await self.read()
        return [worker for worker, _ in self._known.values()]

    async def read(self) -> None:
        """Read all of them, and the fleet."""
        began = clock.boottime()
        listed = [worker async for worker in self._internal.workers(exclude_statuses=[WorkerStatus.TERMINATED])]
        fleet = await self._internal.fleet()
        self._known = {worker.id: (worker, began) for worker in listed}
        self._listed_at = began
        self._hear(fleet)

    async def hold(self) -> Hold | None:
        """The fleet's hold. One that was heard of a while ago may be over, and lists may be switched off."""
        if self._hold is not None and clock.boottime() - self._heard_at > MAX_WORKER_AGE_SECONDS:
            self._hear(await self._internal.fleet())
        return self._hold

    async def get(self, worker_id: str, *, max_age: float = MAX_WORKER_AGE_SECONDS) -> Worker | None:
        """One worker, as it was at most so many seconds ago; None: there is none."""
        known = self._known.get(worker_id)
        began = clock.boottime()
        if known is not None and began - known[1] < max_age:
            return known[0]
        try:
            worker = await self._internal.worker(worker_id)
        except NotFoundError:
            self._known.pop(worker_id, None)
            return None
        self._known[worker_id] = (worker, began)
        return worker

    def heard(self, fleet: FleetState, worker: Worker) -> None:
        """What was read elsewhere."""
        self._hear(fleet)
        self._known[worker.id] = (worker, clock.boottime())

    async def verified(self) -> bool:
        """Whether the worker controller's present leader has verified all workers: only then records count."""
        done, at = self._verified
        now = clock.boottime()
        if now - at > MAX_VERIFIED_AGE_SECONDS:
            leaders = await self._internal.leaders()
            done = any(leader.controller == WORKER_CONTROLLER and leader.startup_sweep_done for leader in leaders)
            self._verified = (done, now)
        return done

    def _hear(self, fleet: FleetState) -> None:
        self._hold, self._heard_at = fleet.hold, clock.boottime()
