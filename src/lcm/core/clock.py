"""The single source of time, ids and randomness.

Code uses this module, never `time`, `uuid` or `random` directly, so that a test or a simulation can control all three.
The source is a context variable: tasks and timers inherit it from their creator, so several simulated nodes, each with
its own clock, can share one event loop.

Waiting is not part of this module: use timers of the running event loop.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """A source of time and randomness."""

    def now(self) -> datetime:
        """The wall-clock time, in UTC."""

    def boottime(self) -> float:
        """Monotonic seconds that include time spent suspended. Leases are measured with this."""

    @property
    def rng(self) -> random.Random:
        """The random generator for ids and jitter."""


class SystemClock:
    """The operating system's clock and random source."""

    def __init__(self) -> None:
        self.rng: random.Random = random.SystemRandom()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def boottime(self) -> float:
        # CLOCK_MONOTONIC stops during suspend: a lease measured with it would outlive the server's.
        return time.clock_gettime(time.CLOCK_BOOTTIME)


_current: ContextVar[Clock] = ContextVar("lcm_clock", default=SystemClock())  # noqa: B039 - the default is stateless


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Use `clock` in this context and in all tasks started from it."""
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)


def install(clock: Clock) -> None:
    """Use `clock` in this context permanently, for example for a whole simulated process."""
    _current.set(clock)


def now() -> datetime:
    """The wall-clock time, in UTC."""
    return _current.get().now()


def after(seconds: float) -> datetime:
    """The wall-clock time `seconds` from now."""
    return now() + timedelta(seconds=seconds)


def boottime() -> float:
    """Seconds for measuring leases; see `Clock.boottime`."""
    return _current.get().boottime()


def rng() -> random.Random:
    """The random generator for jitter and choices."""
    return _current.get().rng


def new_id(prefix: str, length: int = 12) -> str:
    """A new id such as `wc-3f9k2m…`: 60 bits at the default length, without easily misread letters."""
    generator = rng()
    return f"{prefix}-" + "".join(generator.choice(_ID_ALPHABET) for _ in range(length))
