"""What a leader keeps of the fleet between two lists: its workers, its settings and its holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.common.schedules import ScheduleCache
from lcm.model.worker.maintenance import is_moving
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lcm.client.resources.internal import InternalApi
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.fleet.state import FleetState
    from lcm.model.fleet.worker_context import WorkerContext
    from lcm.model.worker.record import Hold, Worker

log = structlog.get_logger(__name__)


class FleetCache:
    """All workers that are not TERMINATED, and the state of the fleet."""

    def __init__(self, internal: InternalApi) -> None:
        self._internal = internal
        self.records: dict[str, Worker] = {}
        self.settings: FleetSettings | None = None
        self.fleet: FleetState | None = None
        self.local_hold: Hold | None = None  # set by this process: everything is observed and decided, but not executed
        self._schedules = ScheduleCache(internal)
        self._by_instance: dict[str, str] = {}
        self._release_claims: dict[str, str] = {}  # region by worker
        self._releases: dict[str, str] = {}  # the same of those whose record says so: every pass counts them

    # Workers

    def replace_all(self, workers: Sequence[Worker]) -> set[str]:
        """Replace all workers. Returns the ids of those that no longer exist."""
        gone = self.records.keys() - {worker.id for worker in workers}
        self.records = {worker.id: worker for worker in workers}
        self._by_instance = {worker.instance_id: worker.id for worker in workers if worker.instance_id}
        self._release_claims = {each: region for each, region in self._release_claims.items() if each in self.records}
        self._releases = {worker.id: worker.aws_region for worker in workers if _deregisters_license_first(worker)}
        return gone

    def update(self, worker: Worker) -> bool:
        """Store one worker. Returns False if it is TERMINATED."""
        if worker.status is WorkerStatus.TERMINATED:
            self.records.pop(worker.id, None)
            self._release_claims.pop(worker.id, None)
            self._releases.pop(worker.id, None)
            return False
        self.records[worker.id] = worker
        if _deregisters_license_first(worker):
            self._releases[worker.id] = worker.aws_region
        else:
            self._releases.pop(worker.id, None)
        if worker.instance_id:
            self._by_instance[worker.instance_id] = worker.id
        return True

    def ids(self) -> Collection[str]:
        """The ids of all cached workers."""
        return self.records.keys()

    def worker_id_on_instance(self, instance_id: str) -> str | None:
        """The id of the worker that has this instance."""
        return self._by_instance.get(instance_id)

    def in_region(self, region: str) -> list[Worker]:
        """All cached workers of a region."""
        return [worker for worker in self.records.values() if worker.aws_region == region]

    def count_in_service(self) -> int:
        """The number of workers that run and should run."""
        return sum(
            1
            for worker in self.records.values()
            if worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING
        )

    def moving_worker(self, worker: Worker) -> str:
        """The name of another worker of its region that is on its way to another host; empty if there is none."""
        others = (each for each in self.in_region(worker.aws_region) if each.id != worker.id)
        return next((each.name for each in others if is_moving(each)), "")

    def license_releases(self, worker: Worker) -> int:
        """How many other workers of its region are being started to deregister their licenses."""
        return len(self._releasing(worker.aws_region) - {worker.id})

    def claim_license_release(self, worker: Worker, limit: int) -> bool:
        """Reserve a place for this worker. Two passes at once cannot both take the last one."""
        if self.license_releases(worker) >= limit:
            return False
        self._release_claims[worker.id] = worker.aws_region
        return True

    def _releasing(self, region: str) -> set[str]:
        claims = {
            worker_id
            for worker_id, claimed in self._release_claims.items()
            if claimed == region and worker_id in self.records
        }
        return claims | {worker_id for worker_id, where in self._releases.items() if where == region}

    # The fleet

    async def read_fleet(self) -> None:
        """Read the settings and the fleet state. On failure the old values stay; None means never read."""
        try:
            self._keep(await self._internal.settings(), self.fleet)
            self._keep(self.settings, await self._internal.fleet())
            if self.fleet is not None:
                await self._schedules.refresh(self.fleet)
        except ClientError as error:
            log.warning("settings cannot be read", error=str(error), cached=self.settings is not None)

    async def update_fleet(self, context: WorkerContext) -> None:
        """Store the settings and the fleet state that were read together with a worker."""
        self._keep(context.settings, context.fleet)
        await self._schedules.refresh(context.fleet)

    def _keep(self, settings: FleetSettings | None, fleet: FleetState | None) -> None:
        """Replace what differs: who has decided with these objects sees by them whether anything changed."""
        if settings != self.settings:
            self.settings = settings
        if fleet != self.fleet:
            if fleet is not None and self.fleet is not None and fleet.hold == self.fleet.hold:
                fleet = fleet.model_copy(update={"hold": self.fleet.hold})
            self.fleet = fleet

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """All schedules as they were when the fleet state was read last."""
        return self._schedules.schedules

    @property
    def hold(self) -> Hold | None:
        """The hold on the whole fleet."""
        return self.local_hold or (None if self.fleet is None else self.fleet.hold)

    def settings_unless_held(self) -> FleetSettings | None:
        """None during a local hold, so that no worker is paused, imported or marked as lost."""
        return self.settings if self.local_hold is None else None


def _deregisters_license_first(worker: Worker) -> bool:
    return worker.license_release_started_at is not None and worker.license_status is LicenseStatus.REGISTERED
