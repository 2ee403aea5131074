"""A keyed work queue for one event loop.

- A key is never handed out twice at once: between `get` and `done` it is busy.
- A key added while it waits is handed out once; added while it is busy, once more after `done`.
- High goes before low. A low key that has waited longer than `promote_after` counts as high and takes every second
  turn, so that neither a flood of changes starves the resync nor an overdue resync delays a single change.
- Each lane has its own consumers: keys of one lane never wait for keys of another. `lane_of` is asked when a key is
  added; a key that waits stays in its lane.
- Of a group of keys at most `group_limit` are busy at once; the others wait aside, so that a group whose keys take long
  leaves consumers to the others. `group_of` is asked when a key is about to be handed out; an empty name has no limit.

Statistics are plain numbers, read at scrape time, so that counting costs the hot path next to nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict, deque
from contextlib import suppress
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from lcm.core.group_limit import GroupLimit

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")

WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Priority(Enum):
    """HIGH: the resource changed. LOW: it is only due for a periodic check."""

    HIGH = "high"
    LOW = "low"


# Bound once: in the hot path an attribute lookup on an Enum class costs as much as a dictionary access.
_HIGH = Priority.HIGH
_LOW = Priority.LOW
_SMALLEST_BUCKET = WAIT_BUCKETS[0]


class _Lane(Generic[K]):
    """The waiting keys of a lane, and its waiting consumers."""

    __slots__ = ("getters", "high", "low", "overdue_turn")

    def __init__(self) -> None:
        self.high: OrderedDict[K, float] = OrderedDict()  # waiting, and since when
        self.low: OrderedDict[K, float] = OrderedDict()
        self.getters: deque[asyncio.Future[None]] = deque()
        self.overdue_turn = False

    def wake_one(self) -> None:
        while self.getters:
            getter = self.getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


class WorkQueue(Generic[K]):
    """See the module docstring for the guarantees. A queue belongs to the event loop that first uses it."""

    def __init__(
        self,
        *,
        promote_after: float = inf,
        lane_of: Callable[[K], str] | None = None,
        group_of: Callable[[K], str] | None = None,
        group_limit: int = 1,
    ) -> None:
        self._time: Callable[[], float] = self._bind_loop_time
        self._promote_after = promote_after
        self._lane_of = lane_of
        self._groups = None if group_of is None else GroupLimit(group_of, group_limit)
        self._only: _Lane[K] = _Lane()  # of consumers and keys without a lane
        self._lanes: dict[str, _Lane[K]] = {"": self._only}
        self._waiting: dict[K, _Lane[K]] = {}
        self._busy: dict[K, Priority | None] = {}  # handed out; the priority it was added with meanwhile, if any
        self._timers: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}
        self._drained: list[asyncio.Future[None]] = []
        self.wait_counts = [0] * (len(WAIT_BUCKETS) + 1)
        self.wait_total = 0.0

    # Producers

    def add(self, key: K, priority: Priority = _HIGH) -> None:
        """Queue the key."""
        if key in self._busy:
            if self._busy[key] is not _HIGH:
                self._busy[key] = priority
            return
        lane = self._waiting.get(key)
        if lane is not None:
            if self._groups is not None and self._groups.waits_aside(key):
                if priority is _HIGH:
                    self._groups.set_priority(key, _HIGH)
                return
            if priority is _HIGH and key in lane.low:
                lane.high[key] = lane.low.pop(key)  # it keeps its waiting time; a consumer was already woken for it
            return
        lane = self._only if self._lane_of is None else self._lane(self._lane_of(key))
        self._waiting[key] = lane
        (lane.high if priority is _HIGH else lane.low)[key] = self._time()
        if lane.getters:
            lane.wake_one()

    def add_after(self, key: K, delay: float, priority: Priority = _LOW) -> None:
        """Queue the key after `delay` seconds. Of several delayed adds of a key the earliest counts."""
        if delay <= 0:
            self.add(key, priority)
            return
        due = self._time() + delay
        pending = self._timers.get(key)
        if pending is not None:
            timer, waiting_priority = pending
            if waiting_priority is _HIGH:
                priority = _HIGH
            due = min(due, timer.when())
            timer.cancel()
        self._timers[key] = (asyncio.get_running_loop().call_at(due, self._due, key), priority)

    def cancel_delayed(self, key: K) -> bool:
        """Cancel the key's delayed add; returns whether there was one."""
        pending = self._timers.pop(key, None)
        if pending is not None:
            pending[0].cancel()
        return pending is not None

    def clear(self) -> None:
        """Drop all waiting and delayed keys. Busy keys stay busy until `done` and are not queued again."""
        for timer, _ in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        if self._groups is not None:
            self._groups.clear_waiting()
        for lane in self._lanes.values():
            lane.high.clear()
            lane.low.clear()
        for key in self._busy:
            self._busy[key] = None
        self._settle_drained()

    # Consumers

    async def get(self, lane_name: str = "") -> K:
        """The next key of a lane; it is busy until `done`."""
        lane = self._lane(lane_name) if lane_name else self._only
        while True:
            await self._wait_for_key(lane)
            now = self._time()
            key, since, priority = self._take(lane, now)
            if self._groups is None or self._groups.admit(key, since, priority):
                break
        del self._waiting[key]
        self._busy[key] = None
        waited = now - since
        self.wait_total += waited
        self.wait_counts[bisect_left(WAIT_BUCKETS, waited) if waited > _SMALLEST_BUCKET else 0] += 1
        return key

    async def _wait_for_key(self, lane: _Lane[K]) -> None:
        while not (lane.high or lane.low):
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lane.getters.append(getter)
            try:
                await getter
            except BaseException:
                # Cancelled after it was woken: pass the wake-up on to another consumer, or the key would be stuck.
                woken = not getter.cancelled() and getter.done()
                getter.cancel()
                with suppress(ValueError):
                    lane.getters.remove(getter)
                if woken and (lane.high or lane.low):
                    lane.wake_one()
                raise

    def _take(self, lane: _Lane[K], now: float) -> tuple[K, float, Priority]:
        """The next key of a lane that is not empty, since when it waits, and its priority."""
        high, low = lane.high, lane.low
        if high and not (low and lane.overdue_turn and now - next(iter(low.values())) > self._promote_after):
            lane.overdue_turn = True
            return *high.popitem(False), _HIGH
        lane.overdue_turn = False
        return *low.popitem(False), _LOW

    def done(self, key: K) -> None:
        """The key is no longer busy. If it was added meanwhile, it is queued again."""
        again = self._busy.pop(key)
        self._leave_group(key)
        if again is not None:
            self.add(key, again)
        if self._drained:
            self._settle_drained()

    def done_retry_after(self, key: K, delay: float) -> None:
        """Like `done`, but the next run is after `delay`, even if the key was added meanwhile."""
        again = self._busy.pop(key)
        self._leave_group(key)
        self.add_after(key, delay, again or _LOW)
        if self._drained:
            self._settle_drained()

    async def wait_drained(self) -> None:
        """Return once no key waits and none is busy."""
        if not (self._waiting or self._busy):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._drained:
                self._drained.remove(waiter)

    # Statistics

    def __len__(self) -> int:
        """Keys that are ready and wait."""
        return len(self._waiting)

    def depth_by_lane(self) -> dict[str, int]:
        """Keys that are ready and wait, by lane."""
        return {name: len(lane.high) + len(lane.low) for name, lane in self._lanes.items()}

    @property
    def busy(self) -> int:
        """Keys handed out and not done."""
        return len(self._busy)

    @property
    def delayed(self) -> int:
        """Keys that will be added by a timer."""
        return len(self._timers)

    def is_busy(self, key: K) -> bool:
        """Whether the key is handed out and not done."""
        return key in self._busy

    def busy_group(self, key: K) -> str:
        """The group under which a busy key was handed out."""
        return "" if self._groups is None else self._groups.group_of_busy(key)

    def _bind_loop_time(self) -> float:
        self._time = asyncio.get_running_loop().time
        return self._time()

    def _due(self, key: K) -> None:
        _, priority = self._timers.pop(key)
        self.add(key, priority)

    def _lane(self, name: str) -> _Lane[K]:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        return lane

    def _leave_group(self, key: K) -> None:
        """A key of the same group that waits aside is next in its lane: it has waited longest."""
        following = None if self._groups is None else self._groups.leave(key)
        if following is None:
            return
        key, since, priority = following
        lane = self._waiting[key]
        keys = lane.high if priority is _HIGH else lane.low
        keys[key] = since
        keys.move_to_end(key, last=False)
        lane.wake_one()

    def _settle_drained(self) -> None:
        if not (self._waiting or self._busy):
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
