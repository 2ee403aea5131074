"""Coordination inside one process, without etcd.

`MemoryServer` holds the shared state, `MemoryCoordination` is a client of it. An operation is atomic and happens after
other tasks had one turn.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from lcm.coordination.memory.server import MemoryServer
from lcm.core.coordination import (
    NO_LEASE,
    CoordinationUnavailableError,
    KeyValue,
    LeaseGrant,
    Listing,
    PrefixState,
    SwapResult,
    WatchBatch,
    WatchLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["MemoryCoordination", "MemoryServer"]


class MemoryCoordination:
    """A client of a `MemoryServer`; several clients may share one server."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self._server = server or MemoryServer()
        self._closed = False
        self._watches: dict[_MemoryWatch, None] = {}

    @property
    def description(self) -> str:
        return "memory of this process"

    async def get(self, key: str) -> KeyValue | None:
        await self._turn(key)
        return self._server.get(key)

    async def list_prefix(self, prefix: str) -> Listing:
        await self._turn()
        return Listing(tuple(self._server.items(prefix)), self._server.revision)

    async def probe(self, prefix: str) -> PrefixState:
        await self._turn()
        return self._server.state_of(prefix)

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        await self._turn(key)
        return self._server.put(key, value, lease_id).mod_revision

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        return await self.compare_and_swap(key, value, mod_revision=0, lease_id=lease_id)

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        await self._turn(key)
        current = self._server.get(key)
        if _mod_revision(current) != mod_revision:
            return SwapResult(False, current)
        return SwapResult(True, self._server.put(key, value, lease_id))

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        await self._turn(key)
        current = self._server.get(key)
        if current is None or mod_revision not in (None, current.mod_revision):
            return False
        self._server.delete(key)
        return True

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        if ttl < 1:
            raise ValueError(f"a lease lasts at least 1 second, not {ttl}")
        await self._turn()
        return self._server.grant(ttl)

    async def keep_alive(self, lease_id: int) -> float:
        await self._turn()
        return self._server.keep_alive(lease_id)

    async def revoke_lease(self, lease_id: int) -> None:
        await self._turn()
        self._server.revoke(lease_id)

    @asynccontextmanager
    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        if from_revision < 1:
            raise ValueError(f"revisions start at 1, not {from_revision}")
        await self._turn()
        watch = _MemoryWatch(self._server, prefix, from_revision)
        self._watches[watch] = None
        self._server.attach(watch)
        try:
            yield watch
        finally:
            self._watches.pop(watch, None)
            watch.end("the watch was closed")

    async def check(self) -> None:
        await self._turn()

    async def close(self) -> None:
        self._closed = True
        for watch in self._watches:
            watch.end("coordination was closed")

    async def _turn(self, key: str | None = None) -> None:
        """Let other tasks run first, as a network would; a caller cancelled here has changed nothing."""
        if key == "":
            raise ValueError("a key must not be empty")
        await asyncio.sleep(0)
        if self._closed:
            raise CoordinationUnavailableError(f"{self.description}: closed")


class _MemoryWatch:
    """A position in the server's history. It buffers no events, so it cannot grow behind a slow reader."""

    def __init__(self, server: MemoryServer, prefix: str, revision: int) -> None:
        self._server = server
        self._prefix = prefix
        self._next = revision
        self._ended: str | None = None
        self.changed = asyncio.Event()

    def end(self, why: str) -> None:
        """Further reads raise `WatchLostError`."""
        self._server.detach(self)
        self._ended = self._ended or why
        self.changed.set()

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        return self

    async def __anext__(self) -> WatchBatch:
        while True:
            if self._ended:
                raise WatchLostError(f"memory of this process: {self._ended}")
            self.changed.clear()
            batch = self._server.events_since(self._next, self._prefix)
            self._next = max(self._next, batch.revision + 1)
            if batch.events:
                return batch
            await self.changed.wait()


def _mod_revision(item: KeyValue | None) -> int:
    return item.mod_revision if item else 0
