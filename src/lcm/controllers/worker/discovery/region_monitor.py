"""Sweeps a region, observes the instances of its workers, and decides which of them may be marked as lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ClientError
from lcm.cloud.instance_cache import GONE_AFTER_SECONDS, VISIBILITY_GRACE_SECONDS
from lcm.cloud.types import Sweep
from lcm.controllers.worker.discovery.breaker import NOT_LOST, OTHER_ACCOUNT, RegionBreaker
from lcm.controllers.worker.discovery.sweep_diff import diff_sweep, is_foreign
from lcm.controllers.worker.observe.observation import InstanceObservation, LossVerdict, Visibility
from lcm.core import clock
from lcm.core.hosting import wait_for_event
from lcm.model.system import BLIND_AFTER
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.cloud.region_cache import RegionCache
    from lcm.cloud.types import Instance
    from lcm.controllers.worker.discovery.sweep_diff import SweepDiff
    from lcm.controllers.worker.fleet_cache import FleetCache
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Worker


log = structlog.get_logger(__name__)

_NO_INSTANCE = "the worker has no instance"
_BREAKER_NOT_READ = "the control plane has not reported yet whether the breaker is open"
_ACCOUNT_CHANGED = "the AWS account changed during the sweep"
# Without another instance in the region, nothing shows whether EC2 lists what is there.
ONLY_INSTANCE_GONE_AFTER_SECONDS = 1800.0


class RegionMonitor:
    """Sweeps a region and observes its instances, for one leader at a time. Times are of `clock.boottime()`.

    `settings` returns the current fleet settings, or None if they were never read.
    """

    def __init__(
        self,
        region_cache: RegionCache,
        internal: InternalApi,
        *,
        leader: Callable[[], Leader],
        settings: Callable[[], FleetSettings | None],
    ) -> None:
        self.region_cache = region_cache
        self.breaker = RegionBreaker(region_cache.region)
        self._internal = internal
        self._leader = leader
        self._settings = settings
        self._sweep_lock = asyncio.Lock()
        self._breaker_read = False
        self._scanned_at = float("-inf")
        self._lost_instances: dict[str, str] = {}  # by worker: the instance that the last sweep found lost
        self._witnesses: frozenset[str] = frozenset()  # workers whose instance is visible, or long enough there to be

    @property
    def region(self) -> str:
        """The name of the region."""
        return self.region_cache.region

    @property
    def is_blind(self) -> bool:
        """Whether EC2 could not be read completely for some time, which is more than one failed sweep."""
        return self.region_cache.blind_seconds >= BLIND_AFTER.total_seconds()

    @property
    def sweep_error(self) -> str:
        """Why the last sweep is incomplete; empty if it is complete."""
        latest = self.region_cache.latest
        return "" if latest is None or latest.complete else latest.error

    def begin_term(self) -> None:
        """Drop the conclusions of an earlier leader, and its absences, but not what the cloud returned."""
        self.region_cache.restart_absences()
        self.breaker = RegionBreaker(self.region)
        self._breaker_read = False
        self._scanned_at = float("-inf")
        self._lost_instances = {}

    # The whole region

    async def sweep(self, workers: Sequence[Worker], *, scan: bool = False, max_age: float = 0.0) -> SweepDiff | None:
        """Compare a sweep that began at most `max_age` ago with all workers of the region that are not TERMINATED.

        Returns None if the sweep is incomplete: nothing follows from it. Two scans in a row that agree close the
        breaker; they never share a sweep. An outdated leader gets `StaleTermError`.
        """
        async with self._sweep_lock:
            await self._read_breaker()
            sweep = await self._sweep_all(workers, max_age)
            if not sweep.complete or not sweep.account_id:
                self._lost_instances = {}
                self.breaker.sweep_failed(scan=scan)
                return None
            self._witnesses = frozenset(
                worker.id
                for worker in workers
                if worker.instance_id is not None
                and worker.desired_status is not DesiredStatus.TERMINATED
                and (worker.instance_id in sweep.instances or _instance_age(worker) > VISIBILITY_GRACE_SECONDS)
            )
            diff = diff_sweep(self.region, workers, sweep, self._is_gone, self.breaker.accepted, now=clock.now())
            settings = self._settings()
            enabled = None if settings is None else settings.discovery.breaker_enabled
            scan = scan and sweep.began_at > self._scanned_at
            if scan:
                self._scanned_at = sweep.began_at
            self._lost_instances = {w.id: w.instance_id for w in workers if w.id in diff.lost and w.instance_id}
            self.breaker.evaluate(diff, enabled=enabled, scan=scan)
            await self._report()
            return diff

    async def _sweep_all(self, workers: Sequence[Worker], max_age: float) -> Sweep:
        """A sweep, with recorded instances that it does not contain read by id."""
        sweep = await self.region_cache.sweep(max_age)
        missing = sorted({w.instance_id for w in workers if w.instance_id and w.instance_id not in sweep.instances})
        if not sweep.complete or not missing:
            return sweep
        # A response from before the end of the sweep would prove nothing new.
        by_id = await self.region_cache.describe(missing, clock.boottime())
        complete, error = by_id.complete, by_id.error
        if by_id.account_id and by_id.account_id != sweep.account_id:
            complete, error = False, _ACCOUNT_CHANGED
        instances: dict[str, Instance] = {**sweep.instances, **by_id.instances}
        calls = sweep.calls + by_id.calls
        return Sweep(self.region, instances, complete, sweep.began_at, sweep.account_id, error, calls)

    # The breaker

    @property
    def breaker_open(self) -> bool:
        """Whether it is open, or may be because it was not read yet."""
        return self.breaker.is_open or not self._breaker_read

    async def _read_breaker(self) -> None:
        """Read the breaker before each sweep: a person may have closed it, or the control plane opened it."""
        try:
            state = await self._internal.fleet()
        except ClientError as error:
            log.warning("cannot read the breaker", region=self.region, error=str(error))
            return
        reported, accepted = state.breakers.get(self.region), state.accepted_losses(self.region)
        if self._breaker_read:
            self.breaker.update_reported(reported, accepted)
        else:
            self.breaker.restore(reported, accepted)
            self._breaker_read = True

    async def _report(self) -> None:
        report = self.breaker.pending_report
        if report is None:
            return
        try:
            state = await self._internal.report_breaker(self._leader(), report)
        except ClientError as error:
            log.warning("cannot report the breaker; trying again", region=self.region, error=str(error))
            return
        log.warning("breaker opened" if report.open else "breaker closed", region=self.region, reason=report.reason)
        self.breaker.report_accepted(report, state.breakers.get(self.region), state.accepted_losses(self.region))

    def loss_verdict(self, worker: Worker) -> tuple[LossVerdict, str]:
        """Whether the worker may be marked as lost now; if not, why."""
        if not self._breaker_read:
            return LossVerdict.UNJUDGED, _BREAKER_NOT_READ
        if self._in_other_account(worker):
            return LossVerdict.BLOCKED, OTHER_ACCOUNT
        verdict = self.breaker.verdict(worker.id)
        if verdict[0] is LossVerdict.ALLOWED and self._lost_instances.get(worker.id) != worker.instance_id:
            return LossVerdict.UNJUDGED, NOT_LOST  # another instance was found lost
        return verdict

    # One worker

    def last_observation(self, worker: Worker, not_before: float) -> InstanceObservation | None:
        """The last read of a worker's instance; None if none began at `not_before` or later."""
        if worker.instance_id is None:
            return InstanceObservation(Visibility.NOT_OBSERVED, error=_NO_INSTANCE)
        last = self.region_cache.last_lookup(worker.instance_id)
        if last is None or last.began_at < not_before:
            return None
        return self._observation_of(worker, last.instance, last.began_at, self.region_cache.account_id)

    async def observe(self, worker: Worker, not_before: float) -> InstanceObservation:
        """The last observation; if there is none, read the instance, together with those of other callers."""
        last = self.last_observation(worker, not_before)
        if last is not None:
            return last
        assert worker.instance_id is not None
        sweep = await self.region_cache.describe([worker.instance_id], not_before)
        instance = sweep.instances.get(worker.instance_id)
        if instance is None and not sweep.complete:
            return InstanceObservation(Visibility.NOT_OBSERVED, error=sweep.error, began_at=sweep.began_at)
        return self._observation_of(worker, instance, sweep.began_at, sweep.account_id)

    def _observation_of(
        self, worker: Worker, instance: Instance | None, began_at: float, account_id: str
    ) -> InstanceObservation:
        if instance is not None:
            return InstanceObservation.of(instance, began_at=began_at, account_id=account_id or None)
        if self._in_other_account(worker):
            return InstanceObservation(Visibility.NOT_VISIBLE, error=OTHER_ACCOUNT, began_at=began_at)
        if self._is_gone(worker):
            return InstanceObservation(Visibility.GONE, account_id=account_id or None, began_at=began_at)
        now = clock.boottime()
        absence = self.region_cache.absence(worker.instance_id or "", now - _instance_age(worker), now)
        return InstanceObservation(
            Visibility.NOT_VISIBLE,
            account_id=account_id or None,
            began_at=began_at,
            absent_sweeps=0 if absence is None else absence.sweeps,
            gone_after=self._gone_after(worker),
        )

    def _in_other_account(self, worker: Worker) -> bool:
        """Whether the worker belongs to another account than the one in use, where its instance may be healthy."""
        account_id = self.region_cache.account_id
        return bool(account_id) and is_foreign(worker, account_id)

    def _is_gone(self, worker: Worker) -> bool:
        if worker.instance_id is None:
            return False
        now = clock.boottime()
        return self.region_cache.is_gone(worker.instance_id, now - _instance_age(worker), now, self._gone_after(worker))

    def _gone_after(self, worker: Worker) -> float:
        """Seconds for which the instance must be absent: longer if no other can show whether EC2 lists this region."""
        others = self._witnesses - {worker.id}
        return GONE_AFTER_SECONDS if others else ONLY_INSTANCE_GONE_AFTER_SECONDS


