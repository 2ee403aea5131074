"""Workers with lablets: automation does not stop them, a drain waits, and what they offer is recorded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.client.base import Leader
from lcm.cml.types import CMLActivityEvent
from lcm.controllers.worker.deps import Policy
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.lablet.record import (
    CreateDefinitionRequest,
    CreateLabletRequest,
    LabletRequirements,
    Placement,
    PlacementBatch,
    PlacementRequest,
    ReleaseLabletRequest,
)
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

SCHEDULER = Leader("resource-scheduler", 3)
TOPOLOGY = "lab: {version: 0.2.2, title: t}\nnodes: [{id: n0, label: a, node_definition: alpine, x: 0, y: 0}]\n"


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(policy=Policy(drain_timeout=600.0), report_interval=600.0) as fleet:
        yield fleet


async def a_lablet_on(fleet: Fleet, worker: Worker) -> Lablet:
    """A lablet that the scheduler has placed on the worker."""
    needs = LabletRequirements(license=False, cpu_cores=0.5, memory_gb=0.5)
    await fleet.people.definitions.create(
        CreateDefinitionRequest(name="exercise", version="1", topology=TOPOLOGY, requirements=needs)
    )
    lablet = await fleet.people.lablets.create(CreateLabletRequest(definition="exercise"))
    internal = fleet.connect(Role.CONTROLLER).internal
    await internal.announce_leadership(SCHEDULER)
    placement = Placement(at=clock.now(), worker_id=worker.id, reason="the only one")
    write = PlacementRequest(lablet_id=lablet.id, version=lablet.version, worker_id=worker.id, placement=placement)
    (done,) = await internal.schedule(SCHEDULER, PlacementBatch(items=(write,)))
    assert done.placed, done.detail
    return await internal.lablet(lablet.id)


async def quiet_worker(fleet: Fleet) -> Worker:
    """A ready worker whose CML reports no running node."""
    worker = await fleet.running()
    server = fleet.cml_of(worker)
    server.stats = replace(server.stats, running_nodes=0)
    server.events = (CMLActivityEvent("start_lab", clock.now()),)
    return await fleet.worker(worker.id)


async def test_a_drain_waits_until_no_lablet_is_assigned(fleet: Fleet) -> None:
    """worker-lifecycle.md#terminating: waits until no node runs and no lablet is assigned."""
    await fleet.start()
    worker = await quiet_worker(fleet)
    lablet = await a_lablet_on(fleet, worker)
    await fleet.people.workers.drain(worker.id)
    await asyncio.sleep(300)
    drained = await fleet.worker(worker.id)
    assert drained.status is WorkerStatus.DRAINING
    assert "1 lablet is assigned to the worker" in [condition.message for condition in drained.conditions]
    release = ReleaseLabletRequest(status=LabletStatus.TERMINATED, version=lablet.version, reason="over")
    await fleet.connect(Role.CONTROLLER).internal.release_lablet(SCHEDULER, lablet.id, release)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=200)


async def test_a_drain_waits_no_longer_than_it_may(fleet: Fleet) -> None:
    """worker-lifecycle.md#terminating: at most DRAIN_TIMEOUT."""
    await fleet.start()
    worker = await quiet_worker(fleet)
    await a_lablet_on(fleet, worker)
    await fleet.people.workers.drain(worker.id)
    await asyncio.sleep(590)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.DRAINING
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=200)


async def test_an_idle_worker_with_a_lablet_is_neither_paused_nor_drained(fleet: Fleet) -> None:
    """idle-and-scaling.md: eligible only with no lablet assigned."""
    await fleet.start()
    worker = await quiet_worker(fleet)
    lablet = await a_lablet_on(fleet, worker)
    await fleet.change_settings(scaling={"scale_down_enabled": True}, idle={"idle_action": "drain"})
    await asyncio.sleep(5400)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING
    await fleet.change_settings(idle={"idle_action": "pause"})
    await asyncio.sleep(5400)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING
    release = ReleaseLabletRequest(status=LabletStatus.TERMINATED, version=lablet.version, reason="over")
    await fleet.connect(Role.CONTROLLER).internal.release_lablet(SCHEDULER, lablet.id, release)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=3600)


async def test_what_a_workers_cml_offers_is_on_the_record(fleet: Fleet) -> None:
    """lablets.md: placement filters by CML version range and node definitions."""
    await fleet.start()
    worker = await fleet.create()
    await fleet.until(lambda: bool(fleet.cml.by_machine), "it boots")
    server = next(iter(fleet.cml.by_machine.values()))
    server.definitions = ("iosv", "alpine")
    worker = await fleet.until_ready(worker.id)
    assert (worker.node_definitions, worker.cml_version) == (("alpine", "iosv"), "2.9.1+build.7")
    await asyncio.sleep(1800)
    assert server.calls["definitions"] == 1
    server.version, server.definitions = "2.10.0+build.1", ("alpine",)
    await asyncio.sleep(200)
    worker = await fleet.worker(worker.id)
    assert (worker.node_definitions, worker.cml_version) == (("alpine",), "2.10.0+build.1")
