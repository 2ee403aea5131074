"""Deduplication of concurrent calls: callers with the same key share one call and its result.

`Singleflight` joins a call that is in flight; `FreshSingleflight` joins the next one, for callers that must not get a
result older than their own request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable


K = TypeVar("K", bound="Hashable")
R = TypeVar("R")


class _SharedCall(Generic[R]):
    """A call in flight and the number of callers that wait for it."""

    def __init__(self, task: asyncio.Task[R]) -> None:
        self.task = task
        self.waiting = 0


class Singleflight(Generic[K, R]):
    """Calls in flight by key. A caller may give up without affecting others; a call without callers is cancelled."""

    def __init__(self) -> None:
        self._in_flight: dict[K, _SharedCall[R]] = {}

    def in_flight(self, key: K) -> bool:
        """Whether a call for the key is in flight and can be joined."""
        call = self._in_flight.get(key)
        return call is not None and not call.task.done()

    async def run(self, key: K, make: Callable[[], Coroutine[object, object, R]], name: str) -> R:
        """The result of the call in flight, or of a new one."""
        call = self._in_flight.get(key)
        if call is None or call.task.done():  # a finished result is too old for a new caller
            call = self._in_flight[key] = _SharedCall(asyncio.create_task(make(), name=name))
            call.task.add_done_callback(_consume_exception)
        call.waiting += 1
        try:
            await asyncio.wait({call.task})
        finally:
            call.waiting -= 1
            if not call.waiting:
                self._end(key, call)
        return call.task.result()

    def forget(self, key: K) -> None:
        """Let later callers start a new call: the one in flight may return outdated data."""
        self._in_flight.pop(key, None)

    def is_current(self, key: K) -> bool:
        """From within a call: whether new callers would still join it (it was not forgotten)."""
        call = self._in_flight.get(key)
        return call is not None and call.task is asyncio.current_task()

    def _end(self, key: K, call: _SharedCall[R]) -> None:
        if self._in_flight.get(key) is call:
            del self._in_flight[key]
        if not call.task.done():
            call.task.cancel()


class FreshSingleflight(Generic[R]):
    """At most one call per key is in flight; callers that arrive meanwhile share the next call.

    They never join the call in flight: it may have started before a commit that the caller knows about.
    """

    def __init__(self) -> None:
        self._in_flight: dict[Hashable, asyncio.Task[R]] = {}
        self._next: dict[Hashable, asyncio.Task[R]] = {}

    async def run(self, key: Hashable, call: Callable[[], Awaitable[R]]) -> R:
        """The result of a call that starts after this."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._run_next(key, call))
            task.add_done_callback(_consume_exception)
        return await asyncio.shield(task)

    async def _run_next(self, key: Hashable, call: Callable[[], Awaitable[R]]) -> R:
        if (before := self._in_flight.get(key)) is not None:
            await asyncio.wait([before])
        current = self._in_flight[key] = self._next.pop(key)
        try:
            return await call()
        finally:
            if self._in_flight.get(key) is current:
                del self._in_flight[key]


def _consume_exception(task: asyncio.Task[R]) -> None:
    # All callers may have given up; asyncio would report the error as never retrieved.
    if not task.cancelled():
        task.exception()
