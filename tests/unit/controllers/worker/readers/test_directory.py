"""Replicas find each other through etcd, and each server has one reader."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from lcm.controllers.worker.readers.directory import READERS_PREFIX, Reader, ReaderDirectory, choose_reader
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from tests.support.network.faulty_coordination import FaultyCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.core.coordination import Coordination

TTL = 15
SERVERS = [f"198.18.{number // 250}.{number % 250}" for number in range(3_000)]


def readers(*names: str) -> list[Reader]:
    return [Reader(name, f"http://{name}:8081") for name in names]


@asynccontextmanager
async def registered(
    coordination: Coordination, name: str, url: str | None = None, key: bytes = b"key"
) -> AsyncIterator[ReaderDirectory]:
    own = Reader(name, f"http://{name}:8081" if url is None else url)
    directory = ReaderDirectory(coordination, own, key=key, lease_ttl=TTL)
    await directory.start()
    try:
        yield directory
    finally:
        await directory.stop()


def known(directory: ReaderDirectory) -> list[str]:
    return sorted(reader.instance_id for reader in directory.others)


def test_each_has_its_part_and_only_servers_of_those_who_leave_move() -> None:
    three = readers("one", "two", "three")
    before = {server: choose_reader(server, three) for server in SERVERS}
    for reader in three:
        assert 850 < list(before.values()).count(reader) < 1_150
    for server, chosen in before.items():
        assert choose_reader(server, list(reversed(three))) == chosen
        if chosen != three[1]:
            assert choose_reader(server, [three[0], three[2]]) == chosen
    assert choose_reader("198.18.0.1", []) is None


async def test_replicas_come_and_go() -> None:
    server = MemoryServer()
    async with registered(MemoryCoordination(server), "one") as one, AsyncExitStack() as later:
        await asyncio.sleep(1)
        assert (known(one), one.is_registered) == ([], True)
        two = await later.enter_async_context(registered(MemoryCoordination(server), "two"))
        await asyncio.sleep(1)
        assert (known(one), known(two)) == (["two"], ["one"])
        assert list(one.others) == readers("two")
        await later.aclose()
        await asyncio.sleep(1)
        assert known(one) == []
        assert not two.is_registered


async def test_one_without_a_url_only_follows() -> None:
    server = MemoryServer()
    async with (
        registered(MemoryCoordination(server), "one") as one,
        registered(MemoryCoordination(server), "two", url="") as two,
    ):
        await asyncio.sleep(1)
        assert (known(one), known(two)) == ([], ["one"])
        assert not two.is_registered


async def test_one_that_is_cut_off_is_gone_with_its_lease_and_registers_again() -> None:
    server = MemoryServer()
    faulty = FaultyCoordination(MemoryCoordination(server))
    async with registered(MemoryCoordination(server), "one") as one, registered(faulty, "two") as two:
        await asyncio.sleep(1)
        faulty.cut = True
        await asyncio.sleep(TTL + 1)
        assert known(one) == []
        assert not two.is_registered
        assert known(two) == ["one"], "unknown is not gone: whether it responds is found out by asking it"
        faulty.cut = False
        await asyncio.sleep(TTL)
        assert (known(one), two.is_registered) == (["two"], True)


async def test_entries_that_cannot_be_used_concern_only_themselves() -> None:
    server = MemoryServer()
    coordination = MemoryCoordination(server)
    for name, value in {"bad": b"{", "number": b"3", "deep": b"[" * 100_000, "newer": b'{"format": 99}'}.items():
        await coordination.put(READERS_PREFIX + name, value)
    async with registered(coordination, "one") as one, registered(MemoryCoordination(server), "two"):
        await asyncio.sleep(1)
        assert known(one) == ["two"]
        await change_entry(coordination, "two", format=99)
        assert known(one) == []


async def change_entry(coordination: Coordination, name: str, **fields: object) -> None:
    """Write other fields into the entry of a reader, as anybody who can write to etcd can."""
    (entry,) = (await coordination.list_prefix(READERS_PREFIX + name)).items
    await coordination.put(READERS_PREFIX + name, json.dumps({**json.loads(entry.value), **fields}).encode())
    await asyncio.sleep(1)


async def test_who_can_only_write_to_etcd_cannot_have_the_token_and_the_accounts_sent_elsewhere() -> None:
    """security.md: before, the leader sent both to whatever address stood in etcd."""
    server = MemoryServer()
    coordination = MemoryCoordination(server)
    async with (
        registered(coordination, "one") as one,
        registered(MemoryCoordination(server), "two"),
        registered(MemoryCoordination(server), "three", key=b"another token"),
    ):
        await asyncio.sleep(1)
        assert known(one) == ["two"], "it has another token"
        (genuine,) = (await coordination.list_prefix(READERS_PREFIX + "two")).items
        await change_entry(coordination, "two", url="http://elsewhere:8081")
        assert known(one) == []
        await coordination.put(READERS_PREFIX + "four", genuine.value)
        await asyncio.sleep(1)
        assert known(one) == [], "an entry is signed for one replica"
        await coordination.put(READERS_PREFIX + "two", genuine.value)
        await asyncio.sleep(1)
        assert known(one) == ["two"]
