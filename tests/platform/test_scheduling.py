"""Lablets on an empty fleet: the scheduler requests workers, they are launched, and all lablets are placed."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from lcm.cloud.simulated.faults import LackCapacity
from lcm.cml.types import CMLActivityEvent
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.controllers.worker.deps import Policy
from lcm.coordination.memory.client import MemoryCoordination
from lcm.core import clock
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.http.in_process import InProcessTransport
from lcm.model.access import Role
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, Lablet, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.packing import first_fit_decreasing
from tests.support.records.placement import needs
from tests.support.virtual.fleet import Fleet, MortalWire, a_fleet
from tests.support.virtual.running_workers import vanish
from tests.support.virtual.scheduling import TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SCHEDULED = LabletStatus.SCHEDULED
SMALL = needs(cpu=0.25, memory=0.5, storage=2, nodes=1, license=False)
WIDE = needs(cpu=1, memory=3, storage=10, nodes=6, license=False)


@asynccontextmanager
async def scheduling(fleet: Fleet, name: str = "scheduler") -> AsyncIterator[SchedulerHostedService]:
    """A scheduler beside the worker controller."""
    wire = fleet.wires[name] = MortalWire(InProcessTransport(fleet.plane.app))
    scheduler = SchedulerHostedService(
        MemoryCoordination(fleet.server),
        LeaderElectionConfig(election_key_prefix="/lcm", service_name="resource-scheduler", instance_id=name),
        WatchConfig(prefix="/instances/"),
        ReconciliationConfig(),
        fleet.connect(Role.CONTROLLER, wire),
        SchedulerConfig(),
        registry=CollectorRegistry(),
    )
    await scheduler.start()
    yield scheduler
    await scheduler.stop()


async def define(fleet: Fleet, name: str, requirements: LabletRequirements) -> None:
    body = CreateDefinitionRequest(name=name, version="1", topology=TOPOLOGY, requirements=requirements)
    await fleet.people.definitions.create(body)


async def make(fleet: Fleet, definition: str, count: int, **body: Any) -> list[Lablet]:
    return [await fleet.people.lablets.create(CreateLabletRequest(definition=definition, **body)) for _ in range(count)]


async def lablets(fleet: Fleet) -> list[Lablet]:
    page = await fleet.plane.services.context.store.find(LABLETS, limit=1000)
    return [Lablet.model_validate_json(item.body) for item in page.items]


async def workers(fleet: Fleet) -> list[Worker]:
    page = await fleet.plane.services.context.store.find(WORKERS, limit=1000)
    return [Worker.model_validate_json(item.body) for item in page.items]


async def all_placed(fleet: Fleet) -> bool:
    return all(lablet.status is SCHEDULED for lablet in await lablets(fleet))


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as fleet:
        await fleet.change_settings(scaling={"max_workers_per_region": 60})
        await fleet.start()
        yield fleet


async def test_fifty_lablets_on_an_empty_fleet(fleet: Fleet) -> None:
    """At most one worker more than first-fit-decreasing needs; each requested and launched once."""
    await define(fleet, "small", SMALL)
    await define(fleet, "wide", WIDE)
    async with scheduling(fleet) as scheduler:
        await asyncio.sleep(30)
        for _ in range(10):
            await make(fleet, "wide", 1)
            await make(fleet, "small", 4)
        await fleet.until(lambda: all_placed(fleet), "all have a worker", within=1800)
        machines = len(await workers(fleet))
        bound = first_fit_decreasing([WIDE] * 10 + [SMALL] * 40)
        assert machines <= bound + 1
        assert fleet.calls("RunInstances") == machines
        assert scheduler.counters.scale_up_accepted_count == machines
    for worker in await workers(fleet):
        assert worker.ready
        mine = [each.requirements for each in await lablets(fleet) if each.worker_id == worker.id]
        assert worker.allocation.lablets == len(mine) > 0, "no worker was launched for nothing"
        assert worker.capacity is not None
        assert sum(each.memory_gb for each in mine) == worker.allocation.memory_gb <= worker.capacity.memory_gb
        assert sum(each.nodes for each in mine) == worker.allocation.nodes <= worker.capacity.max_nodes


async def test_a_paused_worker_is_resumed_and_used(fleet: Fleet) -> None:
    await define(fleet, "small", SMALL)
    paused = await fleet.running("paused")
    fleet.cml_of(paused).events = (CMLActivityEvent("start_lab", clock.now(), "somebody"),)
    await fleet.change_settings(idle={"worker_idle_timeout_minutes": 10, "worker_auto_pause_snooze_minutes": 0})
    paused = await fleet.until_status(paused.id, WorkerStatus.STOPPED, within=3 * 3600)
    assert paused.paused_by_policy
    async with scheduling(fleet):
        await make(fleet, "small", 1)
        await fleet.until(lambda: all_placed(fleet), "it has a worker", within=900)
    [lablet] = await lablets(fleet)
    assert lablet.worker_id == paused.id
    assert fleet.calls("RunInstances") == 1


async def test_a_worker_whose_instance_vanished_is_not_chosen(fleet: Fleet) -> None:
    """Drift or discovery has found it: the record shows that, and the record decides."""
    await define(fleet, "small", SMALL)
    gone = await fleet.running("gone")
    vanish(fleet, gone)
    await fleet.until_status(gone.id, WorkerStatus.TERMINATED, within=3600)
    async with scheduling(fleet):
        await make(fleet, "small", 1)
        await fleet.until(lambda: all_placed(fleet), "it has a worker", within=900)
    [lablet] = await lablets(fleet)
    assert lablet.worker_id != gone.id


async def test_a_worker_whose_instance_is_replaced_is_chosen_only_when_it_is_ready_again(fleet: Fleet) -> None:
    """It stays on the list all the time, and was ready when the scheduler last read it."""
    await define(fleet, "small", SMALL)
    replaced = await fleet.running("replaced", lost_instance_policy="replace")
    async with scheduling(fleet):
        await make(fleet, "small", 1)
        await fleet.until(lambda: all_placed(fleet), "the first has a worker", within=60)
        vanish(fleet, replaced)
        await fleet.until_status(replaced.id, WorkerStatus.PENDING, within=3600)
        await make(fleet, "small", 1)
        await fleet.until(lambda: all_placed(fleet), "the second has one", within=900)
        worker = await fleet.worker(replaced.id)
    assert {lablet.worker_id for lablet in await lablets(fleet)} == {replaced.id}
    assert (worker.ready, worker.instance_id != replaced.instance_id) == (True, True)


async def test_a_drained_worker_takes_no_more(fleet: Fleet) -> None:
    await define(fleet, "small", SMALL)
    drained = await fleet.running("drained")
    await fleet.people.workers.drain(drained.id)
    async with scheduling(fleet):
        await make(fleet, "small", 1)
        await fleet.until(lambda: all_placed(fleet), "it has a worker", within=900)
    [lablet] = await lablets(fleet)
    assert lablet.worker_id != drained.id
    assert (await fleet.worker(drained.id)).desired_status is DesiredStatus.STOPPED


async def test_a_scheduler_that_dies_at_any_write_leaves_no_mess(fleet: Fleet) -> None:
    """Killed before or after each of its writes in turn; the next one finishes: one worker and one place each."""
    await define(fleet, "wide", WIDE)
    deaths = [
        ("before", "/workers/scale-up"),
        ("after", "/workers/scale-up"),
        ("before", "/status"),
        ("after", "/status"),
        ("before", "/lablets/schedule"),
        ("after", "/lablets/schedule"),
    ]
    await asyncio.sleep(30)
    await make(fleet, "wide", 3)
    for number, (when, request) in enumerate(deaths):
        async with scheduling(fleet, f"mortal-{number}") as scheduler:
            wire = fleet.wires[f"mortal-{number}"]
            wire.die(when, request)
            await fleet.until(partial(getattr, wire, "dead"), f"death {when} {request}", within=900)
            assert scheduler.counters.rounds_count
    async with scheduling(fleet, "last"):
        await fleet.until(lambda: all_placed(fleet), "all have a worker", within=900)
    assert fleet.calls("RunInstances") == len(await workers(fleet)) == first_fit_decreasing([WIDE] * 3)
    assert Counter(worker.allocation.lablets for worker in await workers(fleet)) == Counter(
        Counter(lablet.worker_id for lablet in await lablets(fleet)).values()
    )


async def test_capacity_that_does_not_come_is_not_waited_for(fleet: Fleet) -> None:
    """worker-lifecycle.md#waiting: past CAPACITY_WAIT_LIMIT it is no capacity on its way; another template is tried."""
    await define(fleet, "small", SMALL)
    async with scheduling(fleet):
        await asyncio.sleep(30)
        fleet.world.inject_fault("eu-west-1", LackCapacity(48 * 3600.0, "t3.micro"))
        [lablet] = await make(fleet, "small", 1, aws_region="eu-west-1")
        await asyncio.sleep(600)
        [worker] = await workers(fleet)
        assert (worker.template_name, worker.status) == ("micro", WorkerStatus.PENDING)
        await fleet.until(partial(all_placed, fleet), "it runs on another kind of worker", within=3600)
        [placed] = await lablets(fleet)
        chosen = next(each for each in await workers(fleet) if each.id == placed.worker_id)
        assert chosen.template_name == "small"
        assert placed.id == lablet.id


async def test_who_waits_for_capacity_of_any_kind_is_told_so(fleet: Fleet) -> None:
    fleet.policy = Policy(capacity_wait_limit=120.0)
    await fleet.controllers["one"].stop()
    await fleet.start("two")
    await define(fleet, "small", SMALL)
    async with scheduling(fleet):
        await asyncio.sleep(30)
        fleet.world.inject_fault("eu-west-1", LackCapacity(48 * 3600.0))
        await make(fleet, "small", 1, aws_region="eu-west-1")
        await asyncio.sleep(2400)
        [lablet] = await lablets(fleet)
        assert lablet.placement is not None
        assert "another worker would wait as well" in lablet.placement.reason
        assert "no capacity" in lablet.placement.reason
        launched = await workers(fleet)
        assert sorted(Counter(each.template_name for each in launched).values()) == [1] * len(launched), "one of each"
