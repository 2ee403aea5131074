"""One server that restarts, compacts its history, or is overloaded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.core.coordination import (
    CompactedError,
    CoordinationError,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    EventKind,
    WatchLostError,
)
from tests.support.network.coordination import DEADLINE, eventually, following, until_served, write_once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.core.coordination import Coordination, WatchBatch
    from tests.integration.coordination.conftest import Connect
    from tests.support.network.tcp_proxy import TcpProxy
    from tests.support.servers.etcd import EtcdServer


async def test_a_restart_under_a_watch_loses_and_doubles_nothing(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    watcher, writer = connect(etcd.endpoint), connect(etcd.endpoint)
    keys = [f"{prefix}{number:03}" for number in range(60)]
    async with following(watcher, prefix) as follower:
        for key in keys[:20]:
            await write_once(writer, key, b"")
        writing = asyncio.create_task(_write_all(writer, keys[20:40]))
        await asyncio.to_thread(etcd.restart)
        await writing
        for key in keys[40:]:
            await write_once(writer, key, b"")
        await eventually(lambda: len(follower.events) >= len(keys), "all events have come")
    assert [event.key for event in follower.events] == keys
    revisions = [event.revision for event in follower.events]
    assert revisions == sorted(set(revisions))
    assert follower.lost
    assert watcher.reconnects >= 1


async def _write_all(writer: Coordination, keys: list[str]) -> None:
    for key in keys:
        await write_once(writer, key, b"")


async def test_a_server_killed_and_started_again_is_found_again(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    client = connect(etcd.endpoint)
    await client.put(prefix + "a", b"1")
    with capture_logs() as logs:
        etcd.kill()
        await eventually_refused(client, etcd)
        for _ in range(20):
            with pytest.raises(CoordinationUnavailableError, match=f"etcd {etcd.endpoint}: connection refused"):
                await client.get(prefix + "a")
        with pytest.raises(CoordinationUnavailableError):
            await client.check()
        etcd.launch()
        found = await until_served(lambda: client.get(prefix + "a"))
    assert found is not None
    assert [(line["event"], line["endpoint"]) for line in logs] == [
        ("etcd endpoint does not respond", etcd.endpoint),
        ("etcd endpoint responds again", etcd.endpoint),
    ]
    closed = {"the server closed the connection", "the server reset the connection"}  # whichever a call meets first
    assert logs[0]["error"] in {"connection refused", *closed}
    assert client.reconnects == 1
    await client.check()


async def eventually_refused(client: Coordination, etcd: EtcdServer) -> None:
    """Until the next second begins, it may only be known that the server closed the connection."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with pytest.raises(CoordinationUnavailableError) as caught:
                await client.check()
            if "refused" in str(caught.value):
                return
            await asyncio.sleep(0.02)


