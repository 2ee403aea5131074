"""An event loop with virtual time: it never sleeps, the next timer is always due now."""

from __future__ import annotations

import asyncio
import random
import selectors
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import FileDescriptorLike

START = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)
_FIRST = 1000.0


class HasTime(Protocol):
    """An event loop, or what stands in for one."""

    def time(self) -> float:
        """Seconds since some moment."""


class StalledError(Exception):
    """Nothing is ready, no timer is set and no socket is open: the test would wait forever."""


class NoWait(selectors.BaseSelector):
    """Passes waiting time to the loop's own clock instead of to the machine."""

    def __init__(self) -> None:
        self.real = selectors.DefaultSelector()
        self.loop: VirtualTimeLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self.real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise StalledError
        assert self.loop is not None
        self.loop.pass_time(timeout)
        return ready

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self.real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self.real.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self.real.modify(fileobj, events, data)

    def close(self) -> None:
        self.real.close()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self.real.get_map()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything is ready and jumps to the next timer when nothing is."""

    def __init__(self, selector: NoWait | None = None) -> None:
        self._virtual = _FIRST
        selector = selector or NoWait()
        super().__init__(selector)
        selector.loop = self
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual

    def pass_time(self, seconds: float) -> None:
        """Let time pass up to the next timer, to its exact moment: sums of small steps would miss it by a hair."""
        timers = self._scheduled  # type: ignore[attr-defined]  # asyncio has no other access to the next timer
        due = timers[0].when() if timers else self._virtual + seconds
        self._virtual = max(self._virtual, min(due, self._virtual + seconds + self._clock_resolution))


class StandingTime:
    """Time without a loop: it does not pass."""

    def time(self) -> float:
        return _FIRST


class VirtualClock:
    """`lcm.core.clock` for a virtual loop.

    `suspended` is time that passed while the loop's own clock stood still, `jumped` by how much the wall clock was set.
    """

    def __init__(self, loop: HasTime, seed: int = 0) -> None:
        self._loop = loop
        self._began = loop.time()
        self.suspended = 0.0
        self.jumped = 0.0
        self.rng: random.Random = random.Random(seed)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.boottime() - self._began + self.jumped)

    def boottime(self) -> float:
        return self._loop.time() + self.suspended
