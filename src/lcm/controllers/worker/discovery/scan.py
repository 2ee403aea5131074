"""What exists: scans of all regions at a slow pace, for instances without a worker and workers without an instance.

It decides existence and never correctness: a worker whose instance is merely not as it should be is only woken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from lcm.client.errors import ApiError, ClientError, StaleLeaderError
from lcm.cloud.errors import CloudError
from lcm.controllers.worker.decide.shared.instance import BY_DISCOVERY, INSTANCE_NOT_FOUND
from lcm.controllers.worker.discovery.importer import DiscoveryCriteria, Importer, ImportResult
from lcm.controllers.worker.discovery.leaked_instances import LeakedInstances, TerminationPermission
from lcm.controllers.worker.observe.observation import LossVerdict
from lcm.core import clock
from lcm.model.fleet.settings import DiscoverySettings
from lcm.model.worker.requests import WorkerStatusUpdate
from lcm.model.worker.status import LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.controllers.worker.discovery.importer import CmlProbe
    from lcm.controllers.worker.discovery.leaked_instances import KeyedEffect
    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
    from lcm.controllers.worker.discovery.sweep_diff import SweepDiff
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

FIRST_SCAN_AFTER: Final = 5.0
# Until the settings can be read nothing is marked or imported: that should not last a whole interval.
SETTINGS_RETRY_SECONDS: Final = 30.0
_HANDLED_BY_PASSES: Final = (WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.FAILED)


@dataclass(frozen=True, slots=True)
class DiscoveryDependencies:
    """What discovery works with. `settings` gives None as long as they were never read."""

    cloud: CloudProviderSPI
    probe: CmlProbe
    internal: InternalApi
    leader: Callable[[], Leader]
    settings: Callable[[], FleetSettings | None]
    wake: Callable[[str], None]
    effect: KeyedEffect
    installation: str
    ami_owners: Sequence[str] = ("self",)
    private_addresses: bool = False


class Discovery:
    """Scans, and what follows from them. Run it as long as this process leads."""

    def __init__(
        self,
        around: DiscoveryDependencies,
        watches: Mapping[str, RegionMonitor],
        *,
        on_stale: Callable[[], None] | None = None,
    ) -> None:
        self._around = around
        self._watches = dict(watches)
        self._on_stale = on_stale
        self._importers = {
            region: Importer(
                region,
                around.internal,
                around.probe,
                leader=around.leader,
                installation=around.installation,
                private_addresses=around.private_addresses,
            )
            for region in watches
        }
        self.leaks = LeakedInstances(
            around.cloud,
            around.internal,
            leader=around.leader,
            installation=around.installation,
            effect=around.effect,
        )
        self.scans_count = 0
        self.imported_count = 0
        self.orphans_terminated_count = 0
        self.last_scan_at: datetime | None = None
        self.trouble: dict[str, str] = {}  # regions whose last scan failed, and why

    def figures(self) -> dict[str, Any]:
        """For people who look at the controller."""
        return {
            "scans_count": self.scans_count,
            "imported_count": self.imported_count,
            "orphans_terminated_count": self.orphans_terminated_count,
            "leaked_instances": len(self.leaks.current),
            "last_scan_at": None if self.last_scan_at is None else self.last_scan_at.isoformat(),
            "trouble": dict(sorted(self.trouble.items())),
        }

    async def run(self) -> None:
        """Scan for ever, the first time soon after leadership was won. A leader that was overtaken ends it."""
        self.leaks.begin()
        pause = FIRST_SCAN_AFTER
        try:
            while True:
                await asyncio.sleep(pause)
                began = clock.boottime()
                await self.scan()
                pause = max(0.0, self._interval() - (clock.boottime() - began))
        except StaleLeaderError:
            if self._on_stale is None:
                raise
            self._on_stale()

    def _interval(self) -> float:
        settings = self._around.settings()
        return SETTINGS_RETRY_SECONDS if settings is None else settings.discovery.discovery_interval

    async def scan(self) -> None:
        """All regions, side by side; trouble in one is not the others'."""
        regions = sorted(self._watches)
        outcomes = await asyncio.gather(*(self._scan_region(region) for region in regions), return_exceptions=True)
        for region, outcome in zip(regions, outcomes, strict=True):
            if isinstance(outcome, ClientError | CloudError) and not isinstance(outcome, StaleLeaderError):
                self._note(region, str(outcome) or type(outcome).__name__)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._note(region, outcome)
        self.scans_count += 1
        self.last_scan_at = clock.now()

    def _note(self, region: str, trouble: str) -> None:
        if trouble and region not in self.trouble:
            log.warning("discovery failed in a region; trying again", region=region, error=trouble)
        self.trouble.pop(region, None)
        if trouble:
            self.trouble[region] = trouble

    async def _scan_region(self, region: str) -> str:
        """One scan; the answer is what kept it from being one."""
        watch, settings = self._watches[region], self._around.settings()
        criteria = await self._criteria(watch, settings)
        workers = await self._workers(region)
        review = await watch.sweep(workers, scan=True)
        if review is None:
            return "the region could not be seen as a whole"
        marked: set[str] = set()
        imports = ImportResult()
        try:
            fleet = await self._around.internal.fleet()
            if (
                settings is not None
                and settings.discovery.worker_discovery_enabled
                and not _wrong_account(watch, review)
            ):
                imports = await self._importers[region].take_in(review.sweep, workers, criteria)
                self.imported_count += len(imports.imported)
                marked = await self._mark_orphans(watch, review, workers, fleet)
            await self._look_for_leaks(watch, review, workers, imports, settings, fleet)
        finally:
            # Whatever failed above, their own passes go on.
            for worker_id in sorted(review.mismatched - marked):
                self._around.wake(worker_id)
        return ""

    async def _workers(self, region: str) -> list[Worker]:
        listing = self._around.internal.workers(aws_region=[region], exclude_statuses=[WorkerStatus.TERMINATED])
        return [worker async for worker in listing]

    async def _criteria(self, watch: RegionMonitor, settings: FleetSettings | None) -> DiscoveryCriteria:
        """By what to find instances; from now on all sweeps of the region ask for that."""
        told = DiscoverySettings() if settings is None else settings.discovery
        image_ids: Sequence[str] = ()
        if told.worker_discovery_enabled and told.worker_discovery_ami_filter:
            try:
                images = await self._around.cloud.find_images(
                    watch.region, told.worker_discovery_ami_filter, self._around.ami_owners
                )
                image_ids = [image.id for image in images]
            except CloudError as error:
                log.warning("cannot look up images for discovery", region=watch.region, error=str(error))
                image_ids = watch.observer.selection.image_ids
        criteria = DiscoveryCriteria.of(told, image_ids)
        watch.observer.selection = criteria.selection
        return criteria

    async def _mark_orphans(
        self, watch: RegionMonitor, review: SweepDiff, workers: Sequence[Worker], fleet: FleetState
    ) -> set[str]:
        """Write down as TERMINATED whose instance cannot be found any more (ADR-014)."""
        marked: set[str] = set()
        for worker in workers:
            if worker.id not in review.absent or not self._may_be_marked(watch, worker, fleet):
                continue
            write = WorkerStatusUpdate(
                status=WorkerStatus.TERMINATED,
                version=worker.version,
                reason=INSTANCE_NOT_FOUND,
                terminated_by=BY_DISCOVERY,
                terminated_reason=INSTANCE_NOT_FOUND,
            )
            try:
                await self._around.internal.write_status(self._around.leader(), worker.id, write)
            except StaleLeaderError:
                raise
            except ApiError as error:
                # Somebody else was faster, or it has become something else: the next scan sees it as it is then.
                log.info("orphan left for the next scan", worker=worker.id, error=str(error))
                continue
            marked.add(worker.id)
            self.orphans_terminated_count += 1
            log.warning("worker lost", worker=worker.id, instance_id=worker.instance_id, region=watch.region)
        return marked

    def _may_be_marked(self, watch: RegionMonitor, worker: Worker, fleet: FleetState) -> bool:
        if worker.status in _HANDLED_BY_PASSES or worker.lost_instance_policy is LostInstancePolicy.REPLACE:
            return False
        now = clock.now()
        if any(hold is not None and hold.active(now) for hold in (fleet.hold, worker.hold)):
            return False
        return watch.loss(worker)[0] is LossVerdict.ALLOWED

    async def _look_for_leaks(
        self,
        watch: RegionMonitor,
        review: SweepDiff,
        workers: Sequence[Worker],
        imports: ImportResult,
        settings: FleetSettings | None,
        fleet: FleetState,
    ) -> None:
        enabled_by_setting = settings is not None and settings.discovery.terminate_leaked_instances
        await self.leaks.take_in(
            review.sweep,
            workers,
            TerminationPermission(enabled_by_setting, watch.breaker_open, fleet),
            spared=imports.imported.keys() | imports.waiting,
            disowned=imports.declined,
        )


def _wrong_account(watch: RegionMonitor, review: SweepDiff) -> bool:
    """Whether we look into another account than the records', and no person has said yet that this is meant."""
    return bool(review.foreign) and watch.breaker_open
