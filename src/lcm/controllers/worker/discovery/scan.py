"""Discovery: slow scans of all regions for instances without a worker and workers without an instance.

It decides only whether something exists. A worker whose instance is in the wrong state is woken, nothing more.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from lcm.client.errors import ApiError, BreakerOpenError, ClientError
from lcm.cloud.errors import CloudError
from lcm.controllers.worker.decide.shared.instance import BY_DISCOVERY, INSTANCE_NOT_FOUND
from lcm.controllers.worker.discovery.importer import (
    STATUS_BY_IMPORT_STATE,
    DiscoveryCriteria,
    Importer,
    ImportResult,
    find_candidates,
    valid_name,
)
from lcm.controllers.worker.discovery.leaked_instances import LeakedInstances, TerminationPermission
from lcm.controllers.worker.observe.observation import LossVerdict
from lcm.core import clock
from lcm.model.fleet.settings import DiscoverySettings
from lcm.model.system import DiscoveryPlan, PlannedImport, PlannedLoss
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
# Until the settings are read nothing is marked or imported: that should not last a whole interval.
SETTINGS_RETRY_SECONDS: Final = 30.0
_MAX_PLANNED: Final = 100
_HANDLED_BY_PASSES: Final = (WorkerStatus.PENDING, WorkerStatus.PROVISIONING, WorkerStatus.FAILED)


@dataclass(frozen=True, slots=True)
class DiscoveryDependencies:
    """What discovery works with. `settings` returns None until they were read once."""

    cloud: CloudProviderSPI
    probe: CmlProbe
    internal: InternalApi
    leader: Callable[[], Leader]
    settings: Callable[[], FleetSettings | None]
    wake: Callable[[str], None]
    known_workers: Callable[[str], Sequence[Worker]]  # of a region, as last read
    effect: KeyedEffect
    installation: str
    ami_owners: Sequence[str] = ("self",)
    private_addresses: bool = False


class Discovery:
    """Scans the regions and acts on the results. Runs as long as this process leads."""

    def __init__(
        self,
        deps: DiscoveryDependencies,
        monitors: Mapping[str, RegionMonitor],
    ) -> None:
        self._deps = deps
        self._monitors = dict(monitors)
        self._importers = {
            region: Importer(
                region,
                deps.internal,
                deps.probe,
                leader=deps.leader,
                installation=deps.installation,
                private_addresses=deps.private_addresses,
                instance_types=deps.cloud.instance_types,
            )
            for region in monitors
        }
        self.leaks = LeakedInstances(
            deps.cloud,
            deps.internal,
            leader=deps.leader,
            installation=deps.installation,
            effect=deps.effect,
        )
        self.scans_count = 0
        self.imported_count = 0
        self.orphans_terminated_count = 0
        self.last_scan_at: datetime | None = None
        self.errors: dict[str, str] = {}  # by region: why its last scan failed
        self._next_scan_at: datetime | None = None
        self._criteria_used: dict[str, DiscoveryCriteria] = {}  # by region, in its last scan
        self._examined: dict[str, frozenset[str]] = {}  # by region: the instances that its last scan has decided about
        self._held_losses: dict[str, list[PlannedLoss]] = {}  # by region: workers that the hold keeps

    def stats(self) -> dict[str, Any]:
        """For the admin API."""
        return {
            "scans_count": self.scans_count,
            "imported_count": self.imported_count,
            "orphans_terminated_count": self.orphans_terminated_count,
            "leaked_instances": len(self.leaks.current),
            "last_scan_at": None if self.last_scan_at is None else self.last_scan_at.isoformat(),
            "trouble": dict(sorted(self.errors.items())),
        }

    async def run(self) -> None:
        """Scan until cancelled, first soon after leadership was won. An outdated leader gets `StaleTermError`."""
        pause = FIRST_SCAN_AFTER
        while True:
            await asyncio.sleep(pause)
            began = clock.boottime()
            await self.scan()
            pause = max(0.0, self._interval() - (clock.boottime() - began))
            self._next_scan_at = clock.after(pause)

    def plan(self) -> DiscoveryPlan:
        """What the next scan will do if nothing changes until then.

        Sweeps are more frequent than scans: an instance that appeared since the last scan is imported by the next one.
        """
        imports = [each for region in sorted(self._criteria_used) for each in self._new_candidates(region)]
        losses = [each for _, found in sorted(self._held_losses.items()) for each in found]
        return DiscoveryPlan(
            next_scan_at=self._next_scan_at,
            on_hold=bool(losses),
            imports=tuple(imports[:_MAX_PLANNED]),
            imports_total=len(imports),
            losses=tuple(losses[:_MAX_PLANNED]),
            losses_total=len(losses),
        )

    def _new_candidates(self, region: str) -> list[PlannedImport]:
        sweep, settings = self._monitors[region].region_cache.latest, self._deps.settings()
        if sweep is None or settings is None or not settings.discovery.worker_discovery_enabled:
            return []
        instances = sweep.instances.values()
        candidates = find_candidates(
            instances, self._deps.known_workers(region), self._criteria_used[region], self._deps.installation
        )
        return [
            PlannedImport(instance_id=each.id, region=region, name=valid_name(each.tags.get("Name")) or "")
            for each in candidates
            if each.id not in self._examined.get(region, ()) and each.state in STATUS_BY_IMPORT_STATE
        ]

    def _interval(self) -> float:
        settings = self._deps.settings()
        return SETTINGS_RETRY_SECONDS if settings is None else settings.discovery.discovery_interval

    async def scan(self) -> None:
        """Scan all regions in parallel; an error in one does not affect the others."""
        regions = sorted(self._monitors)
        outcomes = await asyncio.gather(*(self._scan_region(region) for region in regions), return_exceptions=True)
        for region, outcome in zip(regions, outcomes, strict=True):
            if isinstance(outcome, ClientError | CloudError):
                self._record_error(region, str(outcome) or type(outcome).__name__)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._record_error(region, outcome)
        self.scans_count += 1
        self.last_scan_at = clock.now()

    def _record_error(self, region: str, error: str) -> None:
        if error and region not in self.errors:
            log.warning("discovery failed in a region; trying again", region=region, error=error)
        self.errors.pop(region, None)
        if error:
            self.errors[region] = error

    async def _scan_region(self, region: str) -> str:
        """Scan one region. Returns why it could not be scanned; empty on success."""
        monitor, settings = self._monitors[region], self._deps.settings()
        criteria = self._criteria_used[region] = await self._criteria(monitor, settings)
        workers = await self._workers(region)
        diff = await monitor.sweep(workers, scan=True)
        if diff is None:
            return "the sweep of the region was incomplete"
        marked: set[str] = set()
        imports = ImportResult()
        try:
            fleet = await self._deps.internal.fleet()
            if (
                settings is not None
                and settings.discovery.worker_discovery_enabled
                and not _wrong_account(monitor, diff)
            ):
                imports = await self._importers[region].import_from(diff.sweep, workers, criteria)
                self.imported_count += len(imports.imported)
                self._examined[region] = frozenset(diff.sweep.instances.keys() - imports.waiting)
                marked = await self._mark_orphans(monitor, diff, workers, fleet)
                self._held_losses[region] = self._find_held_losses(monitor, diff, workers, fleet)
            await self._find_leaked_instances(monitor, diff, workers, imports, settings, fleet)
        finally:
            # Whatever failed above, the passes of these workers continue.
            for worker_id in sorted(diff.mismatched - marked):
                self._deps.wake(worker_id)
        return ""

    async def _workers(self, region: str) -> list[Worker]:
        listing = self._deps.internal.workers(aws_region=[region], exclude_statuses=[WorkerStatus.TERMINATED])
        return [worker async for worker in listing]

    async def _criteria(self, monitor: RegionMonitor, settings: FleetSettings | None) -> DiscoveryCriteria:
        """The criteria for instances to import; all later sweeps of the region select by them."""
        discovery = DiscoverySettings() if settings is None else settings.discovery
        image_ids: Sequence[str] = ()
        if discovery.worker_discovery_enabled and discovery.worker_discovery_ami_filter:
            try:
                images = await self._deps.cloud.find_images(
                    monitor.region, discovery.worker_discovery_ami_filter, self._deps.ami_owners
                )
                image_ids = [image.id for image in images]
            except CloudError as error:
                log.warning("images for discovery cannot be listed", region=monitor.region, error=str(error))
                image_ids = monitor.region_cache.selection.image_ids
        criteria = DiscoveryCriteria.of(discovery, image_ids)
        monitor.region_cache.selection = criteria.selection
        return criteria

    async def _mark_orphans(
        self, monitor: RegionMonitor, diff: SweepDiff, workers: Sequence[Worker], fleet: FleetState
    ) -> set[str]:
        """Mark workers as TERMINATED whose instance cannot be found any more (ADR-014)."""
        marked: set[str] = set()
        for worker in workers:
            if worker.id not in diff.absent or not self._may_be_marked(monitor, worker, fleet):
                continue
            write = WorkerStatusUpdate(
                status=WorkerStatus.TERMINATED,
                version=worker.version,
                reason=INSTANCE_NOT_FOUND,
                terminated_by=BY_DISCOVERY,
                terminated_reason=INSTANCE_NOT_FOUND,
                instance_absent=True,
            )
            try:
                await self._deps.internal.write_status(self._deps.leader(), worker.id, write)
            except BreakerOpenError as error:
                log.warning("breaker opened by the control plane", region=monitor.region, reason=str(error))
                break
            except ApiError as error:
                # The worker was changed meanwhile: the next scan reads it again.
                log.info("orphan left for the next scan", worker=worker.id, error=str(error))
                continue
            marked.add(worker.id)
            self.orphans_terminated_count += 1
            log.warning("worker lost", worker=worker.id, instance_id=worker.instance_id, region=monitor.region)
        return marked

    def _find_held_losses(
        self, monitor: RegionMonitor, diff: SweepDiff, workers: Sequence[Worker], fleet: FleetState
    ) -> list[PlannedLoss]:
        """The workers that this scan would have marked as lost without the hold of the fleet."""
        if fleet.hold is None or not fleet.hold.active(clock.earliest_now()):
            return []
        released = fleet.model_copy(update={"hold": None})
        return [
            PlannedLoss(worker_id=worker.id, name=worker.name)
            for worker in workers
            if worker.id in diff.absent and self._may_be_marked(monitor, worker, released)
        ]

    def _may_be_marked(self, monitor: RegionMonitor, worker: Worker, fleet: FleetState) -> bool:
        if worker.status in _HANDLED_BY_PASSES or worker.lost_instance_policy is LostInstancePolicy.REPLACE:
            return False
        now = clock.earliest_now()
        if any(hold is not None and hold.active(now) for hold in (fleet.hold, worker.hold)):
            return False
        return monitor.loss_verdict(worker)[0] is LossVerdict.ALLOWED

    async def _find_leaked_instances(
        self,
        monitor: RegionMonitor,
        diff: SweepDiff,
        workers: Sequence[Worker],
        imports: ImportResult,
        settings: FleetSettings | None,
        fleet: FleetState,
    ) -> None:
        enabled_by_setting = settings is not None and settings.discovery.terminate_leaked_instances
        await self.leaks.process_scan(
            diff.sweep,
            workers,
            TerminationPermission(enabled_by_setting, monitor.breaker_open, fleet),
            excluded=imports.imported.keys() | imports.waiting,
            of_terminated_workers=imports.declined,
        )


def _wrong_account(monitor: RegionMonitor, diff: SweepDiff) -> bool:
    """Whether the records belong to another account than the one in use, and no person has accepted that yet."""
    return bool(diff.foreign) and monitor.breaker_open
