"""Records that were read a moment ago, so that not every request asks the store who is calling."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


T = TypeVar("T")

AUTH_CACHE_SECONDS = 5.0
"""How long a record is believed. Also how long another process may go on accepting what was revoked in this one."""

MAX_CACHED = 2_048


class TtlCache(Generic[T]):
    """A small cache whose `drop` holds at once, also against a read that is under way."""

    def __init__(self, seconds: float = AUTH_CACHE_SECONDS, most: int = MAX_CACHED) -> None:
        self._seconds = seconds
        self._most = most
        self._held: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._drops = 0

    async def get(self, key: str, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """The record, read if it is not held. That there is none is not held: it may be made the next moment."""
        held = self._held.get(key)
        if held is not None and asyncio.get_running_loop().time() < held[1]:
            return held[0]
        drops = self._drops
        record = await read()
        # A read that began before a revocation may end after it: what it saw must not be kept.
        if record is not None and drops == self._drops:
            self._keep(key, record)
        return record

    def amend(self, key: str, record: T) -> None:
        """Put a newer state of a record in the place of the held one, for no longer than that was good for."""
        held = self._held.get(key)
        if held is not None:
            self._held[key] = (record, held[1])

    def drop(self, key: str) -> None:
        """Forget a record, after its change was committed."""
        self._drops += 1
        self._held.pop(key, None)

    def _keep(self, key: str, record: T) -> None:
        self._held[key] = (record, asyncio.get_running_loop().time() + self._seconds)
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)


log = structlog.get_logger(__name__)


class BackgroundWrites:
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
