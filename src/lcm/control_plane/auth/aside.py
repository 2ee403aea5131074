"""Small writes beside a request, such as when a token was last used: nobody waits for them and none fails a request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = structlog.get_logger(__name__)


class Aside:
    """Writes under way, at most one a key."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self, key: str, write: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin a write unless one is under way for the key."""
        if key in self._running:
            return
        task = asyncio.get_running_loop().create_task(write())
        self._running[key] = task
        task.add_done_callback(lambda ended: self._ended(key, ended))

    async def finish(self) -> None:
        """Returns once no write is under way."""
        while self._running:
            await asyncio.wait(self._running.values())

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a note beside a request was not written", about=key, error=str(error))
