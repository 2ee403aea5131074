"""Slots for queries of CML servers: how many are made at once, and how long a server may keep one from others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PROMPT_SECONDS: Final = 2.0
"""A query that takes longer gives its slot to another, and goes on in one of the slots for slow servers."""
SLOW_FACTOR: Final = 5
"""There are more of these: a query of a server that hangs takes memory only, but for as long as it may take at all."""


class QuerySlots:
    """So many slots, and more of them for slow servers.

    A server that hangs shows it only after a while. It keeps its slot from the others no longer than that, however many
    hang at once, unless the slots for slow servers are all taken.
    """

    def __init__(self, count: int) -> None:
        self._prompt = asyncio.Semaphore(count)
        self._slow = asyncio.Semaphore(count * SLOW_FACTOR)

    @asynccontextmanager
    async def slot(self, *, is_slow: bool, on_slow: Callable[[], None]) -> AsyncIterator[None]:
        """A slot for one query. `on_slow` is called when it goes on in one for slow servers."""
        if is_slow:
            async with self._slow:
                yield
            return
        held = self._prompt

        async def move() -> None:
            nonlocal held
            await self._slow.acquire()
            held.release()
            held = self._slow
            on_slow()

        def begin_to_move() -> None:
            moving.append(asyncio.create_task(move(), name="cml-query-slot"))

        moving: list[asyncio.Task[None]] = []
        await held.acquire()
        timer = asyncio.get_running_loop().call_later(PROMPT_SECONDS, begin_to_move)
        try:
            yield
        finally:
            timer.cancel()
            for task in moving:
                task.cancel()
            held.release()