async def test_compaction_under_a_lost_watch_is_reported_and_survived(
    etcd: EtcdServer, proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    watcher, writer = connect(proxy.endpoint), connect(etcd.endpoint)
    seen = await writer.put(prefix + "a", b"1")
    async with watcher.watch(prefix, from_revision=seen + 1) as batches:
        proxy.cut()
        with pytest.raises(WatchLostError):
            await _read_to_the_end(batches)
    await writer.put(prefix + "a", b"2")
    await writer.delete(prefix + "a")
    newest = await writer.put(prefix + "b", b"3")
    etcd.compact(newest)
    with pytest.raises(CompactedError) as caught:
        await until_served(lambda: _first_batch(watcher, prefix, seen + 1))
    assert caught.value.compact_revision == newest
    listing = await watcher.list_prefix(prefix)
    assert [item.key for item in listing.items] == [prefix + "b"]
    async with watcher.watch(prefix, from_revision=listing.revision + 1) as batches:
        await writer.put(prefix + "b", b"4")
        async with asyncio.timeout(DEADLINE):
            while not (batch := await anext(batches)).events:
                pass
    assert [(event.kind, event.value) for event in batch.events] == [(EventKind.PUT, b"4")]


async def _read_to_the_end(batches: AsyncIterator[WatchBatch]) -> None:
    async for _ in batches:
        pass


async def _first_batch(client: Coordination, prefix: str, revision: int) -> None:
    async with client.watch(prefix, from_revision=revision) as batches:
        await anext(batches)


async def test_progress_moves_a_quiet_watch_past_compaction(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    """Changes elsewhere move a quiet watch on, so that it can be reopened after they are compacted."""
    client = connect(etcd.endpoint)
    start = await client.put(prefix + "here/a", b"")
    async with client.watch(prefix + "here/", from_revision=start + 1) as batches:
        await client.put(prefix + "elsewhere", b"")
        newest = await client.put(prefix + "elsewhere", b"")
        async with asyncio.timeout(DEADLINE):
            while (batch := await anext(batches)).revision < newest:
                assert batch.events == ()
    etcd.compact(newest)
    async with client.watch(prefix + "here/", from_revision=batch.revision + 1) as batches:
        await client.put(prefix + "here/b", b"")
        async with asyncio.timeout(DEADLINE):
            while not (batch := await anext(batches)).events:
                pass
    assert [event.key for event in batch.events] == [prefix + "here/b"]


def watches(etcd: EtcdServer) -> int:
    return int(etcd.metric("etcd_debugging_mvcc_watcher_total"))


async def no_watches(etcd: EtcdServer) -> None:
    """The server has forgotten all watches, also those of the test before."""
    await eventually(lambda: watches(etcd) == 0, "the server has forgotten the watches")


async def test_watches_leave_nothing_on_the_server(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    client = connect(etcd.endpoint)
    start = (await client.list_prefix(prefix)).revision + 1
    await no_watches(etcd)
    opened = 0
    leave = asyncio.Event()

    async def watch(*, until_cancelled: bool) -> None:
        nonlocal opened
        async with client.watch(prefix, from_revision=start) as batches:
            opened += 1
            await leave.wait()
            while until_cancelled:
                await anext(batches)

    tasks = [asyncio.create_task(watch(until_cancelled=number % 2 == 1)) for number in range(200)]
    await eventually(lambda: opened == 200, "all watches are open")
    await eventually(lambda: watches(etcd) == 200, "the server counts them all")
    leave.set()
    await asyncio.gather(*tasks[::2])
    for task in tasks[1::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await no_watches(etcd)
    await client.check()


async def test_watches_cancelled_while_they_open_leave_nothing(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    client = connect(etcd.endpoint)
    start = (await client.list_prefix(prefix)).revision + 1
    await no_watches(etcd)

    async def watch() -> None:
        async with client.watch(prefix, from_revision=start) as batches:
            async for _ in batches:
                pass

    tasks = [asyncio.create_task(watch()) for _ in range(100)]
    for turn, task in enumerate(tasks):
        if turn % 10 == 0:
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.check()
    await no_watches(etcd)


async def test_a_request_etcd_refuses_is_neither_unavailable_nor_unknown(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    client = connect(etcd.endpoint)
    with pytest.raises(CoordinationError, match=f"etcd {etcd.endpoint}: .*too large") as caught:
        await client.put(prefix + "a", b"x" * 1_600_000)
    assert not isinstance(caught.value, CoordinationUnavailableError | CoordinationOutcomeUnknownError)


async def test_a_listing_too_long_for_one_message_comes_in_shorter_pages(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    client = connect(etcd.endpoint)
    for number in range(70):
        await client.put(f"{prefix}{number:02}", bytes([number]) * 1_000_000)
    listing = await client.list_prefix(prefix)
    assert [item.key for item in listing.items] == [f"{prefix}{number:02}" for number in range(70)]


async def test_a_name_and_an_ipv6_address_reach_it_too(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    for endpoint in (f"localhost:{etcd.client_port}", f"http://{etcd.endpoint}/"):
        await connect(endpoint).check()
    await connect(f"[::1]:{etcd.client_port}", etcd.endpoint).check()
    with pytest.raises(
        CoordinationUnavailableError, match=r"no-such-host\.invalid:2379: the host name cannot be resolved"
    ):
        await connect("no-such-host.invalid:2379").check()


async def test_closing_at_any_moment_leaves_nothing_waiting(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    start = await connect(etcd.endpoint).put(prefix + "a", b"")

    async def watch(client: Coordination) -> None:
        async with client.watch(prefix, from_revision=start) as batches:
            await _read_to_the_end(batches)

    for turns in range(40):
        client = connect(etcd.endpoint, user="nobody", password="unused")
        tasks = [asyncio.create_task(watch(client)) for _ in range(3)]
        tasks += [asyncio.create_task(client.put(prefix + "a", b"")) for _ in range(3)]  # type: ignore[arg-type]
        for _ in range(turns):
            await asyncio.sleep(0 if turns < 30 else 0.001)
        async with asyncio.timeout(DEADLINE):
            await client.close()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(
            isinstance(end, int | CoordinationUnavailableError | CoordinationOutcomeUnknownError) for end in ends
        ), ends
