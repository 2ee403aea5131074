"""Three servers: members die, the leader dies, the quorum is lost and comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core.coordination import CoordinationOutcomeUnknownError, CoordinationUnavailableError
from tests.support.network.coordination import DEADLINE, eventually, following, until_served, write_once

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.core.coordination import Coordination
    from tests.integration.coordination.conftest import Connect
    from tests.support.servers.etcd import EtcdCluster


async def write_all(client: Coordination, keys: list[str]) -> None:
    for key in keys:
        await write_once(client, key, b"")


async def check_that_nothing_is_lost_or_doubled(
    client: Coordination, prefix: str, fault: Callable[[], Awaitable[object]]
) -> None:
    """Writes and a watch go on across the fault."""
    keys = [f"{prefix}{number:03}" for number in range(45)]
    async with following(client, prefix) as follower:
        await write_all(client, keys[:15])
        writing = asyncio.create_task(write_all(client, keys[15:30]))
        await fault()
        await writing
        await write_all(client, keys[30:])
        await eventually(lambda: len({event.key for event in follower.events}) == len(keys), "all events")
    revisions = [event.revision for event in follower.events]
    assert revisions == sorted(set(revisions))
    # A write of unknown outcome may be repeated by its writer; the watch itself shows each change once.
    assert list(dict.fromkeys(event.key for event in follower.events)) == keys


async def test_the_member_in_use_is_killed(cluster: EtcdCluster, connect: Connect, prefix: str) -> None:
    victim = (cluster.leader_index() + 1) % 3
    endpoints = [cluster.servers[victim].endpoint, *cluster.endpoints[:victim], *cluster.endpoints[victim + 1 :]]
    client = connect(*endpoints, call_timeout=3.0)

    async def fault() -> None:
        cluster.servers[victim].kill()

    await check_that_nothing_is_lost_or_doubled(client, prefix, fault)


async def test_the_leader_is_killed(cluster: EtcdCluster, connect: Connect, prefix: str) -> None:
    leader = cluster.leader_index()
    client = connect(*cluster.endpoints, call_timeout=3.0)

    async def fault() -> None:
        cluster.servers[leader].kill()

    await check_that_nothing_is_lost_or_doubled(client, prefix, fault)
    assert cluster.leader_index() != leader


async def test_one_hanging_member_stops_no_call(cluster: EtcdCluster, connect: Connect, prefix: str) -> None:
    victim = (cluster.leader_index() + 1) % 3
    endpoints = [cluster.servers[victim].endpoint, *cluster.endpoints[:victim], *cluster.endpoints[victim + 1 :]]
    client = connect(*endpoints, call_timeout=1.0, liveness_interval=0.5)

    async def fault() -> None:
        cluster.servers[victim].pause()

    await check_that_nothing_is_lost_or_doubled(client, prefix, fault)


@pytest.mark.parametrize("how", ["pause", "kill"])
async def test_without_a_quorum_calls_fail_in_time_and_it_comes_back(
    cluster: EtcdCluster, connect: Connect, prefix: str, how: str
) -> None:
    client = connect(*cluster.endpoints, call_timeout=0.5, liveness_interval=0.5)
    leader = cluster.leader_index()
    gone = [cluster.servers[leader], cluster.servers[(leader + 1) % 3]]

    async def bounded(call: Awaitable[object]) -> None:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises((CoordinationUnavailableError, CoordinationOutcomeUnknownError)):
                await call

    async with following(client, prefix) as follower:
        await write_once(client, prefix + "before", b"")
        await eventually(lambda: bool(follower.events), "the first event")
        for server in gone:
            server.pause() if how == "pause" else server.kill()
        for _ in range(3):
            await bounded(client.put(prefix + "lost", b""))
            await bounded(client.get(prefix + "before"))
            await bounded(client.check())
        await bounded(client.grant_lease(5))
        await bounded(client.keep_alive(1))
        await eventually(lambda: bool(follower.lost), "the watch learns that there is no leader")
        for server in gone:
            server.resume() if how == "pause" else server.launch()
        await write_once(client, prefix + "after", b"")
        await until_served(client.check)
        await eventually(lambda: prefix + "after" in {event.key for event in follower.events}, "the watch goes on")
    revisions = [event.revision for event in follower.events]
    assert revisions == sorted(set(revisions))
    listing = await until_served(lambda: client.list_prefix(prefix))
    assert {item.key for item in listing.items} == {event.key for event in follower.events}


async def test_calls_prefer_a_member_that_responds(cluster: EtcdCluster, connect: Connect, prefix: str) -> None:
    """A hanging member is tried by one call, not by every call."""
    victim = (cluster.leader_index() + 1) % 3
    endpoints = [cluster.servers[victim].endpoint, *cluster.endpoints[:victim], *cluster.endpoints[victim + 1 :]]
    client = connect(*endpoints, call_timeout=2.0)
    await write_once(client, prefix + "a", b"")
    cluster.servers[victim].pause()
    assert await until_served(lambda: client.get(prefix + "a")) is not None
    for _ in range(20):
        first, *others = client._caller.endpoints.in_order()
        assert first.address != endpoints[0] or all(one.down for one in others)
        assert await until_served(lambda: client.get(prefix + "a")) is not None
