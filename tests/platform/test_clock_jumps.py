"""A clock that jumps ends nothing: the whole platform on one host whose clock is set, in virtual time.

Reference: operations.md#clocks-differ. The simulation sets the clocks of single processes.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.worker.record import Worker
    from tests.support.virtual.time import VirtualClock

AHEAD, BACK = 7500.0, -3600.0


@pytest.fixture
def host(virtual_clock: VirtualClock) -> VirtualClock:
    """The clock of the host."""
    return virtual_clock


@pytest.fixture
async def fleet(host: VirtualClock) -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as fleet:
        await fleet.start()
        yield fleet


def work(fleet: Fleet, worker: Worker, host: VirtualClock) -> None:
    """A user starts a lab; the clock of the CML server is right."""
    server = fleet.cml_of(worker)
    at = host.now() - timedelta(seconds=host.jumped)
    server.events = (*server.events, CMLActivityEvent("start_lab", at, "somebody"))


@pytest.mark.parametrize("jump", [AHEAD, BACK])
async def test_no_worker_in_use_is_paused_by_a_jump(fleet: Fleet, host: VirtualClock, jump: float) -> None:
    workers = [await fleet.running(f"w{number}") for number in range(3)]
    for worker in workers:
        work(fleet, worker, host)
    await asyncio.sleep(600)
    host.jumped = jump
    for _ in range(5):
        await asyncio.sleep(600)
        for worker in workers:
            work(fleet, worker, host)
    host.jumped = 0.0  # the clock is set right again
    for _ in range(9):
        await asyncio.sleep(600)
        for worker in workers:
            work(fleet, worker, host)
    assert all([(await fleet.worker(worker.id)).ready for worker in workers])
    assert fleet.calls("StopInstances") == 0
    assert not clock.problem()


@pytest.mark.parametrize("jump", [AHEAD, BACK])
async def test_an_idle_worker_is_paused_after_the_clock_has_settled(
    fleet: Fleet, host: VirtualClock, jump: float
) -> None:
    worker = await fleet.running()
    work(fleet, worker, host)
    await asyncio.sleep(60)
    host.jumped = jump
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=4 * 3600)


@pytest.mark.parametrize("back", [False, True])
async def test_no_launch_fails_by_a_jump(fleet: Fleet, host: VirtualClock, back: bool) -> None:
    """Neither a jump ahead, nor the end of a jump back: the record was written while the clock was an hour behind."""
    host.jumped = BACK if back else 0.0
    worker = await fleet.create()
    await fleet.until_status(worker.id, WorkerStatus.PROVISIONING)
    host.jumped = 0.0 if back else AHEAD
    await fleet.until_ready(worker.id)
    assert "FAILED" not in await fleet.steps(worker.id)


async def test_a_jump_is_reported(fleet: Fleet, host: VirtualClock) -> None:
    await fleet.running()
    host.jumped = AHEAD
    await asyncio.sleep(120)
    health = await fleet.people.fleet.system()
    assert "the clock of this host before it changed: 7500 s behind" in health.plane.clock_problem


async def test_explanations_and_metrics_are_kept_while_the_clock_is_behind(fleet: Fleet, host: VirtualClock) -> None:
    """Finding 18: they were dropped until the clock had caught up."""
    worker = await fleet.running()
    work(fleet, worker, host)
    await asyncio.sleep(300)
    host.jumped = BACK
    await fleet.people.workers.stop(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED)
    await asyncio.sleep(60)
    explained = await fleet.people.workers.explain(worker.id)
    assert explained.decision is not None
    assert explained.decision.rule.startswith("stopped")
    await fleet.people.workers.start(worker.id)
    await fleet.until_ready(worker.id)
    await asyncio.sleep(300)
    latest = (await fleet.people.workers.metrics(worker.id))[-1].collected_at
    assert timedelta(0) <= host.now() - latest < timedelta(minutes=3)
