"""The single source of time, ids and randomness.

Code uses this module, never `time`, `uuid` or `random` directly, so that a test or a simulation can control all three.
The source is a context variable: tasks and timers inherit it from their creator, so several simulated nodes, each with
its own clock, can share one event loop.

Moments are recorded with `now`. Deadlines that end something (an idle worker, a launch, a drain, a retention) are
measured with `earliest_now`, which no jump of a clock can bring forward; spans within one process with `boottime`.

Waiting is not part of this module: use timers of the running event loop.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from lcm.core.clock_guard import OWN_CLOCK, ClockGuard

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


class _Source:
    """A clock, and what is known of the other clocks beside it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.guard = ClockGuard()
        self.problem = ""


_current: ContextVar[_Source] = ContextVar("lcm_clock", default=_Source(SystemClock()))  # noqa: B039 - one per process


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Use `clock` in this context and in all tasks started from it."""
    token = _current.set(_Source(clock))
    try:
        yield
    finally:
        _current.reset(token)


def install(clock: Clock) -> None:
    """Use `clock` in this context permanently, for example for a whole simulated process."""
    _current.set(_Source(clock))


def now() -> datetime:
    """The wall-clock time, in UTC."""
    return _current.get().clock.now()


def earliest_now() -> datetime:
    """The time for deadlines: the wall-clock time, or the earliest of all known clocks while they disagree."""
    source, wall, boot = _observe_own()
    earliest = source.guard.earliest(boot)
    # The wall-clock time itself where it counts: a sum of seconds would differ from it by a rounding error.
    return wall if abs(earliest - wall.timestamp()) < 0.001 else datetime.fromtimestamp(earliest, UTC)


def compare(name: str, shown: datetime, *, authority: bool = False) -> None:
    """Take note of what the clock of another process shows; `authority`: the moments in the records are of it."""
    source, _, boot = _observe_own()
    source.guard.observe(name, shown.timestamp(), boot)
    if authority:
        source.guard.authority = name
    _log_change(source, boot)


def earliest_known() -> datetime:
    """The earliest time that follows from the clocks this process knows: what it reports to others."""
    source, _, boot = _observe_own()
    return datetime.fromtimestamp(source.guard.earliest_known(boot), UTC)


def record_earliest(name: str, earliest: datetime) -> None:
    """Record the earliest time that another process reports."""
    source, _, boot = _observe_own()
    source.guard.record_earliest(name, earliest.timestamp(), boot)
    _log_change(source, boot)


def problem() -> str:
    """Which clocks have jumped or disagree; empty if none."""
    source, _, boot = _observe_own()
    return source.guard.problem(boot)


def _observe_own() -> tuple[_Source, datetime, float]:
    source = _current.get()
    boot, wall = source.clock.boottime(), source.clock.now()
    source.guard.observe(OWN_CLOCK, wall.timestamp(), boot)
    _log_change(source, boot)
    return source, wall, boot


def _log_change(source: _Source, boot: float) -> None:
    found = source.guard.problem(boot)
    if bool(found) != bool(source.problem):
        import structlog  # imported here: commands that compare no clocks should not wait for it

        log = structlog.get_logger(__name__)
        if found:
            log.warning("a clock jumped, or clocks disagree", problem=found)
        else:
            log.info("the clocks are trusted again")
    source.problem = found


def after(seconds: float) -> datetime:
    """The wall-clock time `seconds` from now."""
    return now() + timedelta(seconds=seconds)


def boottime() -> float:
    """Seconds for measuring leases; see `Clock.boottime`."""
    return _current.get().clock.boottime()


def rng() -> random.Random:
    """The random generator for jitter and choices."""
    return _current.get().clock.rng


def new_id(prefix: str, length: int = 12) -> str:
    """A new id such as `wc-3f9k2m…`: 60 bits at the default length, without easily misread letters."""
    generator = rng()
    return f"{prefix}-" + "".join(generator.choice(_ID_ALPHABET) for _ in range(length))
