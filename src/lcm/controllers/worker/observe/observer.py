"""Observes a worker: the state of its instance and of its CML, no older than the last change to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.controllers.worker.decide.shared.conditions import seconds_in_status
from lcm.controllers.worker.discovery.importer import DiscoveryCriteria
from lcm.controllers.worker.observe.observation import (
    InstanceObservation,
    LicenseTaskState,
    LossVerdict,
    Observation,
    Visibility,
)
from lcm.core import clock
from lcm.core.hosting import cancel_and_wait
from lcm.model.worker.status import CML_STATUSES, DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from lcm.controllers.worker.act.license_tasks import LicenseTasks
    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
    from lcm.controllers.worker.fleet_cache import FleetCache
    from lcm.controllers.worker.memory import WorkerMemories, WorkerMemory
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.controllers.worker.observe.health_monitor import HealthMonitor
    from lcm.controllers.worker.observe.launch_resolver import LaunchResolver
    from lcm.controllers.worker.observe.observation import (
        CmlObservation,
        HealthObservation,
        LaunchedInstances,
        LaunchResolution,
    )
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

CML_MAX_AGE = 10.0
_REGION_NOT_CONFIGURED = "the worker's region is not configured here"


class WorkerObserver:
    """Collects everything that a decision about a worker is made from."""

    def __init__(
        self,
        *,
        regions: Mapping[str, RegionMonitor],
        cml_monitor: CmlMonitor,
        license_tasks: LicenseTasks,
        launch_resolver: LaunchResolver,
        settings: Callable[[], FleetSettings | None],
        on_cml_changed: Callable[[str], None],
        license_releases: Callable[[Worker], int] = lambda _worker: 0,
        health: Mapping[str, HealthMonitor] | None = None,
        fleet: FleetCache | None = None,
    ) -> None:
        self._regions = regions
        self._cml_monitor = cml_monitor
        self._license_tasks = license_tasks
        self._launch_resolver = launch_resolver
        self._settings = settings
        self._on_cml_changed = on_cml_changed
        self._license_releases = license_releases
        self._health = health or {}
        self._fleet = fleet
        self._queries: set[asyncio.Task[None]] = set()

    async def observe(self, worker: Worker, memory: WorkerMemory, memories: WorkerMemories) -> Observation:
        """Observe one worker."""
        if worker.status is WorkerStatus.PENDING:
            return await self._observe_launch(worker, memory, memories)
        region = self._regions.get(worker.aws_region)
        if region is None:
            return Observation(InstanceObservation(Visibility.NOT_OBSERVED, error=_REGION_NOT_CONFIGURED))
        instance = (
            await region.observe(worker, memory.changed_at)
            if worker.instance_id
            else InstanceObservation(Visibility.NOT_OBSERVED)
        )
        memories.record_observation(memory, instance)
        memory.not_observed = worker.instance_id is not None and instance.visibility is Visibility.NOT_OBSERVED
        in_service, moving = self._neighbors(worker)
        loss_verdict, loss_reason = region.loss_verdict(worker) if instance.gone else (LossVerdict.UNJUDGED, "")
        return Observation(
            instance=instance,
            cml=await self._cml(worker),
            health=self._health_of(worker, memory),
            lablets=worker.allocation.lablets,
            in_service=in_service,
            moving=moving,
            has_started=memory.has_started,
            loss_verdict=loss_verdict,
            loss_reason=loss_reason,
            license_task=self._license_tasks.state(worker.id, worker.instance_id),
            license_error=self._license_tasks.error(worker.id, worker.instance_id),
            license_requested_at=self._license_tasks.requested_at(worker.id, worker.instance_id),
            license_releases=self._license_releases(worker),
            no_capacity_at=memory.no_capacity_at(worker),
            boottime=clock.boottime(),
        )

    async def stop(self) -> None:
        """Cancel the queries that run in the background."""
        await cancel_and_wait(list(self._queries))

    def _health_of(self, worker: Worker, memory: WorkerMemory) -> HealthObservation | None:
        monitor = self._health.get(worker.aws_region)
        if monitor is None or worker.instance_id is None:
            return None
        return monitor.observation(worker.instance_id, memory.changed_at)

    def _neighbors(self, worker: Worker) -> tuple[int, str]:
        """How many workers are in service, and which other one moves; only for a worker that may have to move."""
        if self._fleet is None or not (worker.maintenance is not None or worker.is_impaired):
            return 0, ""
        return self._fleet.count_in_service(), self._fleet.moving_worker(worker)

    async def _observe_launch(self, worker: Worker, memory: WorkerMemory, memories: WorkerMemories) -> Observation:
        should_run = worker.desired_status is DesiredStatus.RUNNING
        launched_instances: LaunchedInstances | None = None
        resolution: LaunchResolution | None = None
        if should_run or worker.launch_intent is not None:
            launched_instances = await self._launch_resolver.launched_instances(worker)
        if should_run and worker.launch_intent is None:
            settings = self._settings()
            criteria = DiscoveryCriteria.of(None if settings is None else settings.discovery)
            tag = (criteria.tag_key, criteria.tag_value or "true")
            resolution = await self._launch_resolver.resolve(
                worker, worker.launch_attempt + 1, tag, memory.unsupported_launches(worker.generation)
            )
        return Observation(
            InstanceObservation(Visibility.NOT_OBSERVED),
            launched_instances=launched_instances,
            resolution=resolution,
            calls=memories.calls(worker, memory),
            no_capacity_at=memory.no_capacity_at(worker),
            boottime=clock.boottime(),
        )

    async def _cml(self, worker: Worker) -> CmlObservation:
        """The last observation where that is enough: only a drain waits for a query; others are woken by its result."""
        if worker.license_release_started_at is not None:
            return self._cml_of_started(worker, worker.license_release_started_at)
        if worker.status not in CML_STATUSES or worker.instance_id is None:
            return self._cml_monitor.last_observation(worker)
        if worker.status is WorkerStatus.DRAINING:
            age = min(CML_MAX_AGE, seconds_in_status(worker, clock.earliest_now()))
            return await self._cml_monitor.query(worker, max_age=age, with_license=False)
        last = self._cml_monitor.last_observation(worker)
        with_license = _license_in_progress(worker, last, self._license_tasks.state(worker.id, worker.instance_id))
        if last.ready is not True or with_license or worker.maintenance is not None:  # which waits for its last node
            self._query_soon(worker, with_license=with_license)
        return last

    def _cml_of_started(self, worker: Worker, started_at: datetime) -> CmlObservation:
        """CML on an instance that was started only to deregister its license: older responses do not count."""
        last = self._cml_monitor.last_observation(worker)
        answered = last.ready is True and last.queried_at is not None and last.queried_at >= started_at
        if not answered and worker.license_release_ready_at is None:
            self._query_soon(worker, with_license=False)
        return last

    def _query_soon(self, worker: Worker, *, with_license: bool) -> None:
        async def query() -> None:
            before = self._cml_monitor.last_observation(worker)
            after = await self._cml_monitor.query(worker, max_age=CML_MAX_AGE, with_license=with_license)
            if (before.ready, before.license, before.queried_at is None) != (
                after.ready,
                after.license,
                after.queried_at is None,
            ):
                self._on_cml_changed(worker.id)

        task = asyncio.create_task(query(), name=f"cml-query:{worker.id}")
        self._queries.add(task)
        task.add_done_callback(self._query_ended)

    def _query_ended(self, task: asyncio.Task[None]) -> None:
        """Nobody awaits a query: an error would only be reported by asyncio, at the end of the process."""
        self._queries.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("a query of CML failed", query=task.get_name(), error=f"{type(error).__name__}: {error}")


def _license_in_progress(worker: Worker, last: CmlObservation, task: LicenseTaskState) -> bool:
    """Whether the license status is about to change, so that a query every minute would be too slow."""
    if worker.pending_license_operation is not None or task is LicenseTaskState.RUNNING:
        return True
    if not worker.has_license_token:
        return False
    given_up = worker.license_failed_generation == worker.generation
    return last.license is None or (worker.license_status is not LicenseStatus.REGISTERED and not given_up)
