"""Following a prefix through broken streams and compaction: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.controller.follower import Follower
from lcm.core.coordination import EventKind
from tests.support.network.faulty_coordination import FaultyCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.core.coordination import Listing, WatchEvent


class Copy:
    """The state of a follower: built from the first list and every change, it must equal the server's state."""

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {}
        self.lists = 0
        self.events: list[tuple[EventKind, str, int]] = []
        self.reconnects: list[float] = []

    def listed(self, listing: Listing) -> None:
        self.lists += 1
        self.state = {item.key: item.value for item in listing.items}

    def changed(self, event: WatchEvent) -> None:
        self.events.append((event.kind, event.key, event.revision))
        if event.kind is EventKind.PUT:
            self.state[event.key] = event.value
        else:
            self.state.pop(event.key, None)

    def lost(self) -> None:
        self.reconnects.append(asyncio.get_running_loop().time())


@asynccontextmanager
async def following(server: MemoryServer) -> AsyncIterator[tuple[Copy, FaultyCoordination, Follower]]:
    copy, network = Copy(), FaultyCoordination(MemoryCoordination(server))
    follower = Follower(network, "/p/", on_list=copy.listed, on_change=copy.changed, on_lost=copy.lost)
    task = asyncio.create_task(follower.run())
    await asyncio.sleep(0.1)
    try:
        yield copy, network, follower
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def actual(server: MemoryServer) -> dict[str, bytes]:
    return {item.key: item.value for item in server.items("/p/")}


async def test_it_lists_then_watches_from_that_revision() -> None:
    """controllers.md#watch: the stream of a prefix."""
    server = MemoryServer()
    user = MemoryCoordination(server)
    await user.put("/p/a", b"1")
    async with following(server) as (copy, _, follower):
        assert (copy.lists, copy.events, follower.connected) == (1, [], True)
        await user.put("/p/a", b"2")
        await user.delete("/p/a")
        await user.put("/other", b"x")
        await asyncio.sleep(0.1)
    assert [(kind, key) for kind, key, _ in copy.events] == [(EventKind.PUT, "/p/a"), (EventKind.DELETE, "/p/a")]


async def test_a_broken_stream_is_resumed_where_it_ended() -> None:
    """controllers.md: the watch comes back by itself."""
    server = MemoryServer()
    user = MemoryCoordination(server)
    async with following(server) as (copy, network, follower):
        await user.put("/p/a", b"1")
        await asyncio.sleep(0.1)
        network.break_watches()
        await asyncio.sleep(0.1)
        assert not follower.connected
        await user.put("/p/b", b"2")
        await asyncio.sleep(2)
        assert follower.connected
    assert copy.lists == 1
    assert [key for _, key, _ in copy.events] == ["/p/a", "/p/b"]


async def test_events_repeated_after_a_resume_are_delivered_once() -> None:
    server = MemoryServer()
    user = MemoryCoordination(server)
    async with following(server) as (copy, network, _):
        network.repeat_revisions = 3
        for number in range(5):
            await user.put(f"/p/{number}", b"1")
            await asyncio.sleep(0.1)
            network.break_watches()
            await asyncio.sleep(2)
    assert [key for _, key, _ in copy.events] == [f"/p/{number}" for number in range(5)]


async def test_reconnects_wait_longer_each_time_and_it_never_gives_up() -> None:
    """controllers.md#watch: delay times attempt. Then it logs an error and keeps the longest delay."""
    server = MemoryServer()
    user = MemoryCoordination(server)
    with capture_logs() as logs:
        async with following(server) as (copy, network, _):
            network.cut = True
            network.break_watches()
            await asyncio.sleep(100)
            await user.put("/p/late", b"1")
            network.cut = False
            await asyncio.sleep(11)
            assert copy.state == {"/p/late": b"1"}
    gaps = [later - earlier for earlier, later in zip(copy.reconnects, copy.reconnects[1:], strict=False)]
    assert gaps == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10][: len(gaps)])
    assert len(gaps) >= 12
    events = [entry["event"] for entry in logs]
    assert events.count("watch lost; reconnecting") == 1
    assert events.count("watch cannot be resumed; polling continues and so do the retries") == 1
    assert events.count("watch resumed") == 1


async def test_a_success_resets_the_delay() -> None:
    """controllers.md#watch: a success resets the attempts."""
    server = MemoryServer()
    async with following(server) as (copy, network, _):
        for _ in range(4):
            network.break_watches()
            await asyncio.sleep(1.5)
    gaps = [later - earlier for earlier, later in zip(copy.reconnects, copy.reconnects[1:], strict=False)]
    assert gaps == pytest.approx([1.5, 1.5, 1.5])


async def test_after_compaction_only_changes_are_delivered() -> None:
    server = MemoryServer()
    user = MemoryCoordination(server)
    for key in ("same", "changed", "deleted", "recreated"):
        await user.put(f"/p/{key}", b"1")
    async with following(server) as (copy, network, _):
        network.cut = True
        network.break_watches()
        await asyncio.sleep(0.1)
        await user.put("/p/changed", b"2")
        await user.delete("/p/deleted")
        await user.delete("/p/recreated")
        await user.put("/p/recreated", b"1")
        await user.put("/p/new", b"1")
        server.compact(server.revision)
        network.cut = False
        await asyncio.sleep(2)
        assert copy.state == actual(server)
    assert copy.lists == 1
    changes = sorted((kind.value, key) for kind, key, _ in copy.events)
    assert changes == [("delete", "/p/deleted"), ("put", "/p/changed"), ("put", "/p/new"), ("put", "/p/recreated")]


async def test_through_a_hundred_failures_the_copy_equals_the_original() -> None:
    server = MemoryServer()
    user = MemoryCoordination(server)
    rng, compacted = clock.rng(), 0
    async with following(server) as (copy, network, _):
        for _ in range(400):
            key = f"/p/{rng.randrange(20)}"
            if rng.random() < 0.7:
                await user.put(key, str(rng.random()).encode())
            else:
                await user.delete(key)
            if rng.random() < 0.1:
                network.break_watches()
            if rng.random() < 0.1:
                network.cut = not network.cut
            if rng.random() < 0.05 and server.revision > compacted:
                compacted = server.revision
                server.compact(compacted)
            await asyncio.sleep(rng.choice([0.0, 0.01, 0.7]))
        network.cut = False
        await asyncio.sleep(20)
        assert copy.state == actual(server)
    assert len({(key, revision) for _, key, revision in copy.events}) == len(copy.events), (
        "a change was delivered twice"
    )
    assert len(copy.reconnects) > 10
