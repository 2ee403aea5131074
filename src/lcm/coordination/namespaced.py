"""Coordination within a namespace: a prefix on every key, transparent to the caller."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.core.coordination import (
    NO_LEASE,
    Coordination,
    KeyValue,
    LeaseGrant,
    Listing,
    PrefixState,
    SwapResult,
    WatchBatch,
    WatchEvent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class NamespacedCoordination:
    """A view of `inner` whose keys are all under `namespace`."""

    def __init__(self, inner: Coordination, namespace: str) -> None:
        if not namespace:
            raise ValueError("an empty namespace needs no wrapping")
        self._inner = inner
        self._namespace = namespace

    @property
    def description(self) -> str:
        return f"{self._inner.description}, namespace {self._namespace}"

    async def get(self, key: str) -> KeyValue | None:
        found = await self._inner.get(self._full_key(key))
        return found and self._stripped(found)

    async def list_prefix(self, prefix: str) -> Listing:
        listing = await self._inner.list_prefix(self._namespace + prefix)
        return Listing(tuple(map(self._stripped, listing.items)), listing.revision)

    async def probe(self, prefix: str) -> PrefixState:
        return await self._inner.probe(self._namespace + prefix)

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        return await self._inner.put(self._full_key(key), value, lease_id=lease_id)

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        return self._stripped_swap(await self._inner.put_if_absent(self._full_key(key), value, lease_id=lease_id))

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        swap = await self._inner.compare_and_swap(
            self._full_key(key), value, mod_revision=mod_revision, lease_id=lease_id
        )
        return self._stripped_swap(swap)

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        return await self._inner.delete(self._full_key(key), mod_revision=mod_revision)

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        return await self._inner.grant_lease(ttl)

    async def keep_alive(self, lease_id: int) -> float:
        return await self._inner.keep_alive(lease_id)

    async def revoke_lease(self, lease_id: int) -> None:
        await self._inner.revoke_lease(lease_id)

    @asynccontextmanager
    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        async with self._inner.watch(self._namespace + prefix, from_revision=from_revision) as batches:
            yield _StrippedBatches(batches, len(self._namespace))

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    def _full_key(self, key: str) -> str:
        if not key:
            raise ValueError("a key must not be empty")
        return self._namespace + key

    def _stripped(self, found: KeyValue) -> KeyValue:
        return replace(found, key=found.key[len(self._namespace) :])

    def _stripped_swap(self, swap: SwapResult) -> SwapResult:
        return SwapResult(swap.succeeded, swap.current and self._stripped(swap.current))


class _StrippedBatches:
    """The batches of a watch with the namespace removed from their keys.

    Not an async generator: it can be dropped half read without a clean-up that needs the event loop.
    """

    def __init__(self, batches: AsyncIterator[WatchBatch], length: int) -> None:
        self._batches = batches
        self._length = length

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        return self

    async def __anext__(self) -> WatchBatch:
        batch = await anext(self._batches)
        return WatchBatch(tuple(map(self._strip, batch.events)), batch.revision)

    def _strip(self, event: WatchEvent) -> WatchEvent:
        return replace(event, key=event.key[self._length :])
