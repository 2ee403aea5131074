"""What a leader knows of the fleet between two looks: its workers, its settings, and what holds for all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ClientError
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.client.resources.internal import InternalApi
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Hold, Worker

log = structlog.get_logger(__name__)


class FleetCache:
    """All workers that are not TERMINATED, and the fleet."""

    def __init__(self, internal: InternalApi) -> None:
        self._internal = internal
        self.records: dict[str, Worker] = {}
        self.settings: FleetSettings | None = None
        self.fleet: FleetState | None = None
        self.local_hold: Hold | None = None  # until it is lifted here, all is looked at and decided and nothing done
        self._by_instance: dict[str, str] = {}

    # Workers

    def take_in(self, workers: Sequence[Worker]) -> set[str]:
        """These are all; says whose ids were known and are no more."""
        gone = self.records.keys() - {worker.id for worker in workers}
        self.records = {worker.id: worker for worker in workers}
        self._by_instance = {worker.instance_id: worker.id for worker in workers if worker.instance_id}
        return gone

    def remember(self, worker: Worker) -> bool:
        """One of them as it is now; says whether it is one still."""
        if worker.status is WorkerStatus.TERMINATED:
            self.records.pop(worker.id, None)
            return False
        self.records[worker.id] = worker
        if worker.instance_id:
            self._by_instance[worker.instance_id] = worker.id
        return True

    def worker_id_on_instance(self, instance_id: str) -> str | None:
        """The id of the worker whose instance this is."""
        return self._by_instance.get(instance_id)

    def in_region(self, region: str) -> list[Worker]:
        """All workers of a region, as far as is known."""
        return [worker for worker in self.records.values() if worker.aws_region == region]

    def count_in_service(self) -> int:
        """How many run and are to run."""
        return sum(
            1
            for worker in self.records.values()
            if worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING
        )

    # The fleet

    async def read_fleet(self) -> None:
        """Settings and what holds for the fleet. What cannot be read stays as it was; never read is never assumed."""
        try:
            self.settings = await self._internal.settings()
            self.fleet = await self._internal.fleet()
        except ClientError as error:
            log.warning("settings cannot be read", error=str(error), known=self.settings is not None)

    def hear(self, state: FleetState) -> None:
        """Somebody has just read what holds for the fleet."""
        self.fleet = state

    @property
    def hold(self) -> Hold | None:
        """What keeps the whole fleet as it is."""
        return self.local_hold or (None if self.fleet is None else self.fleet.hold)

    def settings_unless_held(self) -> FleetSettings | None:
        """None during a standstill: as long as nobody has read what is wanted, nobody is paused, imported or marked."""
        return self.settings if self.local_hold is None else None
