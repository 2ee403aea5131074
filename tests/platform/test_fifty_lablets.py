"""Fifty lablets from an empty fleet and back: placed, run and ended, and the workers stopped again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.simulated.faults import ExternalAction
from lcm.cml.client.labs import marker_in_title
from lcm.controllers.worker.deps import Policy
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import Allocation
from tests.support.records.packing import first_fit_decreasing
from tests.support.records.placement import needs
from tests.support.virtual.full_platform import Whole, a_whole
from tests.support.virtual.running_workers import vanish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

SIZES = {
    "tiny": (20, needs(cpu=0.25, memory=0.5, storage=2, nodes=1, license=False)),
    "middle": (14, needs(cpu=0.5, memory=1.5, storage=8, nodes=2, license=False)),
    "wide": (10, needs(cpu=0.75, memory=3, storage=20, nodes=4, license=False)),
    "heavy": (6, needs(cpu=1, memory=6, storage=60, nodes=8, license=False)),
}
MIN_WORKERS = 2
DRAIN_TIMEOUT = 600.0
SHRINKING: dict[str, dict[str, Any]] = {
    "idle": {"worker_idle_timeout_minutes": 5, "worker_auto_pause_snooze_minutes": 0},
    "scaling": {"scale_down_enabled": True, "min_workers": MIN_WORKERS, "scale_down_cooldown_seconds": 60},
}


@pytest.fixture
async def whole() -> AsyncIterator[Whole]:
    async with a_whole(policy=Policy(drain_timeout=DRAIN_TIMEOUT), report_interval=600.0) as whole:
        for name, (_, requirements) in SIZES.items():
            await whole.define(name, requirements)
        yield whole


async def make_fifty(whole: Whole) -> None:
    """Mixed sizes: the large ones are neither first nor last. Every other one ends by itself."""
    left = {name: count for name, (count, _) in SIZES.items()}
    number = 0
    while any(left.values()):
        for name in [name for name, count in left.items() if count]:
            left[name] -= 1
            await whole.make(name, time_to_live_minutes=12 if number % 2 else None)
            number += 1
    assert number == 50


async def all_are(whole: Whole, *statuses: LabletStatus) -> bool:
    return all(lablet.status in statuses for lablet in await whole.lablets())


async def fewer_than(whole: Whole, count: int) -> bool:
    return await whole.serving() < count


@pytest.mark.timeout(600)
async def test_fifty_lablets_from_an_empty_fleet_and_back(whole: Whole) -> None:
    """At most one worker more than first-fit-decreasing needs; at the end MIN_WORKERS run.

    Reference: lablets.md, idle-and-scaling.md.
    """
    fleet = whole.fleet
    await fleet.change_settings(**SHRINKING)
    await make_fifty(whole)
    await whole.until(lambda: all_are(whole, LabletStatus.RUNNING), "all run")
    machines = len(await whole.workers())
    wanted = [requirements for count, requirements in SIZES.values() for _ in range(count)]
    assert machines <= first_fit_decreasing(wanted) + 1
    assert fleet.calls("RunInstances") == machines
    assert whole.scheduler.counters.scale_up_accepted_count == machines
    templates = Counter(worker.template_name for worker in await whole.workers())
    assert len(templates) > 1, "workers of several sizes"
    await whole.check_books()
    assert min(worker.allocation.lablets for worker in await whole.workers()) > 0, "none was launched for nothing"
    markers = Counter(marker_in_title(lab.plan.title) for lab in whole.servers.labs())
    assert markers == Counter(f"{lablet.id}.1" for lablet in await whole.lablets())

    await asyncio.sleep(420)
    assert await all_are(whole, LabletStatus.RUNNING)
    assert await whole.serving() == machines, "a worker with a lablet keeps running"
    for lablet in await whole.lablets():
        if lablet.time_to_live_minutes is None:
            await fleet.people.lablets.terminate(lablet.id)
    await whole.until(lambda: all_are(whole, LabletStatus.TERMINATED, LabletStatus.EXPIRED), "all have ended")
    ends = Counter((each.time_to_live_minutes is None, each.status) for each in await whole.lablets())
    assert ends == {(True, LabletStatus.TERMINATED): 25, (False, LabletStatus.EXPIRED): 25}
    await whole.check_books()
    assert whole.servers.labs() == []
    assert whole.servers.imports() == 50

    async def running(count: int) -> bool:
        statuses = Counter(worker.status for worker in await whole.workers())
        return statuses == {WorkerStatus.RUNNING: count, WorkerStatus.STOPPED: machines - count}

    await whole.until(lambda: fewer_than(whole, machines // 2), "some are paused")
    await fleet.change_settings(idle={"idle_action": "drain"})
    await whole.until(lambda: running(MIN_WORKERS), "only MIN_WORKERS run", within=4 * 3600)
    await asyncio.sleep(900)
    assert await running(MIN_WORKERS), "and stay running"
    assert fleet.calls("RunInstances") == machines
    actions = Counter([action for worker in await whole.workers() for action in await fleet.audits(worker.id)])
    assert actions["auto_paused"] + actions["drained"] == machines - MIN_WORKERS
    assert actions["auto_paused"] > 0 < actions["drained"]


# Workers that are lost


def terminated(whole: Whole, worker: Worker) -> None:
    """The instance is terminated outside LCM; EC2 reports that."""
    whole.fleet.disturb(ExternalAction.TERMINATE, worker)


def vanished(whole: Whole, worker: Worker) -> None:
    """EC2 no longer lists the instance."""
    vanish(whole.fleet, worker)


async def until_elsewhere(whole: Whole, lablet: Lablet, than: Worker) -> Worker:
    """Wait until the lablet runs on another worker; returns its id."""

    async def moved() -> bool:
        now = await whole.lablet(lablet.id)
        return now.status is LabletStatus.RUNNING and now.worker_id != than.id

    await whole.until(moved, f"{lablet.id} runs elsewhere")
    return await whole.worker_of(await whole.lablet(lablet.id))


@pytest.mark.parametrize("way", [terminated, vanished])
async def test_lablets_of_a_worker_whose_instance_is_gone(whole: Whole, way: Callable[[Whole, Worker], None]) -> None:
    """A lost worker is not chosen any more; its lablets run elsewhere or have failed, as requested."""
    moving = await whole.running("wide", lost_worker_policy="reschedule")
    lost = await whole.worker_of(moving)
    failing = await whole.running("tiny", lost_worker_policy="fail")
    staying = await whole.running("heavy")
    assert failing.worker_id == lost.id != staying.worker_id
    way(whole, lost)
    early = await whole.make("tiny")  # the loss may not be observed yet: it may be placed there, but does not stay
    await whole.fleet.until_status(lost.id, WorkerStatus.TERMINATED)
    late = [await whole.make("tiny") for _ in range(3)]
    for lablet in (moving, early, staying, *late):
        worker = await until_elsewhere(whole, lablet, lost)
        assert worker.ready
    for lablet in late:
        assert (await whole.lablet(lablet.id)).placement_attempt == 1, "it was never sent to the lost one"
    assert (await whole.lablet(moving.id)).placement_attempt == 2
    assert (await whole.lablet(staying.id)).placement_attempt == 1
    failing = await whole.until_status(failing, LabletStatus.FAILED, within=60)
    assert lost.name in [entry.reason async for entry in whole.fleet.people.lablets.history(failing.id)][-1]
    await whole.check_books()
    running = [f"{each.id}.{each.placement_attempt}" for each in await whole.lablets() if each.assigned]
    assert whole.servers.markers() == sorted(running)


# Workers that leave


async def test_a_drain_waits_for_the_end_of_a_lablet(whole: Whole) -> None:
    """worker-lifecycle.md#terminating, lablets.md: automation waits for lablets."""
    lablet = await whole.running("wide", time_to_live_minutes=8)
    worker = await whole.worker_of(lablet)
    people = whole.fleet.people
    await people.workers.drain(worker.id)
    late = await whole.make("tiny")
    await asyncio.sleep(300)
    assert (await whole.fleet.worker(worker.id)).status is WorkerStatus.DRAINING
    assert (await whole.lablet(lablet.id)).status is LabletStatus.RUNNING
    late = await whole.until_status(late, LabletStatus.RUNNING)
    assert late.worker_id != worker.id, "a draining worker takes no more lablets"
    await whole.until_status(lablet, LabletStatus.EXPIRED, within=300)
    await whole.fleet.until_status(worker.id, WorkerStatus.STOPPED, within=200)
    (ended,) = [entry.at async for entry in people.lablets.history(lablet.id) if entry.to_status == "EXPIRED"]
    (stopped,) = [entry.at async for entry in people.workers.history(worker.id) if entry.to_status == "STOPPING"]
    assert ended <= stopped, "its lab is removed before the worker stops"
    assert whole.servers.markers() == [f"{late.id}.1"]
    assert await whole.fleet.steps(worker.id) == [
        "PENDING", "PROVISIONING", "STARTING", "RUNNING", "DRAINING", "STOPPING", "STOPPED",
    ]  # fmt: skip


