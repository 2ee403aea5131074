"""Looking at a worker: what its instance and its CML show, no older than what was last done to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

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
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lcm.controllers.worker.act.license_tasks import LicenseTasks
    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
    from lcm.controllers.worker.memory import LeaderMemory, WorkerMemory
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.controllers.worker.observe.launch_resolver import LaunchResolver
    from lcm.controllers.worker.observe.observation import CmlObservation, LaunchedInstances, LaunchResolution
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Worker

CML_MAX_AGE = 10.0
_CML_STATUSES = (WorkerStatus.RUNNING, WorkerStatus.DRAINING)
_REGION_NOT_CONFIGURED = "its region is not configured here"


class WorkerObserver:
    """The eyes of the controller."""

    def __init__(
        self,
        *,
        regions: Mapping[str, RegionMonitor],
        watch: CmlMonitor,
        licences: LicenseTasks,
        launching: LaunchResolver,
        settings: Callable[[], FleetSettings | None],
        on_news: Callable[[str], None],
    ) -> None:
        self._regions = regions
        self._watch = watch
        self._licences = licences
        self._launch_resolver = launching
        self._settings = settings
        self._on_news = on_news
        self._looks: set[asyncio.Task[None]] = set()

    async def observe(self, worker: Worker, note: WorkerMemory, notes: LeaderMemory) -> Observation:
        """What a decision about the worker is made from."""
        if worker.status is WorkerStatus.PENDING:
            return await self._observe_launch(worker, note, notes)
        region = self._regions.get(worker.aws_region)
        if region is None:
            return Observation(InstanceObservation(Visibility.NO_LOOK, trouble=_REGION_NOT_CONFIGURED))
        sight = (
            await region.look(worker, note.touched) if worker.instance_id else InstanceObservation(Visibility.NO_LOOK)
        )
        notes.saw(note, sight)
        note.unseen = worker.instance_id is not None and sight.visibility is Visibility.NO_LOOK
        loss, trouble = region.loss(worker) if sight.gone else (LossVerdict.UNJUDGED, "")
        return Observation(
            sight=sight,
            cml=await self._cml(worker),
            lablets=worker.allocation.lablets,
            moved=note.moved,
            loss=loss,
            loss_reason=trouble,
            license_task=self._licences.state(worker.id, worker.instance_id),
            license_error=self._licences.failure(worker.id, worker.instance_id),
            license_requested_at=self._licences.asked_at(worker.id, worker.instance_id),
            boottime=clock.boottime(),
        )

    async def stop(self) -> None:
        """End looks that nobody waits for."""
        looks = list(self._looks)
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _observe_launch(self, worker: Worker, note: WorkerMemory, notes: LeaderMemory) -> Observation:
        wanted = worker.desired_status is DesiredStatus.RUNNING
        traces: LaunchedInstances | None = None
        resolution: LaunchResolution | None = None
        if wanted or worker.launch_intent is not None:
            traces = await self._launch_resolver.traces(worker)
        if wanted and worker.launch_intent is None:
            settings = self._settings()
            found_by = DiscoveryCriteria.of(None if settings is None else settings.discovery)
            tag = (found_by.tag_key, found_by.tag_value or "true")
            resolution = await self._launch_resolver.resolve(worker, worker.launch_attempt + 1, tag)
        return Observation(
            InstanceObservation(Visibility.NO_LOOK),
            traces=traces,
            resolution=resolution,
            calls=notes.calls(worker, note),
            boottime=clock.boottime(),
        )

    async def _cml(self, worker: Worker) -> CmlObservation:
        """From memory where it will do: only a drain waits for an answer, everybody else is woken by it."""
        if worker.status not in _CML_STATUSES or worker.instance_id is None:
            return self._watch.sight(worker)
        if worker.status is WorkerStatus.DRAINING:
            age = min(CML_MAX_AGE, seconds_in_status(worker, clock.now()))
            return await self._watch.look(worker, max_age=age, licence=False)
        known = self._watch.sight(worker)
        licence = _license_in_progress(worker, known, self._licences.state(worker.id, worker.instance_id))
        if known.ready is not True or licence:
            self._look_soon(worker, licence=licence)
        return known

    def _look_soon(self, worker: Worker, *, licence: bool) -> None:
        async def look() -> None:
            before = self._watch.sight(worker)
            after = await self._watch.look(worker, max_age=CML_MAX_AGE, licence=licence)
            if (before.ready, before.license, before.asked_at is None) != (
                after.ready,
                after.license,
                after.asked_at is None,
            ):
                self._on_news(worker.id)

        task = asyncio.create_task(look(), name=f"cml-look:{worker.id}")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)


def _license_in_progress(worker: Worker, known: CmlObservation, task: LicenseTaskState) -> bool:
    """Whether the licence is on its way somewhere, so that a look every minute would not do."""
    if worker.pending_license_operation is not None or task is LicenseTaskState.RUNNING:
        return True
    if not worker.has_license_token:
        return False
    given_up = worker.license_failed_generation == worker.generation
    return known.license is None or (worker.license_status is not LicenseStatus.REGISTERED and not given_up)
