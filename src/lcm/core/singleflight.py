"""One call for all who ask for the same thing at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable


K = TypeVar("K", bound="Hashable")
R = TypeVar("R")


class _SharedCall(Generic[R]):
    """A call under way, and how many wait for it."""

    def __init__(self, task: asyncio.Task[R]) -> None:
        self.task = task
        self.waiting = 0


class Singleflight(Generic[K, R]):
    """Calls under way by key. Who gives up takes nothing from the others; a call that nobody waits for is cancelled."""

    def __init__(self) -> None:
        self._under_way: dict[K, _SharedCall[R]] = {}

    def under_way(self, key: K) -> bool:
        """Whether there is a call whose answer others may still wait for."""
        call = self._under_way.get(key)
        return call is not None and not call.task.done()

    async def ask(self, key: K, make: Callable[[], Coroutine[object, object, R]], name: str) -> R:
        """The answer of the call that is under way, or of a new one."""
        call = self._under_way.get(key)
        if call is None or call.task.done():  # an answer that is here already is too old for who asks only now
            call = self._under_way[key] = _SharedCall(asyncio.create_task(make(), name=name))
            call.task.add_done_callback(_consume_call_exception)
        call.waiting += 1
        try:
            await asyncio.wait({call.task})
        finally:
            call.waiting -= 1
            if not call.waiting:
                self._end(key, call)
        return call.task.result()

    def part(self, key: K) -> None:
        """Who asks from now on gets a call of its own: the one under way may answer with what is outdated."""
        self._under_way.pop(key, None)

    def mine(self, key: K) -> bool:
        """From within a call: whether its answer is still the one that all get who ask now."""
        call = self._under_way.get(key)
        return call is not None and call.task is asyncio.current_task()

    def _end(self, key: K, call: _SharedCall[R]) -> None:
        if self._under_way.get(key) is call:
            del self._under_way[key]
        if not call.task.done():
            call.task.cancel()


def _consume_call_exception(task: asyncio.Task[R]) -> None:
    if not task.cancelled():
        task.exception()  # looked at: everybody who waited may have given up


T = TypeVar("T")


class FreshSingleflight(Generic[T]):
    """At most one call per question is under way; whoever asks meanwhile shares the next one.

    Never the one under way: it may have begun before a commit that the asker knows of.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._next: dict[Hashable, asyncio.Task[T]] = {}

    async def ask(self, question: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of a call that begins after this."""
        task = self._next.get(question)
        if task is None:
            task = self._next[question] = asyncio.create_task(self._answer(question, call))
            task.add_done_callback(_consume_exception)
        return await asyncio.shield(task)

    async def _answer(self, question: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        if (before := self._under_way.get(question)) is not None:
            await asyncio.wait([before])
        mine = self._under_way[question] = self._next.pop(question)
        try:
            return await call()
        finally:
            if self._under_way.get(question) is mine:
                del self._under_way[question]


def _consume_exception(task: asyncio.Task[T]) -> None:
    # All who asked may have given up; asyncio would complain about an error that nobody looked at.
    if not task.cancelled():
        task.exception()
