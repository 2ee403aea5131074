"""The watch over one region: what is seen of its workers' instances, and what may be concluded from not seeing them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ClientError, StaleLeaderError
from lcm.cloud.types import Sweep
from lcm.controllers.worker.discovery.breaker import NOT_LOST, OTHER_ACCOUNT, RegionBreaker
from lcm.controllers.worker.discovery.sweep_diff import diff_sweep, is_foreign
from lcm.controllers.worker.observe.observation import InstanceObservation, LossVerdict, Visibility
from lcm.core import clock
from lcm.core.hosting import wait_for_event

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

_NO_INSTANCE = "it has no instance"
_BREAKER_NOT_READ = "the control plane has not said yet whether the breaker is open"
_ACCOUNT_CHANGED = "the account changed while the region was looked at"


class RegionMonitor:
    """All that is known of a region, for one leader at a time. Moments are of `clock.boottime()`.

    `settings` gives those that count now; None: they were never read.
    """

    def __init__(
        self,
        observer: RegionCache,
        internal: InternalApi,
        *,
        leader: Callable[[], Leader],
        settings: Callable[[], FleetSettings | None],
    ) -> None:
        self.observer = observer
        self.breaker = RegionBreaker(observer.region)
        self._internal = internal
        self._leader = leader
        self._settings = settings
        self._one_at_a_time = asyncio.Lock()
        self._breaker_read = False
        self._scanned_at = float("-inf")
        self._lost_instances: dict[str, str] = {}  # by worker: which instance the last sweep found lost

    @property
    def region(self) -> str:
        """Its name."""
        return self.observer.region

    def begin(self) -> None:
        """A new term: what an earlier leader concluded is forgotten, what the cloud showed is not."""
        self.breaker = RegionBreaker(self.region)
        self._breaker_read = False
        self._scanned_at = float("-inf")
        self._lost_instances = {}

    # The whole region

    async def sweep(self, workers: Sequence[Worker], *, scan: bool = False, max_age: float = 0.0) -> SweepDiff | None:
        """Compare a sweep that began at most `max_age` ago with all workers of the region that are not TERMINATED.

        None: the region could not be seen as a whole, and nothing follows. A scan counts for the agreement that closes
        the breaker; two scans never share a sweep. A leader that was overtaken gets `StaleLeaderError`.
        """
        async with self._one_at_a_time:
            await self._read_breaker()
            seen = await self._sweep_all(workers, max_age)
            if not seen.complete or not seen.account_id:
                self._lost_instances = {}
                self.breaker.sweep_failed(scan=scan)
                return None
            found = diff_sweep(self.region, workers, seen, self._is_gone, self.breaker.accepted)
            settings = self._settings()
            enabled = None if settings is None else settings.discovery.breaker_enabled
            scan = scan and seen.began_at > self._scanned_at
            if scan:
                self._scanned_at = seen.began_at
            self._lost_instances = {w.id: w.instance_id for w in workers if w.id in found.lost and w.instance_id}
            self.breaker.evaluate(found, enabled=enabled, scan=scan)
            await self._report()
            return found

    async def _sweep_all(self, workers: Sequence[Worker], max_age: float) -> Sweep:
        """A sweep, with those recorded instances that it does not show asked for by id."""
        sweep = await self.observer.look(max_age)
        missing = sorted({w.instance_id for w in workers if w.instance_id and w.instance_id not in sweep.instances})
        if not sweep.complete or not missing:
            return sweep
        # An answer from before the sweep's end would be the same glance again.
        asked = await self.observer.describe(missing, clock.boottime())
        complete, trouble = asked.complete, asked.trouble
        if asked.account_id and asked.account_id != sweep.account_id:
            complete, trouble = False, _ACCOUNT_CHANGED
        everything: dict[str, Instance] = {**sweep.instances, **asked.instances}
        calls = sweep.calls + asked.calls
        return Sweep(self.region, everything, complete, sweep.began_at, sweep.account_id, trouble, calls)

    # The breaker

    @property
    def breaker_open(self) -> bool:
        """Whether it is open, or may be: nobody has said yet."""
        return self.breaker.is_open or not self._breaker_read

    async def _read_breaker(self) -> None:
        """Read how it stands at the beginning, and as long as it is open: a person may have closed it."""
        if self._breaker_read and not self.breaker.is_open:
            return
        try:
            known = (await self._internal.fleet()).breakers.get(self.region)
        except ClientError as error:
            log.warning("cannot read the breaker", region=self.region, error=str(error))
            return
        if self._breaker_read:
            self.breaker.hear(known)
        else:
            self.breaker.restore(known)
            self._breaker_read = True

    async def _report(self) -> None:
        report = self.breaker.due
        if report is None:
            return
        try:
            state = await self._internal.report_breaker(self._leader(), report)
        except StaleLeaderError:
            raise
        except ClientError as error:
            log.warning("cannot report the breaker; trying again", region=self.region, error=str(error))
            return
        log.warning("breaker opened" if report.open else "breaker closed", region=self.region, reason=report.reason)
        self.breaker.told(report, state.breakers.get(self.region))

    def loss(self, worker: Worker) -> tuple[LossVerdict, str]:
        """Whether the worker may be marked as lost now; if not, why."""
        if not self._breaker_read:
            return LossVerdict.UNJUDGED, _BREAKER_NOT_READ
        if self._in_other_account(worker):
            return LossVerdict.BLOCKED, OTHER_ACCOUNT
        verdict = self.breaker.verdict(worker.id)
        if verdict[0] is LossVerdict.ALLOWED and self._lost_instances.get(worker.id) != worker.instance_id:
            return LossVerdict.UNJUDGED, NOT_LOST  # it was another instance that was found lost
        return verdict

    # One worker

    def sight(self, worker: Worker, not_before: float) -> InstanceObservation | None:
        """What looks have shown of a worker's instance; None: none that began then or later has."""
        if worker.instance_id is None:
            return InstanceObservation(Visibility.NO_LOOK, trouble=_NO_INSTANCE)
        last = self.observer.last_lookup(worker.instance_id)
        if last is None or last.began_at < not_before:
            return None
        return self._observation_of(worker, last.instance, last.began_at, self.observer.account_id)

    async def look(self, worker: Worker, not_before: float) -> InstanceObservation:
        """As `sight`, but where nobody has looked, the instance is asked for, together with those of others."""
        known = self.sight(worker, not_before)
        if known is not None:
            return known
        assert worker.instance_id is not None
        look = await self.observer.describe([worker.instance_id], not_before)
        instance = look.instances.get(worker.instance_id)
        if instance is None and not look.complete:
            return InstanceObservation(Visibility.NO_LOOK, trouble=look.trouble, began_at=look.began_at)
        return self._observation_of(worker, instance, look.began_at, look.account_id)

    def _observation_of(
        self, worker: Worker, instance: Instance | None, began_at: float, account_id: str
    ) -> InstanceObservation:
        if instance is not None:
            return InstanceObservation.of(instance, began_at=began_at, account_id=account_id or None)
        if self._in_other_account(worker):
            return InstanceObservation(Visibility.NOT_VISIBLE, trouble=OTHER_ACCOUNT, began_at=began_at)
        visibility = Visibility.GONE if self._is_gone(worker) else Visibility.NOT_VISIBLE
        return InstanceObservation(visibility, account_id=account_id or None, began_at=began_at)

    def _in_other_account(self, worker: Worker) -> bool:
        """Whether it belongs to another account than the one we look into: there it may be in the best of health."""
        account_id = self.observer.account_id
        return bool(account_id) and is_foreign(worker, account_id)

    def _is_gone(self, worker: Worker) -> bool:
        if worker.instance_id is None:
            return False
        age = (clock.now() - (worker.instance_since or worker.created_at)).total_seconds()
        now = clock.boottime()
        return self.observer.is_gone(worker.instance_id, now - age, now)


class RegionSweeper:
    """One loop for each region. `every`: seconds between sweeps that nobody asks for; None: all are asked for."""

    def __init__(
        self,
        regions: Mapping[str, RegionMonitor],
        known: FleetCache,
        wake: Callable[[str], None],
        every: float | None,
    ) -> None:
        self._regions = regions
        self._known = known
        self._wake = wake
        self._every = every
        self._asked = {region: asyncio.Event() for region in regions}

    def ask(self) -> None:
        """Sweep all regions now."""
        for event in self._asked.values():
            event.set()

    async def run(self, region: str) -> None:
        """Sweep one region for ever."""
        watch, asked = self._regions[region], self._asked[region]
        await watch.observer.start()
        try:
            while True:
                await wait_for_event(asked, self._every)
                asked.clear()
                if self._every is not None:
                    await self._known.read_fleet()  # nobody lists the workers, which would bring it along
                review = await watch.sweep(self._known.in_region(region))
                for worker_id in sorted(review.mismatched if review is not None else ()):
                    self._wake(worker_id)
        finally:
            await watch.observer.stop()
