"""The time and the random ids of a simulated server."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable


class SimulatedClock:
    """Runs `speed` times as fast as the underlying clock, and runs callbacks when they are due.

    Nothing runs in the background: every reader first calls `advance`. So an idle simulator costs nothing, and
    callbacks run in order and see the time at which they were due, however late that is.
    """

    def __init__(self, speed: float = 1.0, read: Callable[[], float] = clock.boottime) -> None:
        self._read = read
        self._speed = _validated_speed(speed)
        self._anchor_real = read()
        self._anchor = 0.0
        self._moment: float | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def speed(self) -> float:
        """Simulated seconds per real second."""
        return self._speed

    @property
    def now(self) -> float:
        """Simulated seconds since the start; inside a callback, the time at which it was due."""
        return self._latest() if self._moment is None else self._moment

    def set_speed(self, speed: float) -> None:
        """Continue at another speed from now on."""
        self._anchor, self._anchor_real = self._latest(), self._read()
        self._speed = _validated_speed(speed)

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run a callback after this many simulated seconds."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), action))

    def advance(self) -> None:
        """Run all callbacks that are due."""
        latest = self._latest()
        while self._due and self._due[0][0] <= latest:
            self._moment, _, action = heapq.heappop(self._due)
            try:
                action()
            finally:
                self._moment = None

    def wall_time(self) -> datetime:
        """The wall-clock time (UTC) that corresponds to `now`."""
        return clock.now() - timedelta(seconds=(self._latest() - self.now) / self._speed)

    async def sleep(self, seconds: float) -> None:
        """Wait for this many simulated seconds."""
        if seconds > 0:
            await asyncio.sleep(seconds / self._speed)

    def _latest(self) -> float:
        return self._anchor + (self._read() - self._anchor_real) * self._speed


def _validated_speed(speed: float) -> float:
    if not 0.01 <= speed <= 100_000:
        raise ValueError(f"speed {speed:g}: must be between 0.01 and 100000")
    return speed


def new_uuid() -> str:
    """A random UUID, which CML uses for all ids."""
    return str(uuid.UUID(int=clock.rng().getrandbits(128), version=4))


def new_mac() -> str:
    """A random MAC address in the range of virtual network interfaces."""
    tail = clock.rng().getrandbits(24)
    return f"52:54:00:{tail >> 16 & 255:02x}:{tail >> 8 & 255:02x}:{tail & 255:02x}"
