"""What is particular to the memory adapter: exact time, clocks of its own, bounded history."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.coordination import CompactedError, LeaseNotFoundError
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run_virtually(scenario: Callable[[VirtualClock], Awaitable[Any]]) -> Any:
    """Run the scenario where a loop owns time and the clock follows it."""

    async def inside() -> Any:
        virtual = VirtualClock(asyncio.get_running_loop())
        with clock.use(virtual):
            return await scenario(virtual)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(inside())


def test_a_lease_ends_exactly_at_its_ttl() -> None:
    async def scenario(_: VirtualClock) -> float:
        client = MemoryCoordination()
        loop = asyncio.get_running_loop()
        # A start and steps that no sum of floats represents exactly.
        await asyncio.sleep(0.1)
        lease = await client.grant_lease(7)
        await client.put("/a", b"", lease_id=lease.id)
        await asyncio.sleep(0.3)
        await client.keep_alive(lease.id)
        renewed = loop.time()
        async with client.watch("/", from_revision=3) as batches:
            await anext(batches)
        return loop.time() - renewed

    assert run_virtually(scenario) == pytest.approx(7.0, abs=1e-5)


def test_a_lease_lives_until_just_before() -> None:
    async def scenario(_: VirtualClock) -> None:
        client = MemoryCoordination()
        lease = await client.grant_lease(5)
        await asyncio.sleep(4.999)
        await client.keep_alive(lease.id)
        await asyncio.sleep(5.0)
        with pytest.raises(LeaseNotFoundError):
            await client.keep_alive(lease.id)

    run_virtually(scenario)


def test_time_asleep_counts_for_a_lease() -> None:
    async def scenario(virtual: VirtualClock) -> None:
        client = MemoryCoordination()
        lease = await client.grant_lease(5)
        await client.put("/a", b"", lease_id=lease.id)
        virtual.suspended = 60.0
        assert await client.get("/a") is None
        with pytest.raises(LeaseNotFoundError):
            await client.keep_alive(lease.id)

    run_virtually(scenario)


def test_a_lease_goes_by_the_servers_clock_not_by_a_clients() -> None:
    async def scenario(_: VirtualClock) -> None:
        server = MemoryServer()
        client = MemoryCoordination(server)
        lease = await client.grant_lease(5)
        fast = VirtualClock(asyncio.get_running_loop())
        fast.suspended = 3600.0
        with clock.use(fast):
            assert await client.keep_alive(lease.id) == 5.0
            await client.put("/a", b"", lease_id=lease.id)
        assert await client.get("/a") is not None

    run_virtually(scenario)


def test_a_server_clock_that_runs_slow_keeps_the_lease_longer() -> None:
    async def scenario(virtual: VirtualClock) -> float:
        loop = asyncio.get_running_loop()
        client = MemoryCoordination()
        lease = await client.grant_lease(5)
        revision = await client.put("/a", b"", lease_id=lease.id)
        virtual.suspended = -2.0
        started = loop.time()
        async with client.watch("/", from_revision=revision + 1) as batches:
            await anext(batches)
        return loop.time() - started

    assert run_virtually(scenario) == pytest.approx(7.0, abs=1e-5)


async def test_revisions_start_above_a_given_one() -> None:
    client = MemoryCoordination(MemoryServer(revision=41))
    assert (await client.list_prefix("/")).revision == 41
    assert await client.put("/a", b"") == 42


async def test_history_is_bounded() -> None:
    server = MemoryServer(history_limit=10)
    client = MemoryCoordination(server)
    first = await client.put("/a", b"")
    newest = [await client.put("/a", b"") for _ in range(100)][-1]
    async with client.watch("/", from_revision=first) as batches:
        with pytest.raises(CompactedError) as caught:
            await anext(batches)
    assert newest - 20 <= caught.value.compact_revision <= newest - 9
    async with client.watch("/", from_revision=caught.value.compact_revision) as batches:
        assert (await anext(batches)).events[-1].revision == newest


async def test_a_watch_behind_the_history_gets_compacted_error() -> None:
    server = MemoryServer(history_limit=10)
    client = MemoryCoordination(server)
    start = await client.put("/a", b"") + 1
    async with client.watch("/", from_revision=start) as batches:
        for _ in range(100):
            await client.put("/a", b"")
        with pytest.raises(CompactedError):
            await anext(batches)


async def test_a_watch_of_quiet_keys_is_not_outrun_while_it_is_read() -> None:
    server = MemoryServer(history_limit=10)
    client = MemoryCoordination(server)
    start = await client.put("/quiet/a", b"") + 1
    async with client.watch("/quiet/", from_revision=start) as batches:
        reading = asyncio.ensure_future(anext(batches))
        for _ in range(100):
            await client.put("/busy", b"")
        await client.put("/quiet/b", b"")
        assert [event.key for event in (await reading).events] == ["/quiet/b"]


@pytest.mark.parametrize("revision", [0, 1, 99])
async def test_only_what_is_there_can_be_compacted(revision: int) -> None:
    server = MemoryServer(revision=5)
    server.compact(2)
    with pytest.raises(ValueError, match="can compact revisions 3 to 5"):
        server.compact(revision)


def test_impossible_settings_are_mistakes() -> None:
    with pytest.raises(ValueError, match="start at 1"):
        MemoryServer(revision=0)
    with pytest.raises(ValueError, match="start at 1"):
        MemoryServer(history_limit=0)
