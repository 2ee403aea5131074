"""The fleet summary with many concurrent requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.service import FleetService
from lcm.control_plane.records.kinds import ALL_KINDS, WORKERS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import a_worker
from tests.support.virtual.control_plane import SYSTEM

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Kind
    from lcm.model.worker.record import Worker


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


async def test_the_instance_of_a_failed_or_terminating_worker_is_in_the_cost() -> None:
    """worker-lifecycle.md#failed: every instance that costs money counts."""
    _, unit_of_work, fleet = await a_fleet()
    for number, status in enumerate((WorkerStatus.FAILED, WorkerStatus.TERMINATING, WorkerStatus.STOPPED)):
        facts = {"id": f"w-{number}", "name": f"n{number}", "instance_id": f"i-{number}", "cost_per_hour_usd": 0.5}
        await add(unit_of_work, a_worker(status=status, **facts))
    await add(unit_of_work, a_worker(id="w-9", status=WorkerStatus.FAILED, instance_id=None, cost_per_hour_usd=0.5))
    assert (await fleet.summary()).cost_per_hour_usd == 1.0
