"""The mirror on a real etcd: restarts of the server, compaction, two control planes at once."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.journal.mirror import MirrorSettings
from lcm.control_plane.store.memory.store import MemoryDisk
from lcm.coordination.etcd import EtcdConfig, EtcdCoordination
from lcm.core.coordination import EventKind
from tests.support.network.coordination import DEADLINE, eventually, following, until_served
from tests.support.records.workers import a_worker
from tests.support.servers.etcd import EtcdServer
from tests.support.virtual.mirror_world import PREFIX, Plane, expected_keys, read_value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from lcm.core.coordination import WatchEvent
    from lcm.model.worker.record import Worker

# Short intervals, so that the tests need not wait for minutes. No test depends on speed.
OFTEN = MirrorSettings(compare_every=0.5, check_every=0.2, patience=0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


class Site:
    """A store, a real etcd, and control planes on both."""

    def __init__(self, server: EtcdServer, stack: AsyncExitStack) -> None:
        self.disk = MemoryDisk()
        self.server = server
        self._stack = stack
        self.user = self.client()

    def client(self) -> EtcdCoordination:
        # Longer than by default, so that a slow test machine is not mistaken for a fault.
        client = EtcdCoordination(EtcdConfig((self.server.endpoint,), call_timeout=10.0))
        self._stack.push_async_callback(client.close)
        return client

    async def plane(self, settings: MirrorSettings = OFTEN) -> Plane:
        plane = Plane(self.disk, self.client(), settings, poll=0.1)
        await plane.start()
        self._stack.push_async_callback(plane.stop)
        return plane

    async def keys(self) -> dict[str, Any]:
        listing = await until_served(lambda: self.user.list_prefix(PREFIX))
        return {item.key.removeprefix(PREFIX): read_value(item.value) for item in listing.items}

    async def agree(self) -> None:
        """Wait until the keys equal the records."""
        expected = await expected_keys(self.disk)
        try:
            async with asyncio.timeout(DEADLINE):
                while await self.keys() != expected:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{await self.keys()} never became {expected}") from None


@pytest.fixture
async def site(server: EtcdServer) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        site = Site(server, stack)
        yield site
    server.ctl("del", "--prefix", PREFIX)


def fleet(count: int) -> list[Worker]:
    return [a_worker(id=f"w-{number}", name=f"n{number}", status="RUNNING") for number in range(count)]


async def test_changes_across_restarts_of_the_server_arrive(site: Site) -> None:
    plane = await site.plane()
    await plane.add(*fleet(20))
    await site.agree()
    for number in range(2):
        site.server.stop()
        await plane.edit(f"w-{number}", desired_status="STOPPED")
        await plane.edit(f"w-{number + 10}", status="TERMINATED")
        await eventually(lambda: plane.mirror.pending >= 2 and bool(plane.mirror.degradation()), "it is noticed")
        site.server.launch()
        site.server.wait_ready()
        await plane.edit(f"w-{number + 2}", desired_status="STOPPED")
        await site.agree()
    await eventually(lambda: plane.mirror.degradation() == [] and plane.mirror.pending == 0, "it is ready again")


@pytest.mark.parametrize("writes", [0, 50])
async def test_an_etcd_that_was_replaced_is_filled_again(tmp_path: Path, writes: int) -> None:
    """Also when the new one has a higher revision than the old one by the time the mirror probes it."""
    server = EtcdServer(tmp_path / "etcd").start()
    try:
        async with AsyncExitStack() as stack:
            site = Site(server, stack)
            plane = await site.plane(MirrorSettings(compare_every=3600.0, check_every=0.5))
            await plane.add(*fleet(20))
            await site.agree()
            await eventually(lambda: plane.mirror.pending == 0 and plane.mirror.lag == 0.0, "nothing waits")
            server.replace()
            for number in range(writes):
                server.ctl("put", f"/of/others/{number}", "x")
            await site.agree()
            await plane.edit("w-3", desired_status="STOPPED")
            await site.agree()
            await eventually(lambda: plane.mirror.pending == 0 and plane.mirror.lag == 0.0, "nothing waits again")
    finally:
        server.stop()


async def test_compaction_and_tampering_are_mended(site: Site) -> None:
    plane = await site.plane()
    await plane.add(*fleet(5))
    await site.agree()
    await site.user.delete(f"{PREFIX}w-0")
    await site.user.put(f"{PREFIX}w-1", b"\xff garbage")
    await site.user.put(f"{PREFIX}w-2", b'{"version":99}')
    revision = await site.user.put(f"{PREFIX}nobody", b'{"version":1}')
    site.server.compact(revision)
    await plane.edit("w-3", desired_status="STOPPED")
    await site.agree()


async def test_two_mirrors_write_each_change_once_and_a_watcher_never_sees_a_version_go_back(site: Site) -> None:
    # Compared only at the start: every later write is caused by a change.
    once = MirrorSettings(compare_every=3600.0)
    planes = [await site.plane(once), await site.plane(once)]
    async with following(site.user, PREFIX) as watcher:
        await planes[0].add(*fleet(10))
        for turn in range(10):
            desired = "RUNNING" if turn % 2 else "STOPPED"
            edits = [planes[(turn + number) % 2].edit(f"w-{number}", desired_status=desired) for number in range(10)]
            await asyncio.gather(*edits)
        await site.agree()  # otherwise the last worker may be deleted before it was ever written
        await planes[0].edit("w-9", status="TERMINATED")
        await site.agree()
        await eventually(lambda: _gone(watcher.events), "the deletion is seen")
        versions: dict[str, list[int]] = {}
        for event in watcher.events:
            if event.kind is EventKind.PUT:
                versions.setdefault(event.key, []).append(json.loads(event.value)["version"])
    assert len(versions) == 10
    for written in versions.values():  # several changes may have become one write, but none was written by both
        assert written == sorted(set(written))


def _gone(events: list[WatchEvent]) -> bool:
    return any(event.kind is EventKind.DELETE and event.key == f"{PREFIX}w-9" for event in events)


async def test_a_steady_fleet_leaves_etcd_alone(site: Site) -> None:
    planes = [await site.plane(), await site.plane()]
    await planes[0].add(*fleet(5))
    await site.agree()
    await eventually(lambda: all(plane.mirror.pending == 0 for plane in planes), "nothing waits")
    before = (await site.user.list_prefix(PREFIX)).revision
    compared = [plane.mirror.counters.comparisons for plane in planes]
    await planes[0].edit("w-1", moves=False, tags={"note": "beside the facts"})
    await eventually(
        lambda: all(plane.mirror.counters.comparisons > n + 2 for plane, n in zip(planes, compared, strict=True)),
        "both have compared three times",
    )
    assert (await site.user.list_prefix(PREFIX)).revision == before
