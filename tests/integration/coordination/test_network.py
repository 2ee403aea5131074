"""The network fails: half-open, cut, refused, or responses lost after the write."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from structlog.testing import capture_logs

from lcm.coordination.etcd.errors import FailureKind, classify_error
from lcm.coordination.etcd.watch import WatchStream
from lcm.core.coordination import (
    CoordinationError,
    CoordinationOutcomeUnknownError,
    CoordinationUnavailableError,
    WatchLostError,
)
from tests.support.network.coordination import DEADLINE, eventually, following, until_served, write_once
from tests.support.network.tcp_proxy import Mode, TcpProxy
from tests.support.servers.etcd import free_ports

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.coordination.etcd import EtcdCoordination
    from tests.integration.coordination.conftest import Connect
    from tests.support.servers.etcd import EtcdServer


# Intervals of probes. A busy host may not respond within the first, and is then tested at the next.
PACES = (0.05, 0.5, 5.0)


async def ended_by_us(call: Awaitable[object], error: type[CoordinationError]) -> str:
    """Fails as it should, and by our own time limit: gRPC's keepalive speaks of the connection instead."""
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(
            error, match=r"in time|no time left|timed out|still connecting after|took longer than|silent for"
        ) as caught:
            await call
    return str(caught.value)


async def test_a_half_open_watch_is_noticed_and_resumed(
    etcd: EtcdServer, proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    watcher, writer = connect(proxy.endpoint, liveness_interval=0.5), connect(etcd.endpoint)
    async with following(watcher, prefix) as follower:
        await writer.put(prefix + "a", b"")
        await eventually(lambda: len(follower.events) == 1, "the first event")
        follower.lost.clear()
        proxy.set_mode(Mode.BLACK_HOLE)
        await writer.put(prefix + "b", b"")
        await eventually(lambda: bool(follower.lost), "the silence is noticed")
        assert isinstance(follower.lost[0], WatchLostError)
        assert f"etcd {proxy.endpoint}: silent for" in str(follower.lost[0])
        proxy.set_mode(Mode.FORWARD)
        await writer.put(prefix + "c", b"")
        await eventually(lambda: len(follower.events) >= 3, "the rest of the events")
    assert [event.key for event in follower.events] == [prefix + "a", prefix + "b", prefix + "c"]
    assert watcher.reconnects >= 1


async def stays_open(client: EtcdCoordination, prefix: str, seconds: float) -> bool:
    async with following(client, prefix) as follower:
        await asyncio.sleep(seconds)
        return follower.opened == 1 and not follower.lost


async def test_a_quiet_watch_of_a_live_server_is_left_alone(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    for interval in PACES:
        if await stays_open(connect(etcd.endpoint, liveness_interval=interval), prefix, 20 * interval):
            return
    raise AssertionError("given up, although the server lives")


async def test_a_server_that_keeps_progress_to_itself_is_left_alone(
    etcd: EtcdServer, connect: Connect, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer servers do so while a watch waits for its first revision; a read beside it shows that they live."""

    async def unanswered(stream: WatchStream, call: object) -> bool:
        stream._unanswered += 1
        return True

    monkeypatch.setattr(WatchStream, "_request_progress", unanswered)
    for interval in PACES:
        if await stays_open(connect(etcd.endpoint, liveness_interval=interval), prefix, 20 * interval):
            return
    raise AssertionError("given up, although the server lives")


async def test_a_reader_that_dawdles_is_not_taken_for_a_dead_server(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    writer = connect(etcd.endpoint)
    for interval in PACES:
        client = connect(etcd.endpoint, liveness_interval=interval)
        start = (await client.list_prefix(prefix)).revision + 1
        values: list[bytes] = []
        with suppress(WatchLostError):
            async with client.watch(prefix, from_revision=start) as batches, asyncio.timeout(DEADLINE):
                for number in range(100):
                    await writer.put(prefix + "a", str(number).encode())
                await asyncio.sleep(20 * interval)  # not reading
                while len(values) < 100:
                    values += [event.value for event in (await anext(batches)).events]
            assert values == [str(number).encode() for number in range(100)]
            return
    raise AssertionError("given up, although the server lives")


async def test_a_half_open_call_ends_in_time_and_the_next_connects_anew(
    proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    client = connect(proxy.endpoint, call_timeout=0.5)
    await write_once(client, prefix + "a", b"1")
    proxy.set_mode(Mode.BLACK_HOLE)
    await ended_by_us(client.put(prefix + "a", b"2"), CoordinationOutcomeUnknownError)
    await ended_by_us(client.get(prefix + "a"), CoordinationUnavailableError)
    await ended_by_us(client.keep_alive(1), CoordinationUnavailableError)
    proxy.set_mode(Mode.FORWARD)
    found = await until_served(lambda: client.get(prefix + "a"))
    assert found is not None
    assert found.value == b"1"


async def test_every_call_is_bounded_when_all_endpoints_swallow_packets(connect: Connect, prefix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        endpoints = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, two)]
        client = connect(*endpoints, call_timeout=0.5)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.get(prefix),
            lambda: client.list_prefix(prefix),
            lambda: client.put(prefix, b""),
            lambda: client.put_if_absent(prefix, b""),
            lambda: client.delete(prefix),
            lambda: client.grant_lease(5),
            lambda: client.keep_alive(1),
            lambda: client.revoke_lease(1),
            client.check,
            lambda: client.watch(prefix, from_revision=1).__aenter__(),
        ]
        for call in calls:
            # Nothing was sent, so nothing is unknown.
            await ended_by_us(call(), CoordinationUnavailableError)
        why = await ended_by_us(client.get(prefix), CoordinationUnavailableError)
        assert all(f"etcd {endpoint}: " in why for endpoint in endpoints)


async def test_a_write_whose_response_is_lost_is_unknown_and_can_be_read_back(
    etcd: EtcdServer, proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    client, other = connect(proxy.endpoint, call_timeout=2.0), connect(etcd.endpoint)
    await until_served(client.check)
    proxy.set_mode(Mode.DROP_REPLIES)
    with pytest.raises(CoordinationOutcomeUnknownError, match=f"etcd {proxy.endpoint}: no response in time"):
        await client.put_if_absent(prefix + "a", b"mine")
    async with asyncio.timeout(DEADLINE):  # it may still be on its way
        while (found := await until_served(lambda: other.get(prefix + "a"))) is None:
            await asyncio.sleep(0.02)
    assert found.value == b"mine"
    assert found.create_revision == found.mod_revision


async def test_a_write_cut_off_after_it_was_sent_is_unknown(
    etcd: EtcdServer, proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    """It must not be tried elsewhere either, though elsewhere would have served."""
    client, other = connect(proxy.endpoint, etcd.endpoint), connect(etcd.endpoint)
    await client.check()
    assert len(proxy.accepted) == 1
    proxy.set_mode(Mode.DROP_REPLIES)
    writing = asyncio.create_task(client.put(prefix + "a", b"once"))
    async with asyncio.timeout(DEADLINE):
        while await other.get(prefix + "a") is None:
            await asyncio.sleep(0.02)
    proxy.cut()
    with pytest.raises(CoordinationOutcomeUnknownError, match=proxy.endpoint):
        await writing
    found = await other.get(prefix + "a")
    assert found is not None
    assert found.create_revision == found.mod_revision


async def test_an_interrupted_read_goes_to_another_endpoint(
    etcd: EtcdServer, proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    client = connect(proxy.endpoint, etcd.endpoint)
    await client.put(prefix + "a", b"1")
    proxy.set_mode(Mode.DROP_REPLIES)
    reading = asyncio.create_task(client.get(prefix + "a"))
    await eventually(lambda: proxy.swallowed > 0, "the response is lost")
    proxy.cut()
    found = await reading
    assert found is not None
    assert found.value == b"1"


async def test_a_write_that_could_not_be_sent_goes_to_the_next_endpoint(
    etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    client = connect(dead, etcd.endpoint)
    revision = await client.put(prefix + "a", b"1")
    found = await client.get(prefix + "a")
    assert found is not None
    assert found.mod_revision == found.create_revision == revision
    lonely = connect(dead)
    with pytest.raises(CoordinationUnavailableError, match=f"etcd {dead}: connection refused"):
        await lonely.put(prefix + "a", b"2")


async def test_grpc_reports_a_connect_failure_with_the_expected_text() -> None:
    """Here we rely on gRPC's text: a call that was never sent must be distinguished from one that was."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{free_ports(1)[0]}") as channel:
        put: Any = channel.unary_unary("/etcdserverpb.KV/Put")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await put(b"", timeout=20.0)
    assert classify_error(caught.value) is FailureKind.NOT_DONE


async def test_a_connection_that_dies_between_calls_makes_no_write_unknown(
    proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    client = connect(proxy.endpoint)
    for number in range(3):
        revision = await until_served(lambda n=number: client.put(prefix + "a", str(n).encode()))  # type: ignore[misc]
        proxy.cut()
        async with asyncio.timeout(DEADLINE):
            while (found := await until_served(lambda: client.get(prefix + "a"))) is None:
                pass
        assert found.mod_revision == revision


async def test_catching_up_cut_midway_loses_nothing(
    etcd: EtcdServer, proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    writer, watcher = connect(etcd.endpoint), connect(proxy.endpoint)
    listing = await watcher.list_prefix(prefix)
    value = b"x" * 1000

    async def write(worker: int) -> None:
        for number in range(worker, 3000, 50):
            await writer.put(f"{prefix}{number:04}", value)

    await asyncio.gather(*(write(worker) for worker in range(50)))
    proxy.cut_after = 1_200_000
    seen: list[str] = []
    cuts = 0
    revision = listing.revision + 1
    async with asyncio.timeout(DEADLINE):
        while len(seen) < 3000:
            try:
                async with watcher.watch(prefix, from_revision=revision) as batches:
                    async for batch in batches:
                        seen += [event.key for event in batch.events]
                        revision = batch.revision + 1
                        if len(seen) >= 3000:
                            break
            except CoordinationUnavailableError:
                cuts += 1
                await asyncio.sleep(0.02)
    assert sorted(seen) == [f"{prefix}{number:04}" for number in range(3000)]
    assert cuts >= 1


async def test_an_endpoint_that_is_down_is_tried_once_a_second(proxy: TcpProxy, connect: Connect, prefix: str) -> None:
    """Fifty callers and a few watches, as fast as they can; then it comes back by itself."""
    client = connect(proxy.endpoint)
    proxy.set_mode(Mode.REFUSE)
    loop = asyncio.get_running_loop()
    started = loop.time()

    def goes_on() -> bool:
        """For a while, and however slow the machine is until it was tried again."""
        return loop.time() < started + 2.5 or len(proxy.accepted) < 2

    async def call() -> None:
        while goes_on():
            with pytest.raises(CoordinationUnavailableError, match=f"etcd {proxy.endpoint}: "):
                await client.get(prefix)
            await asyncio.sleep(0.005)

    async def watch() -> None:
        while goes_on():
            with pytest.raises(CoordinationUnavailableError):
                async with client.watch(prefix, from_revision=1):
                    pass
            await asyncio.sleep(0.005)

    with capture_logs() as logs:
        await asyncio.gather(*(call() for _ in range(50)), *(watch() for _ in range(5)))
        elapsed = loop.time() - started
        assert len(proxy.accepted) <= elapsed + 1
        proxy.set_mode(Mode.FORWARD)
        await until_served(client.check)
    assert [line["event"] for line in logs] == ["etcd endpoint does not respond", "etcd endpoint responds again"]


async def test_losing_the_server_under_many_callers_does_not_storm_it(
    proxy: TcpProxy, connect: Connect, prefix: str
) -> None:
    """Callers in full swing when the connection breaks: they share one attempt a second from then on."""
    client = connect(proxy.endpoint)
    await client.put(prefix + "a", b"")
    loop = asyncio.get_running_loop()
    refusing_from = loop.time() + 0.5
    end = refusing_from + 2.0

    async def call() -> None:
        while loop.time() < end:
            try:
                await client.get(prefix + "a")
            except CoordinationUnavailableError:
                await asyncio.sleep(0.005)

    callers = [asyncio.create_task(call()) for _ in range(50)]
    await eventually(lambda: loop.time() >= refusing_from, "full swing")
    proxy.set_mode(Mode.REFUSE)
    proxy.cut()
    before = len(proxy.accepted)
    await asyncio.gather(*callers)
    attempts = len(proxy.accepted) - before
    # One more than the gate allows: gRPC may dial for a call that was in flight when the connection broke.
    assert attempts <= (loop.time() - refusing_from) + 2


async def test_closing_waits_for_calls_and_ends_watches(proxy: TcpProxy, connect: Connect, prefix: str) -> None:
    client = connect(proxy.endpoint, call_timeout=0.5)
    start = (await until_served(lambda: client.list_prefix(prefix))).revision + 1

    async def watch() -> None:
        async with client.watch(prefix, from_revision=start) as batches:
            async for _ in batches:
                pass

    watching = asyncio.create_task(watch())
    await until_served(client.check)
    proxy.set_mode(Mode.BLACK_HOLE)
    reading = asyncio.create_task(client.get(prefix))
    await eventually(lambda: proxy.swallowed > 0, "the call is in flight")
    async with asyncio.timeout(DEADLINE):
        await client.close()
    with pytest.raises(CoordinationUnavailableError):
        await reading
    with pytest.raises(CoordinationUnavailableError):
        await watching
