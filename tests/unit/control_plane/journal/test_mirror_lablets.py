"""Lablets in coordination: what controllers must react to, under their own prefix, and only until they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.journal.mirror import Mirror
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR, WORKER_MIRROR
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core.coordination import NO_LEASE
from tests.support.records.lablet_records import LabletDesk, a_ready_worker

SOON = 2.0


def keys(server: MemoryServer, prefix: str = "/instances/") -> dict[str, Any]:
    return {item.key.removeprefix(prefix): json.loads(item.value) for item in server.items(prefix)}


async def test_a_lablet_has_a_key_from_its_first_moment_to_its_last() -> None:
    desk, server = await LabletDesk().open(a_ready_worker()), MemoryServer()
    await desk.define()
    feed = JournalFeed(desk.store)
    mirrors = [Mirror(desk.store, MemoryCoordination(server), feed, each) for each in (WORKER_MIRROR, LABLET_MIRROR)]
    for service in (feed, *mirrors):
        await service.start()
    lablet = await desk.placed()
    other = await desk.make(name="other")
    await asyncio.sleep(SOON)
    assert keys(server) == {
        lablet.id: {
            "id": lablet.id,
            "status": "SCHEDULED",
            "wanted": True,
            "worker_id": "w-1",
            "generation": 1,
            "version": 2,
        },
        other.id: {
            "id": other.id,
            "status": "PENDING_SCHEDULING",
            "wanted": True,
            "worker_id": None,
            "generation": 1,
            "version": 1,
        },
    }
    assert set(keys(server, "/workers/")) == {"w-1"}, "each mirror keeps to its own prefix"
    lablet = await desk.report(lablet, "INSTANTIATING")
    lablet = await desk.end(lablet)
    await desk.end(other)
    await asyncio.sleep(SOON)
    assert {name: (value["status"], value["wanted"], value["generation"]) for name, value in keys(server).items()} == {
        lablet.id: ("INSTANTIATING", False, 2)
    }
    await desk.report(lablet, "FAILED")
    await asyncio.sleep(SOON)
    assert keys(server) == {}
    for service in (*mirrors, feed):
        await service.stop()


async def test_manual_changes_of_keys_are_repaired() -> None:
    desk, server = await LabletDesk().open(), MemoryServer()
    await desk.define()
    lablet, ended = await desk.make(), await desk.end(await desk.make(name="over"))
    server.put(f"/instances/{ended.id}", b'{"version": 1}', NO_LEASE)
    feed = JournalFeed(desk.store)
    mirror = Mirror(desk.store, MemoryCoordination(server), feed, LABLET_MIRROR)
    for service in (feed, mirror):
        await service.start()
    await asyncio.sleep(SOON)
    assert set(keys(server)) == {lablet.id}
    server.delete(f"/instances/{lablet.id}")
    await asyncio.sleep(310)
    assert set(keys(server)) == {lablet.id}
    for service in (mirror, feed):
        await service.stop()