async def test_a_drain_waits_no_longer_than_it_may(whole: Whole) -> None:
    """worker-lifecycle.md#terminating: at most DRAIN_TIMEOUT; the lablet goes on elsewhere."""
    lablet = await whole.running("wide")
    worker = await whole.worker_of(lablet)
    began = asyncio.get_running_loop().time()
    await whole.fleet.people.workers.drain(worker.id)
    await asyncio.sleep(DRAIN_TIMEOUT - 10)
    assert (await whole.fleet.worker(worker.id)).status is WorkerStatus.DRAINING
    await whole.fleet.until_status(worker.id, WorkerStatus.STOPPED, within=200)
    assert asyncio.get_running_loop().time() - began > DRAIN_TIMEOUT
    await until_elsewhere(whole, lablet, worker)
    assert (await whole.fleet.worker(worker.id)).allocation == Allocation()


@pytest.mark.parametrize("action", ["pause", "drain"])
async def test_an_idle_worker_with_a_lablet_is_not_stopped(whole: Whole, action: str) -> None:
    """idle-and-scaling.md: eligible only with no lablet assigned. The one beside it, without one, is stopped."""
    await whole.fleet.change_settings(**SHRINKING)
    await whole.fleet.change_settings(idle={"idle_action": action}, scaling={"min_workers": 0})
    lablet = await whole.running("wide")
    worker = await whole.worker_of(lablet)
    other = await whole.fleet.running("without")
    await whole.fleet.until_status(other.id, WorkerStatus.STOPPED)
    await asyncio.sleep(3600)
    assert (await whole.lablet(lablet.id)).status is LabletStatus.RUNNING
    assert (await whole.fleet.steps(worker.id))[-1] == "RUNNING"
    assert "auto_paused" not in await whole.fleet.audits(worker.id)
    assert "scale_down_initiated" not in await whole.fleet.audits(worker.id)
    await whole.fleet.people.lablets.terminate(lablet.id)
    await whole.fleet.until_status(worker.id, WorkerStatus.STOPPED)
