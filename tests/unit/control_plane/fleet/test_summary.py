"""The fleet summary with many concurrent requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.service import FleetService
from lcm.control_plane.records.backfill import backfill_fields
from lcm.control_plane.records.kinds import ALL_KINDS, WORKERS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import Capacity
from tests.support.records.workers import a_worker
from tests.support.virtual.control_plane import SYSTEM

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Kind


COUNTS_A_LOOK = 2
"""Workers by status and region, and those that need attention."""


class SlowCounts(MemoryStore):
    """A store that takes a second to return counts, and records how often it counted workers."""

    counts = 0

    async def count_by(self, kind: Kind, *what: Any, **how: Any) -> Any:
        self.counts += kind is WORKERS
        counted = await super().count_by(kind, *what, **how)
        await asyncio.sleep(1)
        return counted


async def a_fleet() -> tuple[SlowCounts, UnitOfWork, FleetService]:
    store = SlowCounts()
    await store.open(ALL_KINDS)
    unit_of_work = UnitOfWork(store)
    plane = ControlPlaneContext(store, unit_of_work, SecretBox([parse_key(generate_key(), "test")]), ("eu-west-1",))
    return store, unit_of_work, FleetService(plane)


async def add(unit_of_work: UnitOfWork, worker: Worker) -> None:
    async def attempt(tx: Transaction) -> None:
        tx.save_worker(worker, "created")

    await unit_of_work.run(SYSTEM, attempt)


async def test_one_read_serves_all_concurrent_requests() -> None:
    store, unit_of_work, fleet = await a_fleet()
    await add(unit_of_work, a_worker())
    summaries = await asyncio.gather(*(fleet.summary() for _ in range(50)))
    assert {summary.workers for summary in summaries} == {1}
    assert store.counts == COUNTS_A_LOOK


async def test_a_request_after_a_change_sees_it_while_an_older_read_is_in_progress() -> None:
    store, unit_of_work, fleet = await a_fleet()
    before = asyncio.create_task(fleet.summary())
    await asyncio.sleep(0.5)
    await add(unit_of_work, a_worker())
    after = [asyncio.create_task(fleet.summary()) for _ in range(5)]
    assert (await before).workers == 0
    assert [(await summary).workers for summary in after] == [1] * 5
    assert store.counts == 2 * COUNTS_A_LOOK


async def test_every_instance_that_costs_money_is_in_the_cost_and_unknown_prices_are_counted() -> None:
    """worker-lifecycle.md#failed: FAILED and TERMINATING instances too, and the disks of stopped ones."""
    _, unit_of_work, fleet = await a_fleet()
    disk = Capacity(cpu_cores=2, memory_gb=4, storage_gb=730, max_nodes=5)  # 0.08 dollars an hour
    for number, status in enumerate((WorkerStatus.FAILED, WorkerStatus.TERMINATING, WorkerStatus.STOPPED)):
        facts = {"id": f"w-{number}", "name": f"n{number}", "instance_id": f"i-{number}", "cost_per_hour_usd": 0.5}
        await add(unit_of_work, a_worker(status=status, capacity=disk, **facts))
    await add(unit_of_work, a_worker(id="w-8", status=WorkerStatus.FAILED, instance_id=None, cost_per_hour_usd=0.5))
    await add(unit_of_work, a_worker(id="w-9", name="n9", status=WorkerStatus.RUNNING, instance_id="i-9"))
    summary = await fleet.summary()
    assert (summary.cost_per_hour_usd, summary.workers_without_price) == (1.24, 1)
    assert summary.saved_per_hour_usd == 0.5


async def test_another_price_of_disk_space_applies_to_all_workers_after_the_start() -> None:
    store, unit_of_work, fleet = await a_fleet()
    disk = Capacity(cpu_cores=2, memory_gb=4, storage_gb=730, max_nodes=5)
    facts = {"status": WorkerStatus.STOPPED, "capacity": disk, "cost_per_hour_usd": 0.5}
    for number in range(3):
        facts |= {"id": f"w-{number}", "name": f"n{number}", "instance_id": f"i-{number}"}
        await add(unit_of_work, a_worker(**facts))
    assert (await fleet.summary()).cost_per_hour_usd == 0.24
    assert await backfill_fields(store, 0.2) == 3
    assert (await fleet.summary()).cost_per_hour_usd == 0.6
    stored = await store.get(WORKERS, "w-1")
    assert stored is not None
    worker = Worker.model_validate_json(stored.body)
    assert (worker.current_cost_per_hour_usd, worker.version) == (0.2, 1)
    assert await backfill_fields(store, 0.2) == 0
