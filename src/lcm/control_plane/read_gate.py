"""Bounds on expensive reads: a few at a time, equal ones share a result, and not too many wait."""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError
from lcm.core.singleflight import Singleflight
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import TypeVar

    T = TypeVar("T")

MAX_RUNNING = 2
MAX_WAITING = 50
MAX_SMALL_RUNNING = 16
MAX_SMALL_WAITING = 500
"""The bounds of reads of a single worker, which are short but can be requested by the thousand."""


def small_read_gate() -> ReadGate:
    """A gate for reads of a single record."""
    return ReadGate(MAX_SMALL_RUNNING, MAX_SMALL_WAITING)


class ReadGate:
    """Lets a few expensive reads run; the event loop serves other requests between their steps."""

    def __init__(self, max_running: int = MAX_RUNNING, max_waiting: int = MAX_WAITING) -> None:
        self._slots = asyncio.Semaphore(max_running)
        self._max = max_running + max_waiting
        self._admitted = 0
        self._alone = 0
        self._shared: Singleflight[str, Any] = Singleflight()

    async def run_alone(self, read: Callable[[], Coroutine[object, object, T]]) -> T:
        """The result of a read of its own, for callers that must not get one that began before their request."""
        self._alone += 1
        return await self.run(f"alone-{self._alone}", read)

    async def run(self, key: str, read: Callable[[], Coroutine[object, object, T]]) -> T:
        """The result of the read; reads with the same key at the same time are one."""

        async def in_turn() -> T:
            async with self._slots:
                return await read()

        if not self._shared.in_flight(key) and self._admitted >= self._max:
            raise ProblemError(ProblemCode.UNAVAILABLE, "too many expensive requests at once; try again in a moment")
        self._admitted += 1
        try:
            result: T = await self._shared.run(key, in_turn, "expensive-read")
        finally:
            self._admitted -= 1
        return result


class _Pauses:
    """How many pauses there are now, and whether the collector was on before the first of them."""

    count = 0
    was_enabled = True


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no cycles meanwhile.

    Ten thousand decoded records make the collector look at every object of the process, which stalls the event loop for
    0.3 s (measured) and frees nothing: records have no cycles. Several tasks may be inside at the same time.
    """
    if not _Pauses.count:
        _Pauses.was_enabled = gc.isenabled()
        gc.disable()
    _Pauses.count += 1
    try:
        yield
    finally:
        _Pauses.count -= 1
        if not _Pauses.count and _Pauses.was_enabled:
            gc.enable()
