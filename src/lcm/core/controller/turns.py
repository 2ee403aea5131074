"""Turns of tasks that compute without ever waiting, so that the event loop keeps up with everything else.

Such a task that only yields comes back in the next iteration of the loop. Two hundred of them make each iteration
as long as two hundred passes, and a request that takes ten iterations is delayed by ten times that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PER_ITERATION: Final = 8


class Turns:
    """Lets so many tasks continue in one iteration of the event loop; the others wait, in order."""

    def __init__(self, per_iteration: int = PER_ITERATION) -> None:
        self._per_iteration = per_iteration
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._opens = False

    async def next(self) -> None:
        """Return when it is the task's turn: in a later iteration than now."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._opens:
            self._opens = True
            loop.call_soon(self._open)
        await turn

    def _open(self) -> None:
        given = 0
        while self._waiting and given < self._per_iteration:
            turn = self._waiting.popleft()
            if not turn.done():  # its task may have been cancelled
                turn.set_result(None)
                given += 1
        self._opens = bool(self._waiting)
        if self._opens:
            asyncio.get_running_loop().call_soon(self._open)
