"""Keeps the store off the path of a request: a short-lived cache for reads, and small writes in the background."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


T = TypeVar("T")
log = structlog.get_logger(__name__)

AUTH_CACHE_SECONDS = 5.0
"""How long a record is cached, and so how long another process may still accept what was revoked in this one."""

MAX_CACHED = 2_048


class TtlCache(Generic[T]):
    """A small cache whose `drop` takes effect at once, even while a read is in progress."""

    def __init__(self, seconds: float = AUTH_CACHE_SECONDS, max_entries: int = MAX_CACHED) -> None:
        self._seconds = seconds
        self._max_entries = max_entries
        self._entries: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._drops = 0

    async def get(self, key: str, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """The record, read if it is not cached. A missing record is not cached: it may be created at any time."""
        cached = self._entries.get(key)
        if cached is not None and asyncio.get_running_loop().time() < cached[1]:
            return cached[0]
        drops = self._drops
        record = await read()
        # A read that began before a revocation may end after it: its result must not be cached.
        if record is not None and drops == self._drops:
            self._store(key, record)
        return record

    def replace(self, key: str, record: T) -> None:
        """Replace a cached record with a newer state; its expiry does not change."""
        cached = self._entries.get(key)
        if cached is not None:
            self._entries[key] = (record, cached[1])

    def drop(self, key: str) -> None:
        """Remove a record, after its change was committed."""
        self._drops += 1
        self._entries.pop(key, None)

    def _store(self, key: str, record: T) -> None:
        self._entries[key] = (record, asyncio.get_running_loop().time() + self._seconds)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


class BackgroundWrites:
    """Small writes in the background, such as when a token was last used; at most one per key at a time.

    No request waits for them, and a failed write fails no request.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self, key: str, write: Callable[[], Coroutine[None, None, None]]) -> None:
        """Start a write unless one is in progress for the key."""
        if key in self._running:
            return
        task = asyncio.get_running_loop().create_task(write())
        self._running[key] = task
        task.add_done_callback(lambda ended: self._ended(key, ended))

    async def finish(self) -> None:
        """Wait until no write is in progress."""
        while self._running:
            await asyncio.wait(self._running.values())

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("background write failed", key=key, error=str(error))
