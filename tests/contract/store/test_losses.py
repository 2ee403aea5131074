"""What the breaker remembers is in every store, and survives a new leader and a new control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.fleet.breaker import close_breakers, count_loss
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
from lcm.control_plane.workers.status_writes import apply_status
from lcm.model.audit import Actor, ActorKind
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.worker.requests import WorkerStatusUpdate
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from lcm.control_plane.errors import ProblemError
    from lcm.control_plane.store.port import Store
    from tests.contract.store.conftest import Bed

ACTOR = Actor(kind=ActorKind.CONTROLLER, name="worker-controller")
REGION = "eu-west-1"


async def lose(store: Store, number: int) -> bool:
    """A controller writes that the instance of a worker is gone. Returns whether it may."""

    async def attempt(tx: Transaction) -> ProblemError | None:
        worker = await tx.worker(f"w-{number}")
        write = WorkerStatusUpdate(
            status=WorkerStatus.TERMINATED, version=worker.version, reason="gone", instance_absent=True
        )
        after = apply_status(worker, write, DriftPolicy.RESTORE, tx.now)
        refusal = await count_loss(tx, worker, write)
        if refusal is None:
            tx.save_worker(after, "status_reported", "gone")
        return refusal

    return await UnitOfWork(store).run(ACTOR, attempt) is None


async def test_the_breaker_remembers_losses_and_what_was_accepted(bed: Bed) -> None:
    """worker-lifecycle.md#breaker: the memory outlives leaders and control planes."""
    store = await bed.open(ALL_KINDS)

    async def create(tx: Transaction) -> None:
        for number in range(10):
            facts = {"id": f"w-{number}", "name": f"n{number}", "instance_id": f"i-{number}", "aws_region": REGION}
            tx.save_worker(a_worker(status=WorkerStatus.RUNNING, **facts), "created")

    await UnitOfWork(store).run(ACTOR, create)
    assert await lose(store, 0)
    store = await bed.open(ALL_KINDS)
    assert await lose(store, 1)
    store = await bed.open(ALL_KINDS)
    assert not await lose(store, 2)
    store = await bed.open(ALL_KINDS)
    assert not await lose(store, 3)

    async def reset(tx: Transaction) -> None:
        close_breakers(tx, await tx.fleet(), [REGION], "breaker_reset", REGION)

    await UnitOfWork(store).run(ACTOR, reset)
    store = await bed.open(ALL_KINDS)
    # Both were accepted, and nothing of before counts: of the six that are left one more may be lost.
    assert [await lose(store, number) for number in (2, 3, 4, 5, 6)] == [True, True, True, False, False]
