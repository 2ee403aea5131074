"""The history of the fleet: one sample an interval whoever takes it, kept for a time, and read in bounded pages."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.history import FleetHistoryRecorder, FleetHistoryService
from lcm.control_plane.fleet.service import FleetService
from lcm.control_plane.records.kinds import ALL_KINDS, FLEET_HISTORY, WORKERS
from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.memory.disk import MemoryDisk
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import StoreUnavailableError
from lcm.core import clock
from lcm.model.fleet.history import HISTORY_RANGES
from tests.support.records.lablet_records import a_ready_worker
from tests.support.virtual.control_plane import SYSTEM

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker


class CountingStore(MemoryStore):
    """A store that counts lists of workers, and can be away."""

    lists = 0
    away = False

    async def find(self, kind: Any, *what: Any, **how: Any) -> Any:
        self.lists += kind is WORKERS
        return await super().find(kind, *what, **how)

    async def get_many(self, *what: Any) -> Any:
        if self.away:
            raise StoreUnavailableError("away")
        return await super().get_many(*what)


async def a_plane(disk: MemoryDisk | None = None) -> tuple[CountingStore, FleetHistoryService]:
    """A control plane on a store that others may share."""
    store = CountingStore(disk)
    await store.open(ALL_KINDS)
    box = SecretBox([parse_key(generate_key(), "test")])
    fleet = FleetService(ControlPlaneContext(store, UnitOfWork(store), box, ("eu-west-1",)))
    return store, FleetHistoryService(store, fleet)


async def add(store: MemoryStore, *workers: Worker) -> None:
    async def attempt(tx: Transaction) -> None:
        for worker in workers:
            tx.save_worker(worker, "created")

    await UnitOfWork(store).run(SYSTEM, attempt)


async def test_a_sample_has_counts_capacity_use_and_cost() -> None:
    store, history = await a_plane()
    used = {"cpu_cores": 1.5, "memory_gb": 2.0, "nodes": 3, "lablets": 2, "ports": [20000]}
    await add(
        store,
        a_ready_worker(id="w-1", name="a", instance_id="i-1", cost_per_hour_usd=0.5, allocation=used),
        a_ready_worker(id="w-2", name="b", instance_id="i-2", cost_per_hour_usd=0.25, conditions=()),
        a_ready_worker(id="w-3", name="c", status="FAILED", instance_id=None),
        a_ready_worker(id="w-4", name="d", status="TERMINATED", instance_id=None),
    )
    assert await history.record()
    (sample,) = (await history.read("24h")).items
    assert (sample.workers, sample.ready, sample.problems, sample.lablets) == (3, 1, 1, 2)
    assert sample.by_status == {"RUNNING": 2, "FAILED": 1}
    assert (sample.capacity.cpu_cores, sample.capacity.max_nodes) == (2, 15)
    assert (sample.used.cpu_cores, sample.used.memory_gb, sample.used.nodes) == (1.5, 2.0, 3)
    assert sample.cost_per_hour_usd > 0.75, "instances and disks"
    assert sample.at <= clock.now() < sample.at + timedelta(minutes=5)


async def test_several_control_planes_keep_one_sample_an_interval() -> None:
    disk = MemoryDisk()
    planes = [await a_plane(disk) for _ in range(3)]
    await add(planes[0][0], a_ready_worker())
    assert sorted(await asyncio.gather(*(history.record() for _, history in planes))) == [False, False, True]
    lists = sum(store.lists for store, _ in planes)
    assert not await planes[1][1].record()
    assert sum(store.lists for store, _ in planes) == lists, "what is stored is not read again"
    for _, history in planes:
        assert len((await history.read("24h")).items) == 1
        assert len((await history.read("7d")).items) == 1


async def test_recorders_fill_the_ranges_without_growing() -> None:
    disk = MemoryDisk()
    planes = [await a_plane(disk) for _ in range(2)]
    await add(planes[0][0], a_ready_worker())
    recorders = [FleetHistoryRecorder(history) for _, history in planes]
    for recorder in recorders:
        await recorder.start()
    await asyncio.sleep(timedelta(days=3).total_seconds())
    for recorder in recorders:
        await recorder.stop()
    store, history = await a_plane(disk)  # another process
    for name, (length, interval) in HISTORY_RANGES.items():
        items = (await history.read(name)).items
        times = [sample.at for sample in items]
        assert all(later - earlier == interval for earlier, later in pairwise(times)), name
        expected = min(length, timedelta(days=3)) / interval
        assert expected - 2 <= len(items) <= expected + 2, name
    counted = await store.count_by(FLEET_HISTORY, ["interval"])
    counts = {values[0]: count for values, count, _ in counted}
    assert counts[300] <= 2 * 288 + 2
    assert counts[3600] <= 3 * 24 + 2


async def test_a_store_that_is_away_leaves_a_gap_only() -> None:
    store, history = await a_plane()
    recorder = FleetHistoryRecorder(history)
    await recorder.start()
    await asyncio.sleep(600)
    store.away = True
    await asyncio.sleep(1800)
    store.away = False
    await asyncio.sleep(600)
    await recorder.stop()
    times = [sample.at for sample in (await history.read("24h")).items]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) >= timedelta(minutes=30)
    assert gaps[-1] == timedelta(minutes=5)


@pytest.mark.parametrize(("hours", "kept"), [(47, 1), (49, 0)])
async def test_samples_expire(hours: int, kept: int) -> None:
    store, history = await a_plane()
    await history.record()
    await asyncio.sleep(hours * 3600)
    assert await history.remove_expired() == 1 - kept
    assert len((await store.find(FLEET_HISTORY)).items) == 1 + kept, "the sample of the hour is kept for longer"
