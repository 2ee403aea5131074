"""Several mirrors, newer keys, and changes that come at the worst moment."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.coordination.memory.client import MemoryCoordination
from lcm.core.coordination import EventKind
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.records.workers import a_worker
from tests.support.virtual.mirror_world import PREFIX, SOON, World, fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.core.coordination import KeyValue, Listing, PrefixState


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.stop()


class LateList(FaultyCoordination):
    """Lists arrive late: they show an older state."""

    on_their_way = 0.0

    async def list_prefix(self, prefix: str) -> Listing:
        listing = await super().list_prefix(prefix)
        await asyncio.sleep(self.on_their_way)
        return listing


@pytest.mark.parametrize("known", [True, False])
async def test_a_key_newer_than_its_record_stays_until_the_store_is_surely_behind(world: World, known: bool) -> None:
    plane = await world.plane()
    if known:
        await plane.add(a_worker())
    await asyncio.sleep(SOON)
    newer = b'{"id":"w-1","status":"RUNNING","desired_status":"RUNNING","generation":1,"version":7}'
    world.by_hand("w-1", newer)
    plane.mirror.on_gap()
    if known:
        await plane.edit(desired_status="STOPPED")
    await asyncio.sleep(59)
    assert world.server.items(PREFIX)[0].value == newer
    with capture_logs() as logs:
        await asyncio.sleep(2)
    assert await world.in_sync()
    assert [line["version"] for line in logs] == [7]


async def test_a_newer_key_of_another_control_plane_is_never_overwritten(world: World) -> None:
    slow, quick = await world.plane(), await world.plane()
    await slow.add(a_worker())
    await asyncio.sleep(1.1)
    slow.coordination.delay = 30.0
    await slow.edit(desired_status="STOPPED")
    await asyncio.sleep(1.1)  # the slow one is about to write version 2
    await quick.edit(desired_status="RUNNING")
    await asyncio.sleep(300)
    assert await world.in_sync()
    assert world.versions_seen() == [1, 2, 3]


async def test_several_control_planes_write_each_change_once(world: World) -> None:
    planes = [await world.plane() for _ in range(3)]
    await planes[0].add(*fleet(10))
    await asyncio.sleep(2)
    for number in range(10):
        await planes[number % 3].edit(f"w-{number}", desired_status="STOPPED")
    await asyncio.sleep(2)
    await planes[1].edit("w-0", status="TERMINATED")
    await asyncio.sleep(600)
    assert await world.in_sync()
    assert world.versions_seen("w-0") == [1, 2, None]
    assert all(world.versions_seen(f"w-{number}") == [1, 2] for number in range(1, 10))


async def test_the_key_of_a_worker_created_meanwhile_is_not_deleted(world: World) -> None:
    slow, quick = await world.plane(), await world.plane()
    world.by_hand("w-1", b"garbage")
    slow.coordination.delay = 5.0
    slow.mirror.on_gap()
    await asyncio.sleep(7)  # the list has arrived, the deletion is in progress
    await quick.add(a_worker())
    await asyncio.sleep(60)
    assert await world.in_sync()
    events = world.server.events_since(1, PREFIX).events
    assert [event.kind for event in events] == [EventKind.PUT, EventKind.PUT]


async def test_an_outdated_list_does_not_overwrite_newer_keys(world: World) -> None:
    coordination = LateList(MemoryCoordination(world.server))
    plane = await world.plane(coordination)
    await plane.add(*fleet(2))
    await asyncio.sleep(SOON)
    coordination.on_their_way = 5.0
    plane.mirror.on_gap()
    await asyncio.sleep(1)
    await plane.edit("w-0", desired_status="STOPPED")
    await plane.edit("w-1", status="TERMINATED")
    await asyncio.sleep(1)
    assert await world.in_sync()
    calls = {**coordination.calls, "probe": 0}
    await asyncio.sleep(5)
    assert plane.mirror.counters.comparisons == 2
    assert plane.mirror.counters.mended == 0
    assert {**coordination.calls, "probe": 0} == calls


class Deaf(FaultyCoordination):
    """Responds when it is cancelled, as gRPC does when both come together."""

    async def probe(self, prefix: str) -> PrefixState:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
        return await super().probe(prefix)

    async def get(self, key: str) -> KeyValue | None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
        return await super().get(key)


@pytest.mark.parametrize("moment", [0.1, 1.5, 10.6])
async def test_it_stops_even_if_a_cancellation_is_lost(world: World, moment: float) -> None:
    plane = await world.plane(Deaf(MemoryCoordination(world.server)))
    await plane.add(*fleet(3))
    await asyncio.sleep(moment)
    async with asyncio.timeout(0.5):
        await plane.mirror.stop()


async def test_a_gap_during_a_comparison_causes_another_one(world: World) -> None:
    coordination = LateList(MemoryCoordination(world.server))
    plane = await world.plane(coordination)
    await plane.add(a_worker())
    await asyncio.sleep(SOON)
    coordination.on_their_way = 5.0
    plane.mirror.on_gap()
    await asyncio.sleep(1)
    world.server.delete(f"{PREFIX}w-1")  # after the list was made
    plane.mirror.on_gap()
    await asyncio.sleep(12)
    assert await world.in_sync()
