"""Looking at a region on behalf of everybody: calls grow with pages, not with those who ask.

One sweep serves all who ask within a cycle, ids that it does not show are asked for together, and what is on its way to
another state is followed closely, only as long as it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from lcm.cloud.instance_cache import InstanceCache
from lcm.cloud.types import InstanceSelection, Sweep
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from lcm.cloud.instance_cache import InstanceLookup
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import Instance

    Subscriber = Callable[[Sequence[Instance]], None]

log = structlog.get_logger(__name__)

FAST_LANE_INTERVAL: Final = 5.0
MAX_IDS_PER_CALL: Final = 200
# A tracked id that no look ever shows is left to the sweeps after this long.
_MAX_UNSEEN_SECONDS: Final = 600.0
_STOPPED_ERROR: Final = "the observer was stopped"

SWEEP: Final = "sweep"
DESCRIBE: Final = "describe"
FAST_LANE: Final = "fast_lane"


class _DescribeBatch:
    """Ids that are asked for together, and who waits for the answer."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.answer: asyncio.Future[Sweep] = asyncio.get_running_loop().create_future()


class RegionCache:
    """All looks at one region. Moments are of `clock.boottime()`."""

    def __init__(
        self,
        cloud: CloudProviderSPI,
        region: str,
        selection: InstanceSelection | None = None,
        *,
        fast_lane_every: float = FAST_LANE_INTERVAL,
    ) -> None:
        self.region = region
        self.selection = selection or InstanceSelection()
        self.calls_total: Counter[str] = Counter()
        self.calls_this_cycle: Counter[str] = Counter()
        self.calls_last_cycle: Counter[str] = Counter()
        self._cloud = cloud
        self._every = fast_lane_every
        self._sightings = InstanceCache()
        self._sweeping: asyncio.Task[None] | None = None
        self._describing: asyncio.Task[None] | None = None
        self._gathering: _DescribeBatch | None = None
        self._tracked: dict[str, float] = {}
        self._something_moves = asyncio.Event()
        self._fast_lane: asyncio.Task[None] | None = None
        self._subscribers: list[Subscriber] = []

    # Asking

    async def look(self, max_age: float = 0.0, not_before: float = float("-inf")) -> Sweep:
        """A sweep that began at most `max_age` ago, and not before a moment after which it must have been made.

        A complete one is preferred. A failed one, which says why, is shared like any other, so that trouble is not made
        worse by everybody asking anew.
        """
        asked = clock.boottime()
        if not_before > asked:
            raise ValueError("a sweep cannot be asked to begin later than now")
        earliest = max(not_before, asked - max_age)
        while (sweep := self._fitting(earliest)) is None:
            if self._sweeping is None:
                self._sweeping = asyncio.create_task(self._sweep(), name=f"sweep {self.region}")
            sweeping = self._sweeping
            await asyncio.wait({sweeping})
            if sweeping.cancelled():
                return self._failed(_STOPPED_ERROR)
        return sweep

    async def describe(self, instance_ids: Collection[str], not_before: float = float("inf")) -> Sweep:
        """These instances, asked for by id together with whatever others ask for now.

        Ids that a look by id answered at `not_before` or later, since the last sweep, are not asked for again.
        """
        known = {i: answer for i in instance_ids if (answer := self._sightings.answer(i, not_before)) is not None}
        unknown = [i for i in instance_ids if i not in known]
        found = {i: answer.instance for i, answer in known.items() if answer.instance is not None}
        if not unknown:
            began_at = min((answer.began_at for answer in known.values()), default=clock.boottime())
            return Sweep(self.region, found, True, began_at, self._account(), calls=0)
        look = await self._ask_together(unknown)
        found.update((i, look.instances[i]) for i in unknown if i in look.instances)
        return Sweep(self.region, found, look.complete, look.began_at, look.account_id, look.trouble, look.calls)

    async def look_for(
        self, instance_ids: Collection[str], max_age: float = 0.0, not_before: float = float("-inf")
    ) -> Sweep:
        """These instances alone, by a shared sweep; those that a complete one does not show are asked for by id."""
        sweep = await self.look(max_age, not_before)
        found = {i: sweep.instances[i] for i in instance_ids if i in sweep.instances}
        missing = [i for i in instance_ids if i not in found]
        if not missing or not sweep.complete:
            return Sweep(self.region, found, sweep.complete, sweep.began_at, sweep.account_id, sweep.trouble, 0)
        asked = await self.describe(missing, max(sweep.began_at, not_before))
        found.update(asked.instances)
        return Sweep(self.region, found, asked.complete, sweep.began_at, sweep.account_id, asked.trouble, asked.calls)

    def instance(self, instance_id: str) -> Instance | None:
        """As it was last seen by any look."""
        return self._sightings.instance(instance_id)

    def last_lookup(self, instance_id: str) -> InstanceLookup | None:
        """The latest look that showed it, or asked for it in vain. See `InstanceCache.last_look`."""
        return self._sightings.last_lookup(instance_id)

    @property
    def account_id(self) -> str:
        """The account that the last complete sweep ran as; empty before the first."""
        return self._account()

    @property
    def latest(self) -> Sweep | None:
        """The last sweep, complete or not."""
        return self._sightings.latest

    def is_gone(self, instance_id: str, since: float, now: float) -> bool:
        """Whether it is certainly gone; `since` is its launch call or import. See `InstanceCache.is_gone`."""
        return self._sightings.is_gone(instance_id, since, now)

    def on_change(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call back with instances that a look showed new or changed; the answer ends it."""
        self._subscribers.append(subscriber)

        def end() -> None:
            with suppress(ValueError):
                self._subscribers.remove(subscriber)

        return end

    # The fast lane

    def track(self, instance_id: str) -> None:
        """Follow an instance closely until a look that begins after now shows it at rest."""
        self._tracked[instance_id] = clock.boottime()
        self._something_moves.set()

    @property
    def tracked(self) -> Collection[str]:
        """The ids that the fast lane asks for."""
        return self._tracked.keys()

    async def start(self) -> None:
        """Begin to follow what moves."""
        if self._fast_lane is None:
            self._fast_lane = asyncio.create_task(self._follow(), name=f"fast lane {self.region}")

    async def stop(self) -> None:
        """End all looks; who waits for one gets an incomplete one."""
        tasks = [task for task in (self._fast_lane, self._sweeping, self._describing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before its first step has not cleared up after itself.
        self._fast_lane = self._sweeping = self._describing = None
        self._give_up(self._gathering)
        self._gathering = None

    async def _follow(self) -> None:
        while True:
            await self._something_moves.wait()
            await asyncio.sleep(self._every)
            await self._describe(sorted(self._tracked), FAST_LANE)

    def _review_tracked(self, changed: Sequence[Instance]) -> None:
        now = clock.boottime()
        for instance in changed:
            if instance.state.in_transition:
                self._tracked.setdefault(instance.id, now)
        for instance_id, since in list(self._tracked.items()):
            unseen = self._sightings.instance(instance_id) is None
            if self._sightings.settled_since(instance_id, since) or (unseen and now - since > _MAX_UNSEEN_SECONDS):
                del self._tracked[instance_id]
        if self._tracked:
            self._something_moves.set()
        else:
            self._something_moves.clear()

    # Looking

    def _fitting(self, earliest: float) -> Sweep | None:
        for sweep in (self._sightings.latest_complete, self._sightings.latest):
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
        before = self._sightings.latest
        if not sweep.complete and (before is None or before.complete):
            log.warning("the region cannot be seen as a whole", region=self.region, error=sweep.trouble)
        elif sweep.complete and before is not None and not before.complete:
            log.info("the region can be seen again", region=self.region)
        self._tell(self._sightings.record_sweep(sweep, clock.boottime()))

    async def _ask_together(self, instance_ids: Collection[str]) -> Sweep:
        if self._gathering is None:
            self._gathering = _DescribeBatch()
        batch = self._gathering
        batch.ids.update(instance_ids)
        if self._describing is None:
            self._describing = asyncio.create_task(self._answer_batches(), name=f"describe {self.region}")
        # One who gives up must not take the answer away from the others.
        return await asyncio.shield(batch.answer)

    async def _answer_batches(self) -> None:
        batch: _DescribeBatch | None = None
        try:
            while self._gathering is not None:
                batch, self._gathering = self._gathering, None
                look = await self._describe(sorted(batch.ids), DESCRIBE)
                batch.answer.set_result(look)
        finally:
            self._describing = None
            self._give_up(batch)

    def _give_up(self, batch: _DescribeBatch | None) -> None:
        if batch is not None and not batch.answer.done():
            batch.answer.set_result(self._failed(_STOPPED_ERROR))

    async def _describe(self, instance_ids: Sequence[str], purpose: str) -> Sweep:
        found: dict[str, Instance] = {}
        began_at: float | None = None
        account, trouble, calls = self._account(), "", 0
        for begin in range(0, len(instance_ids), MAX_IDS_PER_CALL):
            asked = instance_ids[begin : begin + MAX_IDS_PER_CALL]
            look = await self._guard(self._cloud.describe(self.region, asked))
            self._count(purpose, look.calls)
            self._tell(self._sightings.record_description(asked, look))
            found.update(look.instances)
            began_at = look.began_at if began_at is None else began_at
            account, trouble, calls = look.account_id or account, trouble or look.trouble, calls + look.calls
            if not look.complete:
                # What failed for some would fail for the others now.
                return Sweep(self.region, found, False, began_at, account, trouble, calls)
        return Sweep(self.region, found, True, clock.boottime() if began_at is None else began_at, account, calls=calls)

    async def _guard(self, look: Awaitable[Sweep]) -> Sweep:
        try:
            return await look
        except Exception as error:
            log.exception("look failed", region=self.region)
            return self._failed(str(error))

    def _tell(self, changed: Sequence[Instance]) -> None:
        self._review_tracked(changed)
        if changed:
            for subscriber in self._subscribers:
                # In a turn of its own: what a subscriber breaks is not the look's failure.
                asyncio.get_running_loop().call_soon(subscriber, changed)

    def _count(self, purpose: str, calls: int) -> None:
        self.calls_total[purpose] += calls
        self.calls_this_cycle[purpose] += calls

    def _account(self) -> str:
        latest = self._sightings.latest_complete
        return "" if latest is None else latest.account_id

    def _failed(self, trouble: str) -> Sweep:
        return Sweep(self.region, {}, False, clock.boottime(), self._account(), trouble, 0)
