"""Imported workers become useful: capacity from EC2, template and price, and lablets once a person adopts them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.cloud.simulated.faults import RefuseCalls
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import AdoptWorkerRequest, HoldRequest
from lcm.model.worker.status import WorkerOrigin
from lcm.model.worker.template import Capacity
from tests.support.records.placement import needs
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.full_platform import a_whole
from tests.support.virtual.running_workers import launched_by_hand

if TYPE_CHECKING:
    from lcm.cloud.simulated.machine import Machine
    from lcm.model.worker.record import Worker

OURS = {"cml-managed": "true"}
REGION = "eu-west-1"
SCHEDULABLE = AdoptWorkerRequest(schedulable=True)


async def imported(fleet: Fleet, machine: Machine) -> Worker:
    async def found() -> bool:
        return any([worker.instance_id == machine.id async for worker in fleet.people.workers.list()])

    await fleet.until(found, "imported", within=900)
    [worker] = [worker async for worker in fleet.people.workers.list() if worker.instance_id == machine.id]
    assert worker.origin is WorkerOrigin.IMPORTED
    return worker


async def test_an_import_has_the_capacity_of_its_type_and_the_template_and_price_of_its_type_or_tag() -> None:
    """discovery.md#import."""
    async with a_fleet() as fleet:
        by_type = launched_by_hand(fleet, "by-type", OURS, instance_type="t3.large")
        by_tag = launched_by_hand(fleet, "by-tag", {**OURS, "template_name": "medium"}, instance_type="m5.2xlarge")
        neither = launched_by_hand(fleet, "neither", OURS, instance_type="c7a.large")
        await fleet.start()
        first, second, third = [await imported(fleet, machine) for machine in (by_type, by_tag, neither)]
        assert (first.template_name, first.cost_per_hour_usd) == ("large", 0.0832)
        assert first.capacity == Capacity(cpu_cores=2, memory_gb=8, storage_gb=200, max_nodes=30)
        assert (second.template_name, second.cost_per_hour_usd) == ("medium", 0.0416)
        assert second.capacity == Capacity(cpu_cores=8, memory_gb=32, storage_gb=100, max_nodes=15)
        assert (third.template_name, third.cost_per_hour_usd, third.capacity) == (None, None, None)
        assert (third.instance_cpu_cores, third.instance_memory_gb) == (2, 4)
        assert (await fleet.people.fleet.summary()).workers_without_price == 1
        assert not any(worker.is_adopted or worker.idle_detection_enabled for worker in (first, second, third))


async def test_a_sick_description_of_types_stops_no_import_and_is_asked_for_again() -> None:
    """discovery.md#import: unknown is said to be unknown, until EC2 says it."""
    async with a_fleet() as fleet:
        machine = launched_by_hand(fleet, "found", OURS, instance_type="m5.2xlarge")
        fleet.world.inject_fault(REGION, RefuseCalls("DescribeInstanceTypes", "UnauthorizedOperation", times=2))
        await fleet.start()
        worker = await imported(fleet, machine)
        assert worker.instance_cpu_cores is None

        async def complete() -> bool:
            return (await fleet.worker(worker.id)).instance_cpu_cores == 8

        await fleet.until(complete, "complete", within=1200)
        assert "import_completed" in await fleet.audits(worker.id)
        calls = fleet.calls("DescribeInstanceTypes")
        await asyncio.sleep(900)
        assert fleet.calls("DescribeInstanceTypes") == calls, "a complete import asks no more"


async def takes_lablets(fleet: Fleet, worker_id: str) -> bool:
    """What instructors see of a worker (teams.md#roles-in-a-team)."""
    name = (await fleet.worker(worker_id)).name
    return next(iter([each.ready async for each in fleet.people.teams.worker_readiness() if each.name == name]))


async def test_an_adopted_worker_takes_lablets_before_a_paid_one_is_launched() -> None:
    """discovery.md#adopting: not before, and then first."""
    async with a_whole() as whole:
        await whole.define("tiny", needs(cpu=0.25, memory=0.5, storage=2, nodes=1, license=False))
        machine = launched_by_hand(whole.fleet, "found", OURS, instance_type="t3.large")
        worker = await imported(whole.fleet, machine)
        before = await whole.running("tiny")
        assert before.worker_id != worker.id, "nobody has adopted it"
        assert await takes_lablets(whole.fleet, worker.id) is False
        adopted = await whole.fleet.people.workers.adopt(worker.id, SCHEDULABLE)
        assert adopted.adopted_at is not None
        assert before.worker_id is not None
        assert await takes_lablets(whole.fleet, before.worker_id) is True
        await whole.fleet.people.workers.hold(before.worker_id, HoldRequest(reason="so that it takes no other"))
        assert await takes_lablets(whole.fleet, before.worker_id) is False
        launched = whole.fleet.calls("RunInstances")
        made = await whole.make("tiny", aws_region=REGION)
        placed = await whole.until_status(made, LabletStatus.RUNNING, within=900)
        assert whole.fleet.calls("RunInstances") == launched
        assert placed.worker_id == worker.id
        await whole.fleet.people.workers.adopt(worker.id, AdoptWorkerRequest(schedulable=False))
        assert (await whole.fleet.worker(worker.id)).schedulable is False
