"""A keyed work queue for one event loop.

- A key is never handed out twice at once: between `get` and `done` it is busy.
- A key added while it waits is handed out once; added while it is busy, once more after `done`.
- High goes before low. A low key that has waited longer than `promote_after` counts as high and takes every second
  turn, so that neither a flood of changes starves the resync nor an overdue resync holds up a lone change.

Figures are plain numbers, read when somebody scrapes, so that counting costs the hot path next to nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict, deque
from contextlib import suppress
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")

WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Priority(Enum):
    """HIGH: somebody changed something. LOW: it is only time to look again."""

    HIGH = "high"
    LOW = "low"


# Bound once: in the hot path a look-up on an Enum class costs as much as the dictionary access beside it.
_HIGH = Priority.HIGH
_LOW = Priority.LOW
_SMALLEST_BUCKET = WAIT_BUCKETS[0]


class QueueShutDownError(Exception):
    """There will be no more keys."""


class WorkQueue(Generic[K]):
    """See the module's text for what it guarantees. It belongs to the event loop that first uses it."""

    def __init__(self, *, promote_after: float = inf) -> None:
        self._time: Callable[[], float] = self._bind_loop_time
        self._promote_after = promote_after
        self._high: OrderedDict[K, float] = OrderedDict()  # waiting, with the time since when
        self._low: OrderedDict[K, float] = OrderedDict()
        self._busy: dict[K, Priority | None] = {}  # handed out; how it was added meanwhile, if it was
        self._timers: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._drained: list[asyncio.Future[None]] = []
        self._overdue_turn = False
        self._shut_down = False
        self.wait_counts = [0] * (len(WAIT_BUCKETS) + 1)
        self.wait_total = 0.0

    # Producers

    def add(self, key: K, priority: Priority = _HIGH) -> None:
        """Have the key reconciled as soon as it is its turn."""
        if self._shut_down:
            return
        if key in self._busy:
            if self._busy[key] is not _HIGH:
                self._busy[key] = priority
            return
        if key in self._high:
            return
        if priority is _HIGH:
            since = self._low.pop(key, None) if self._low else None
            if since is not None:
                self._high[key] = since  # it keeps its place in time, and whoever was woken for it will take it
                return
            self._high[key] = self._time()
        elif key in self._low:
            return
        else:
            self._low[key] = self._time()
        if self._getters:
            self._wake_one()

    def add_after(self, key: K, delay: float, priority: Priority = _LOW) -> None:
        """Have the key added after `delay` seconds. Of several delayed adds of a key the earliest counts."""
        if self._shut_down:
            return
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
        """Forget the key's delayed add; says whether there was one."""
        pending = self._timers.pop(key, None)
        if pending is not None:
            pending[0].cancel()
        return pending is not None

    def clear(self) -> None:
        """Forget everything that waits or is delayed. Busy keys stay busy until `done`, and then do not come back."""
        for timer, _ in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._high.clear()
        self._low.clear()
        for key in self._busy:
            self._busy[key] = None
        self._settle_drained()

    def shut_down(self) -> None:
        """Take no more keys. Those that wait are still handed out, then `get` raises `QueueShutDownError`."""
        self._shut_down = True
        for timer, _ in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._getters:
            self._wake_one()
        self._settle_drained()

    # Consumers

    async def get(self) -> K:
        """The next key; it is busy until `done`."""
        while not (self._high or self._low):
            if self._shut_down:
                raise QueueShutDownError
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                # Cancelled after it was woken: the wake-up belongs to the key, so pass it on or it would be lost.
                woken = not getter.cancelled() and getter.done()
                getter.cancel()
                with suppress(ValueError):
                    self._getters.remove(getter)
                if woken and (self._high or self._low):
                    self._wake_one()
                raise
        now = self._time()
        high, low = self._high, self._low
        if high and not (low and self._overdue_turn and now - next(iter(low.values())) > self._promote_after):
            key, since = high.popitem(False)
            self._overdue_turn = True
        else:
            key, since = low.popitem(False)
            self._overdue_turn = False
        self._busy[key] = None
        waited = now - since
        self.wait_total += waited
        self.wait_counts[bisect_left(WAIT_BUCKETS, waited) if waited > _SMALLEST_BUCKET else 0] += 1
        return key

    def done(self, key: K) -> None:
        """The key is no longer busy. If it was added meanwhile it waits again."""
        again = self._busy.pop(key)
        if again is not None:
            self.add(key, again)
        if self._drained:
            self._settle_drained()

    def done_retry_after(self, key: K, delay: float) -> None:
        """As `done`, but the next run is at the end of `delay`, even if the key was added meanwhile."""
        again = self._busy.pop(key)
        self.add_after(key, delay, again or _LOW)
        if self._drained:
            self._settle_drained()

    async def drained(self) -> None:
        """Returns once no key waits and none is busy."""
        if not (self._high or self._low or self._busy):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._drained:
                self._drained.remove(waiter)

    # Figures

    def __len__(self) -> int:
        """Keys that wait for their turn now."""
        return len(self._high) + len(self._low)

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

    def _bind_loop_time(self) -> float:
        self._time = asyncio.get_running_loop().time
        return self._time()

    def _due(self, key: K) -> None:
        _, priority = self._timers.pop(key)
        self.add(key, priority)

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _settle_drained(self) -> None:
        if not (self._high or self._low or self._busy):
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
