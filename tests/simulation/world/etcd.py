"""etcd for simulated nodes: the memory server, over a network that may be cut or slow, or may lose responses."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from lcm.coordination.memory.server import MemoryServer
from lcm.core.coordination import (
    NO_LEASE,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    Listing,
    SwapResult,
    WatchLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.core.coordination import KeyValue, LeaseGrant, PrefixState, WatchBatch
    from tests.simulation.world.network import Line

R = TypeVar("R")
_CALL_SECONDS = 3.0


class Etcd:
    """The server: it has its own clock and outlives every client."""

    def __init__(self) -> None:
        self.state = MemoryServer()
        self._context = copy_context()

    def replace(self, *, revision: int, same_id: bool) -> None:
        """Another etcd takes its place: without its keys and leases, and with a history of its own."""
        lost = self.state
        self.state = self.do(lambda: MemoryServer(revision=revision))
        self.state._next_lease = lost._next_lease  # real ids are never used twice
        if same_id:
            self.state.cluster_id = lost.cluster_id

    def do(self, work: Callable[..., R], *args: Any) -> R:
        """Run it as the server, so that its timers are the server's."""
        return self._context.copy().run(work, *args)


class EtcdClient:
    """The client of one node. Each of its calls is subject to the node's link to etcd."""

    def __init__(self, server: Etcd, line: Line) -> None:
        self._server = server
        self._line = line
        self._closed = False

    @property
    def description(self) -> str:
        return "simulated etcd"

    async def get(self, key: str) -> KeyValue | None:
        return await self._read(lambda state: state.get(key))

    async def list_prefix(self, prefix: str) -> Listing:
        return await self._read(lambda state: Listing(tuple(state.items(prefix)), state.revision))

    async def probe(self, prefix: str) -> PrefixState:
        return await self._read(lambda state: state.state_of(prefix))

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        return (await self._write(lambda state: state.put(key, value, lease_id))).mod_revision

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        return await self.compare_and_swap(key, value, mod_revision=0, lease_id=lease_id)

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        def swap(state: MemoryServer) -> SwapResult:
            current = state.get(key)
            if (current.mod_revision if current else 0) != mod_revision:
                return SwapResult(False, current)
            return SwapResult(True, state.put(key, value, lease_id))

        return await self._write(swap)

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        def delete(state: MemoryServer) -> bool:
            current = state.get(key)
            if current is None or mod_revision not in (None, current.mod_revision):
                return False
            state.delete(key)
            return True

        return await self._write(delete)

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        return await self._read(lambda state: state.grant(ttl))

    async def keep_alive(self, lease_id: int) -> float:
        return await self._read(lambda state: state.keep_alive(lease_id))

    async def revoke_lease(self, lease_id: int) -> None:
        await self._write(lambda state: state.revoke(lease_id))

    @asynccontextmanager
    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        await self._read(lambda _: None)
        watch = _Watch(self._server, self._line, prefix, from_revision)
        self._server.state.attach(watch)
        try:
            yield watch
        finally:
            self._server.state.detach(watch)

    async def check(self) -> None:
        await self._read(lambda _: None)

    async def close(self) -> None:
        self._closed = True

    async def _read(self, work: Callable[[MemoryServer], R]) -> R:
        await self._there()
        return self._server.do(work, self._server.state)

    async def _write(self, work: Callable[[MemoryServer], R]) -> R:
        await self._there()
        response = self._server.do(work, self._server.state)
        if self._line.loses_reply():
            raise CoordinationOutcomeUnknownError("simulated etcd: the response was lost")
        return response

    async def _there(self) -> None:
        await asyncio.sleep(self._line.delay())
        if self._closed:
            raise CoordinationUnavailableError("simulated etcd: closed")
        if self._line.cut:
            await asyncio.sleep(_CALL_SECONDS)  # a partition sends no response at all
            raise CoordinationUnavailableError("simulated etcd: no response")


class _Watch:
    """A position in the server's history. A cut link delivers nothing, and is detected only after a while."""

    def __init__(self, server: Etcd, line: Line, prefix: str, revision: int) -> None:
        self._server = server
        self._line = line
        self._prefix = prefix
        self._next = revision
        self.changed = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        return self

    async def __anext__(self) -> WatchBatch:
        while True:
            self.changed.clear()
            if self._line.watch_broken():
                raise WatchLostError("simulated etcd: the stream was cut")
            if not self._line.cut:
                batch = self._server.state.events_since(self._next, self._prefix)
                self._next = max(self._next, batch.revision + 1)
                if batch.events:
                    await asyncio.sleep(self._line.delay())
                    return batch
            await self._line.woken(self.changed)
