"""A cache of a region's instances, shared by all callers: the number of calls grows with pages, not with callers.

One sweep serves all callers within a cycle, ids that it does not contain are described together, and instances in
transition are polled more often until they settle (the fast lane).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from lcm.cloud.instance_cache import GONE_AFTER_SECONDS, InstanceCache
from lcm.cloud.types import InstanceSelection, Sweep
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from lcm.cloud.instance_cache import Absence, InstanceLookup
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import Instance

    Subscriber = Callable[[Sequence[Instance]], None]

log = structlog.get_logger(__name__)

FAST_LANE_INTERVAL: Final = 5.0
MAX_IDS_PER_CALL: Final = 200
# After this time, a tracked id that was never found is left to the sweeps.
_MAX_UNSEEN_SECONDS: Final = 600.0
_STOPPED_ERROR: Final = "the region cache was stopped"

SWEEP: Final = "sweep"
DESCRIBE: Final = "describe"
FAST_LANE: Final = "fast_lane"


class _DescribeBatch:
    """Ids that are described together, and the future of the result."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.result: asyncio.Future[Sweep] = asyncio.get_running_loop().create_future()


class RegionCache:
    """All reads of one region. Times are of `clock.boottime()`."""

    def __init__(
        self,
        cloud: CloudProviderSPI,
        region: str,
        selection: InstanceSelection | None = None,
        *,
        fast_lane_interval: float = FAST_LANE_INTERVAL,
    ) -> None:
        self.region = region
        self.selection = selection or InstanceSelection()
        self.calls_total: Counter[str] = Counter()
        self.calls_this_cycle: Counter[str] = Counter()
        self.calls_last_cycle: Counter[str] = Counter()
        self._cloud = cloud
        self._fast_lane_interval = fast_lane_interval
        self._cache = InstanceCache()
        self._incomplete_since: float | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._describing: asyncio.Task[None] | None = None
        self._next_batch: _DescribeBatch | None = None
        self._tracked: dict[str, float] = {}
        self._has_tracked = asyncio.Event()
        self._fast_lane: asyncio.Task[None] | None = None
        self._subscribers: list[Subscriber] = []

    # Reads

    async def sweep(self, max_age: float = 0.0, not_before: float = float("-inf")) -> Sweep:
        """Return a sweep that began at most `max_age` ago and not before `not_before`.

        A complete sweep is preferred. A failed one is shared like any other, so that failures are not made worse by
        repeated calls.
        """
        now = clock.boottime()
        if not_before > now:
            raise ValueError("not_before must not be in the future")
        earliest = max(not_before, now - max_age)
        while (sweep := self._cached_sweep(earliest)) is None:
            if self._sweeping is None:
                self._sweeping = asyncio.create_task(self._sweep(), name=f"sweep {self.region}")
            sweeping = self._sweeping
            await asyncio.wait({sweeping})
            if sweeping.cancelled():
                return self._failed(_STOPPED_ERROR)
        return sweep

    async def describe(self, instance_ids: Collection[str], not_before: float = float("inf")) -> Sweep:
        """Describe these instances by id, in one batch with the ids of other callers.

        Ids that were described at `not_before` or later, and since the last sweep, are not described again.
        """
        cached = {i: lookup for i in instance_ids if (lookup := self._cache.lookup(i, not_before)) is not None}
        missing = [i for i in instance_ids if i not in cached]
        found = {i: lookup.instance for i, lookup in cached.items() if lookup.instance is not None}
        if not missing:
            began_at = min((lookup.began_at for lookup in cached.values()), default=clock.boottime())
            return Sweep(self.region, found, True, began_at, self._account(), calls=0)
        result = await self._describe_in_batch(missing)
        found.update((i, result.instances[i]) for i in missing if i in result.instances)
        return Sweep(
            self.region, found, result.complete, result.began_at, result.account_id, result.error, result.calls
        )

    def instance(self, instance_id: str) -> Instance | None:
        """Return the instance as last seen by any call."""
        return self._cache.instance(instance_id)

    def last_lookup(self, instance_id: str) -> InstanceLookup | None:
        """Return the latest call that found the instance, or asked for its id. See `InstanceCache.last_lookup`."""
        return self._cache.last_lookup(instance_id)

    @property
    def account_id(self) -> str:
        """The account id of the last complete sweep; empty before the first."""
        return self._account()

    @property
    def latest(self) -> Sweep | None:
        """The last sweep, complete or not."""
        return self._cache.latest

    @property
    def blind_seconds(self) -> float:
        """For how long no sweep has been complete; 0 if the last one was, and before the first."""
        return 0.0 if self._incomplete_since is None else max(0.0, clock.boottime() - self._incomplete_since)

    def is_gone(self, instance_id: str, since: float, now: float, seconds: float = GONE_AFTER_SECONDS) -> bool:
        """Whether the instance is certainly gone. See `InstanceCache.is_gone`."""
        return self._cache.is_gone(instance_id, since, now, seconds)

    def absence(self, instance_id: str, since: float, now: float) -> Absence | None:
        """How long the instance has been missing. See `InstanceCache.absence`."""
        return self._cache.absence(instance_id, since, now)

    def restart_absences(self) -> None:
        """Count absences anew: what an earlier leader missed proves nothing to this one."""
        self._cache.restart_absences(clock.boottime())

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Register a callback for new and changed instances; call the returned function to unsubscribe."""
        self._subscribers.append(subscriber)

        def end() -> None:
            with suppress(ValueError):
                self._subscribers.remove(subscriber)

        return end

    # Fast lane

    def track(self, instance_id: str) -> None:
        """Poll an instance in the fast lane until a call that begins after now shows it settled."""
        self._tracked[instance_id] = clock.boottime()
        self._has_tracked.set()

    @property
    def tracked(self) -> Collection[str]:
        """The ids that the fast lane polls."""
        return self._tracked.keys()

    async def start(self) -> None:
        """Start the fast lane."""
        if self._fast_lane is None:
            self._fast_lane = asyncio.create_task(self._run_fast_lane(), name=f"fast lane {self.region}")

    async def stop(self) -> None:
        """Cancel all calls; waiting callers get an incomplete sweep."""
        tasks = [task for task in (self._fast_lane, self._sweeping, self._describing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that is cancelled before its first step does not run its own cleanup.
        self._fast_lane = self._sweeping = self._describing = None
        self._fail_batch(self._next_batch)
        self._next_batch = None

    async def _run_fast_lane(self) -> None:
        while True:
            await self._has_tracked.wait()
            await asyncio.sleep(self._fast_lane_interval)
            await self._describe(sorted(self._tracked), FAST_LANE)

    def _review_tracked(self, changed: Sequence[Instance]) -> None:
        now = clock.boottime()
        for instance in changed:
            if instance.state.in_transition:
                self._tracked.setdefault(instance.id, now)
        for instance_id, since in list(self._tracked.items()):
            unseen = self._cache.instance(instance_id) is None
            if self._cache.settled_since(instance_id, since) or (unseen and now - since > _MAX_UNSEEN_SECONDS):
                del self._tracked[instance_id]
        if self._tracked:
            self._has_tracked.set()
        else:
            self._has_tracked.clear()

    # Calls to the provider

    def _cached_sweep(self, earliest: float) -> Sweep | None:
        for sweep in (self._cache.latest_complete, self._cache.latest):
            if sweep is not None and sweep.began_at >= earliest:
                return sweep
        return None

    async def _sweep(self) -> None:
        self.calls_last_cycle, self.calls_this_cycle = self.calls_this_cycle, Counter()
        try:
            sweep = await self._guard(self._cloud.sweep(self.region, self.selection))
        finally:
            self._sweeping = None
        self._count(SWEEP, sweep.calls)
        before = self._cache.latest
        if sweep.complete:
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = sweep.began_at
        if not sweep.complete and (before is None or before.complete):
            log.warning("the sweep of the region is incomplete", region=self.region, error=sweep.error)
        elif sweep.complete and before is not None and not before.complete:
            log.info("the sweep of the region is complete again", region=self.region)
        self._publish(self._cache.record_sweep(sweep, clock.boottime()))

    async def _describe_in_batch(self, instance_ids: Collection[str]) -> Sweep:
        if self._next_batch is None:
            self._next_batch = _DescribeBatch()
        batch = self._next_batch
        batch.ids.update(instance_ids)
        if self._describing is None:
            self._describing = asyncio.create_task(self._run_batches(), name=f"describe {self.region}")
        # A cancelled caller must not cancel the call for the others.
        return await asyncio.shield(batch.result)

    async def _run_batches(self) -> None:
        batch: _DescribeBatch | None = None
        try:
            while self._next_batch is not None:
                batch, self._next_batch = self._next_batch, None
                result = await self._describe(sorted(batch.ids), DESCRIBE)
                batch.result.set_result(result)
        finally:
            self._describing = None
            self._fail_batch(batch)

    def _fail_batch(self, batch: _DescribeBatch | None) -> None:
        if batch is not None and not batch.result.done():
            batch.result.set_result(self._failed(_STOPPED_ERROR))

    async def _describe(self, instance_ids: Sequence[str], purpose: str) -> Sweep:
        found: dict[str, Instance] = {}
        began_at: float | None = None
        account, error, calls = self._account(), "", 0
        for begin in range(0, len(instance_ids), MAX_IDS_PER_CALL):
            ids = instance_ids[begin : begin + MAX_IDS_PER_CALL]
            result = await self._guard(self._cloud.describe(self.region, ids))
            self._count(purpose, result.calls)
            self._publish(self._cache.record_description(ids, result))
            found.update(result.instances)
            began_at = result.began_at if began_at is None else began_at
            account, error, calls = result.account_id or account, error or result.error, calls + result.calls
            if not result.complete:
                # What failed for this batch would fail for the next one too.
                return Sweep(self.region, found, False, began_at, account, error, calls)
        return Sweep(self.region, found, True, clock.boottime() if began_at is None else began_at, account, calls=calls)

    async def _guard(self, call: Awaitable[Sweep]) -> Sweep:
        try:
            return self._cache.with_last_starts(await call)
        except Exception as error:
            log.exception("the call to the provider failed", region=self.region)
            return self._failed(str(error))

    def _publish(self, changed: Sequence[Instance]) -> None:
        self._review_tracked(changed)
        if changed:
            for subscriber in self._subscribers:
                # In a callback of its own, so that an exception of a subscriber does not fail the read.
                asyncio.get_running_loop().call_soon(subscriber, changed)

    def _count(self, purpose: str, calls: int) -> None:
        self.calls_total[purpose] += calls
        self.calls_this_cycle[purpose] += calls

    def _account(self) -> str:
        latest = self._cache.latest_complete
        return "" if latest is None else latest.account_id

    def _failed(self, error: str) -> Sweep:
        return Sweep(self.region, {}, False, clock.boottime(), self._account(), error, 0)
