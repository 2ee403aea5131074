"""Whatever two schedulers, the lablet controller, the worker controller and people do in whatever order:
no worker is overcommitted, and its allocation is the sum of its lablets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import LABLETS
from lcm.control_plane.records.unit_of_work import Leader
from lcm.core import clock
from lcm.model.lablet.placement import with_lablet
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import IllegalLabletTransitionError
from lcm.model.worker.template import Allocation
from tests.support.records.lablet_records import LabletDesk, LaggingStore, a_ready_worker
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lcm.control_plane.records.unit_of_work import Transaction

WORKERS = ("w-1", "w-2")
LABLETS_MADE = 8
NEEDS: tuple[dict[str, Any], ...] = (
    {"cpu_cores": 0.1, "memory_gb": 0.7, "ports": ("A", "B")},
    {"cpu_cores": 0.7, "memory_gb": 0.1, "ports": ("A",)},
    {"cpu_cores": 1.3, "memory_gb": 2.9},
    {"cpu_cores": 0.3, "nodes": 7, "storage_gb": 33.3},
)
SCHEDULERS = (Leader("resource-scheduler", 3), Leader("resource-scheduler", 4))
STATUSES = (
    "PENDING_SCHEDULING",
    "INSTANTIATING",
    "RUNNING",
    "STOPPING",
    "TERMINATED",
    "FAILED",
    "EXPIRED",
)


class Bustle:
    """Two workers, some lablets, and concurrent changes of them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.desk = LabletDesk(LaggingStore(self._chance))
        self.ids: list[str] = []
        self.placed = 0

    async def run(self, rounds: list[list[tuple[str, tuple[Any, ...]]]]) -> None:
        """All steps of a round run at once; after each round the stored state is checked."""
        await self.desk.open(*(a_ready_worker(id=name, name=name, instance_id=f"i-{name}") for name in WORKERS))
        for number, needs in enumerate(NEEDS):
            await self.desk.define(version=str(number), **needs)
        for number in range(LABLETS_MADE):
            made = await self.desk.make(f"ospf@{number % len(NEEDS)}")
            self.ids.append(made.id)
        for happenings in rounds:
            await asyncio.gather(*(self._happen(name, arguments) for name, arguments in happenings))
            await self.check()

    async def _happen(self, name: str, arguments: tuple[Any, ...]) -> None:
        with contextlib.suppress(ProblemError, IllegalLabletTransitionError):
            await getattr(self, name)(*arguments)

    async def schedule(self, scheduler: int, pairs: list[tuple[int, str]]) -> None:
        known = [(await self.desk.lablet(self.ids[lablet]), worker) for lablet, worker in pairs]
        results = await self.desk.schedule(*known, leader=SCHEDULERS[scheduler])
        self.placed += sum(result.placed for result in results)

    async def report(self, lablet: int, status: str) -> None:
        await self.desk.report(await self.desk.lablet(self.ids[lablet]), status)

    async def release(self, lablet: int, status: str) -> None:
        await self.desk.release(await self.desk.lablet(self.ids[lablet]), status)

    async def end(self, lablet: int) -> None:
        await self.desk.end(await self.desk.lablet(self.ids[lablet]))

    async def worker(self, worker_id: str, desired: str) -> None:
        async def attempt(tx: Transaction) -> None:
            worker = await tx.worker(worker_id)
            fields = {"desired_status": desired, "version": worker.version + 1}
            tx.save_worker(type(worker)(**{**dict(worker), **fields}), "wanted")

        await self.desk.unit_of_work.run(SCHEDULERS[0].actor, attempt)

    async def check(self) -> None:
        page = await self.desk.store.find(LABLETS)
        lablets = [Lablet.model_validate_json(item.body) for item in page.items]
        for name in WORKERS:
            worker = await self.desk.worker(name)
            there = [lablet for lablet in lablets if lablet.assigned and lablet.worker_id == name]
            taken = Allocation()
            for lablet in there:
                assert set(lablet.ports) == set(lablet.requirements.ports)
                assert not set(lablet.ports.values()) & set(taken.ports), "a port was given twice"
                taken = with_lablet(taken, lablet.requirements, lablet.ports.values())
            assert worker.allocation == taken
            assert worker.capacity is not None
            assert taken.cpu_cores <= worker.capacity.cpu_cores
            assert taken.memory_gb <= worker.capacity.memory_gb
            assert taken.storage_gb <= worker.capacity.storage_gb
            assert taken.nodes <= worker.capacity.max_nodes


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualTimeLoop()
    try:
        with clock.use(VirtualClock(loop)):
            loop.run_until_complete(work())
    finally:
        loop.close()


a_lablet, a_worker = st.integers(0, LABLETS_MADE - 1), st.sampled_from(WORKERS)
placing = st.tuples(
    st.just("schedule"),
    st.tuples(st.integers(0, 1), st.lists(st.tuples(a_lablet, a_worker), min_size=1, max_size=6)),
)
happening = st.one_of(
    placing,
    placing,  # most of what happens
    st.tuples(st.just("report"), st.tuples(a_lablet, st.sampled_from(STATUSES))),
    st.tuples(st.just("release"), st.tuples(a_lablet, st.sampled_from(STATUSES))),
    st.tuples(st.just("end"), st.tuples(a_lablet)),
    st.tuples(st.just("worker"), st.tuples(a_worker, st.sampled_from(["RUNNING", "STOPPED"]))),
)
rounds_of_happenings = st.lists(st.lists(happening, min_size=1, max_size=6), min_size=1, max_size=5)


@given(st.integers(0, 2**32), rounds_of_happenings)
@settings(max_examples=80, deadline=None)
def test_workers_are_never_overcommitted_and_allocations_match_lablets(
    seed: int, rounds: list[list[tuple[str, tuple[Any, ...]]]]
) -> None:
    in_virtual_time(lambda: Bustle(seed).run(rounds))


def test_the_scenario_does_place_lablets() -> None:
    """Otherwise the property could hold only because nothing was ever placed."""
    bustle = Bustle(7)
    everyone = [(lablet, WORKERS[lablet % 2]) for lablet in range(LABLETS_MADE)]
    in_virtual_time(lambda: bustle.run([[("schedule", (0, everyone)), ("schedule", (1, everyone))]]))
    assert 2 <= bustle.placed <= LABLETS_MADE
