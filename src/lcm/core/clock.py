"""The one source of time, ids and chance.

Code asks this module, never `time`, `uuid` or `random` on the spot, so that a test or a simulation can own all three.
The source is a context variable: tasks and timers inherit the one of whoever made them, so several simulated nodes with
clocks of their own live on one event loop.

Waiting is not here: it is done with timers of the running event loop.
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
    """What a source of time and chance must offer."""

    def now(self) -> datetime:
        """The wall-clock time, in UTC."""

    def boottime(self) -> float:
        """Seconds that never go back and go on while the machine is suspended: what leases are measured by."""

    @property
    def rng(self) -> random.Random:
        """The generator behind ids and jitter."""


class SystemClock:
    """The clock of the machine."""

    def __init__(self) -> None:
        self.rng: random.Random = random.SystemRandom()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def boottime(self) -> float:
        # CLOCK_MONOTONIC stops while a machine is suspended: a lease measured by it would outlive the server's.
        return time.clock_gettime(time.CLOCK_BOOTTIME)


_current: ContextVar[Clock] = ContextVar("lcm_clock", default=SystemClock())  # noqa: B039 - it holds no state of ours


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Make `clock` the source for this context and whatever is started from it."""
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)


def install(clock: Clock) -> None:
    """Make `clock` the source for this context for good, such as for all that one simulated process does."""
    _current.set(clock)


def now() -> datetime:
    """The wall-clock time, in UTC."""
    return _current.get().now()


def after(seconds: float) -> datetime:
    """The wall-clock time in `seconds` from now."""
    return now() + timedelta(seconds=seconds)


def boottime() -> float:
    """Seconds for measuring leases; see `Clock.boottime`."""
    return _current.get().boottime()


def rng() -> random.Random:
    """The generator for jitter and choices."""
    return _current.get().rng


def new_id(prefix: str, length: int = 12) -> str:
    """A fresh id such as `wc-3f9k2m…`: 60 bits at the default length, without letters that are easily misread."""
    generator = rng()
    return f"{prefix}-" + "".join(generator.choice(_ID_ALPHABET) for _ in range(length))
