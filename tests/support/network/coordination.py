"""The simplest handling of failures by a user of coordination."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from lcm.core.coordination import (
    Coordination,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    WatchBatch,
    WatchEvent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

T = TypeVar("T")

DEADLINE = 180.0
_PAUSE = 0.02


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE:g} s: {what}") from None


async def until_served(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until it is served."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with suppress(CoordinationUnavailableError):
                return await call()
            await asyncio.sleep(_PAUSE)


async def write_once(client: Coordination, key: str, value: bytes) -> None:
    """Write a key that is written once; a write of unknown outcome is read back before it is repeated."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await client.put(key, value)
            except CoordinationUnavailableError:
                await asyncio.sleep(_PAUSE)
            except CoordinationOutcomeUnknownError:
                if await until_served(lambda: client.get(key)) is not None:
                    return
            else:
                return


async def take(batches: AsyncIterator[WatchBatch], count: int) -> list[WatchEvent]:
    """The next `count` events; batches must be in order and have increasing revisions."""
    events: list[WatchEvent] = []
    reached = 0
    async with asyncio.timeout(DEADLINE):
        while len(events) < count:
            batch = await anext(batches)
            assert batch.revision >= reached
            assert all(reached < event.revision <= batch.revision for event in batch.events)
            reached = batch.revision
            events += batch.events
    assert len(events) == count
    return events


class Follower:
    """Events of a prefix across lost watches: each is reopened at the next revision."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self.lost: list[CoordinationUnavailableError] = []
        self.opened = 0

    async def run(self, client: Coordination, prefix: str, revision: int) -> None:
        while True:
            try:
                async with client.watch(prefix, from_revision=revision) as batches:
                    self.opened += 1
                    async for batch in batches:
                        self.events += batch.events
                        revision = batch.revision + 1
            except CoordinationUnavailableError as lost:
                self.lost.append(lost)
                await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def following(client: Coordination, prefix: str) -> AsyncIterator[Follower]:
    """Follow the prefix from now on."""
    listing = await until_served(lambda: client.list_prefix(prefix))
    follower = Follower()
    task = asyncio.create_task(follower.run(client, prefix, listing.revision + 1))
    try:
        await eventually(lambda: follower.opened > 0 or task.done(), "the watch is open")
        yield follower
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
