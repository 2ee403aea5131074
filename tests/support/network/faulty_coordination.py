"""Coordination with an unreliable network in between: cut off, slow, or losing responses after the write was done."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from lcm.core.coordination import (
    NO_LEASE,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    WatchLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from lcm.core.coordination import Coordination, KeyValue, LeaseGrant, Listing, PrefixState, SwapResult, WatchBatch

R = TypeVar("R")
UNREACHABLE = "etcd 127.0.0.1:2379: connection refused"


class FaultyCoordination:
    """Behaves like the wrapped coordination until a fault is set. `calls` counts the network calls by name."""

    def __init__(self, inner: Coordination) -> None:
        self.inner = inner
        self.cut = False
        self.hang = False
        self.delay = 0.0
        self.lose_next_reply = False
        self.repeat_revisions = 0  # how many revisions a resumed watch repeats
        self.fail_watches = False  # also fails the lists that they start with
        self.calls: dict[str, int] = {}
        self._broken = asyncio.Event()

    @property
    def description(self) -> str:
        return self.inner.description

    def break_watches(self) -> None:
        """End all open watches now."""
        self._broken.set()
        self._broken = asyncio.Event()

    async def _send(self, name: str, call: Callable[[], Awaitable[R]], *, write: bool) -> R:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.cut:
            raise CoordinationUnavailableError(UNREACHABLE)
        if self.hang:
            await asyncio.sleep(6)
            raise (
                CoordinationOutcomeUnknownError("no response within 6 s")
                if write
                else CoordinationUnavailableError("no response within 6 s")
            )
        if self.delay:
            await asyncio.sleep(self.delay)
        result = await call()
        if write and self.lose_next_reply:
            self.lose_next_reply = False
            raise CoordinationOutcomeUnknownError("the response was lost")
        return result

    async def get(self, key: str) -> KeyValue | None:
        return await self._send("get", lambda: self.inner.get(key), write=False)

    async def list_prefix(self, prefix: str) -> Listing:
        if self.fail_watches:
            raise CoordinationUnavailableError(UNREACHABLE)
        return await self._send("list", lambda: self.inner.list_prefix(prefix), write=False)

    async def probe(self, prefix: str) -> PrefixState:
        return await self._send("probe", lambda: self.inner.probe(prefix), write=False)

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        return await self._send("put", lambda: self.inner.put(key, value, lease_id=lease_id), write=True)

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        return await self._send("swap", lambda: self.inner.put_if_absent(key, value, lease_id=lease_id), write=True)

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        def swap() -> Awaitable[SwapResult]:
            return self.inner.compare_and_swap(key, value, mod_revision=mod_revision, lease_id=lease_id)

        return await self._send("swap", swap, write=True)

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        return await self._send("delete", lambda: self.inner.delete(key, mod_revision=mod_revision), write=True)

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        return await self._send("grant", lambda: self.inner.grant_lease(ttl), write=False)

    async def keep_alive(self, lease_id: int) -> float:
        return await self._send("keep_alive", lambda: self.inner.keep_alive(lease_id), write=False)

    async def revoke_lease(self, lease_id: int) -> None:
        await self._send("revoke", lambda: self.inner.revoke_lease(lease_id), write=True)

    @asynccontextmanager
    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        self.calls["watch"] = self.calls.get("watch", 0) + 1
        if self.cut or self.fail_watches:
            raise WatchLostError(UNREACHABLE)
        start = max(1, from_revision - self.repeat_revisions)
        async with (
            self.inner.watch(prefix, from_revision=start) as batches,
            aclosing(self._until_broken(batches)) as until_broken,
        ):
            yield until_broken

    async def _until_broken(self, batches: AsyncIterator[WatchBatch]) -> AsyncGenerator[WatchBatch, None]:
        broken = asyncio.ensure_future(self._broken.wait())
        try:
            while True:
                upcoming = asyncio.ensure_future(anext(batches))
                try:
                    await asyncio.wait([upcoming, broken], return_when=asyncio.FIRST_COMPLETED)
                    if broken.done():
                        raise WatchLostError("the stream was cut")
                    yield upcoming.result()
                finally:
                    upcoming.cancel()
        finally:
            broken.cancel()

    async def check(self) -> None:
        await self._send("check", self.inner.check, write=False)

    async def close(self) -> None:
        await self.inner.close()
