"""One answer for all who ask the same at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")


class Shared(Generic[T]):
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
            task.add_done_callback(_retrieve)
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


def _retrieve(task: asyncio.Task[T]) -> None:
    # All who asked may have given up; asyncio would complain about an error that nobody looked at.
    if not task.cancelled():
        task.exception()