def _instance_age(worker: Worker) -> float:
    """Seconds since the launch call or import."""
    return (clock.earliest_now() - (worker.instance_since or worker.created_at)).total_seconds()


class RegionSweeper:
    """One loop per region. `interval` is the time between sweeps that are not requested; None: only requested ones."""

    def __init__(
        self,
        regions: Mapping[str, RegionMonitor],
        cache: FleetCache,
        wake: Callable[[str], None],
        interval: float | None,
    ) -> None:
        self._regions = regions
        self._cache = cache
        self._wake = wake
        self._interval = interval
        self._requested = {region: asyncio.Event() for region in regions}

    def request_sweep(self) -> None:
        """Sweep all regions now."""
        for event in self._requested.values():
            event.set()

    async def run(self, region: str) -> None:
        """Sweep one region until cancelled."""
        monitor, requested = self._regions[region], self._requested[region]
        await monitor.region_cache.start()
        try:
            while True:
                await wait_for_event(requested, self._interval)
                requested.clear()
                if self._interval is not None:
                    await self._cache.read_fleet()  # without polling no list of workers reads it
                diff = await monitor.sweep(self._cache.in_region(region))
                for worker_id in sorted(diff.mismatched if diff is not None else ()):
                    self._wake(worker_id)
        finally:
            await monitor.region_cache.stop()
