"""The life of a lablet on a real control plane and simulated CML servers, from SCHEDULED to its end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.core import clock
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.lablet_platform import NOT_READY, TOPOLOGY, Labbing, a_labbing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def labbing() -> AsyncIterator[Labbing]:
    async with a_labbing() as labbing:
        yield labbing


async def test_a_lab_is_made_started_published_and_removed(labbing: Labbing) -> None:
    """SPEC §10: imports the topology, starts it, waits until it has converged, publishes the node addresses."""
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    (lab,) = labbing.servers.labs()
    assert lab.plan.title.endswith(f"[lcm:{lablet.id}.1]")
    assert lab.plan.title.startswith(lablet.name[:10])
    assert {node.state for node in lab.nodes.values()} == {"BOOTED"}
    assert [node.plan.details["tags"] for node in lab.nodes.values() if node.plan.label == "host"] == [
        [f"serial:{lablet.ports['CONSOLE']}"]
    ]
    assert (lablet.lab_id, lablet.instance_id) == (lab.id, worker.instance_id)
    assert {endpoint.node: endpoint.addresses for endpoint in lablet.endpoints} == {
        "host": ("192.168.254.10",),
        "sw": (),
    }
    await labbing.people.lablets.terminate(lablet.id)
    lablet = await labbing.until_status(lablet, LabletStatus.TERMINATED, within=120)
    assert labbing.servers.labs() == []
    assert labbing.servers.imports() == 1
    assert (await labbing.control.internal.worker(worker.id)).allocation.lablets == 0
    assert await labbing.steps(lablet) == [
        "PENDING_SCHEDULING",
        "SCHEDULED",
        "INSTANTIATING",
        "RUNNING",
        "STOPPING",
        "TERMINATED",
    ]


async def test_its_time_ends_it(labbing: Labbing) -> None:
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker, time_to_live_minutes=10.0)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert lablet.running_since is not None
    await asyncio.sleep(595)
    assert (await labbing.get(lablet)).status is LabletStatus.RUNNING
    lablet = await labbing.until_status(lablet, LabletStatus.EXPIRED, within=60)
    assert labbing.servers.labs() == []
    assert "STOPPING" in await labbing.steps(lablet)


async def test_its_last_hour_ends_it_wherever_it_is(labbing: Labbing) -> None:
    """Also one that never came up, and one that was never begun."""
    worker = await labbing.worker()
    await labbing.people.definitions.create(
        CreateDefinitionRequest(
            name="slow",
            version="1",
            topology=TOPOLOGY.replace("alpine", "cat8000v"),
            requirements=LabletRequirements(license=False, ports=("CONSOLE",)),
        )
    )
    ends_at = clock.now() + timedelta(seconds=100)
    made = await labbing.people.lablets.create(CreateLabletRequest(definition="slow", ends_at=ends_at))
    lablet = await labbing.place(made, worker)
    silent = await labbing.worker("beta", "192.0.2.8")
    waiting = await labbing.lablet(silent, ends_at=ends_at)
    await labbing.report(silent, WorkerStatus.RUNNING, conditions=labbing.cml(*NOT_READY))
    await labbing.start()
    await asyncio.sleep(95)
    assert (await labbing.get(lablet)).status is LabletStatus.INSTANTIATING
    await labbing.until_status(lablet, LabletStatus.EXPIRED, within=60)
    assert "RUNNING" not in await labbing.steps(lablet)
    await labbing.until_status(waiting, LabletStatus.EXPIRED, within=10)


async def test_addresses_that_come_later_are_published_later(labbing: Labbing) -> None:
    """And written only when they change."""
    worker = await labbing.worker()
    await labbing.start()
    labbing.servers.silent = True
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert [endpoint.addresses for endpoint in lablet.endpoints] == [(), ()]
    labbing.servers.silent = False
    await asyncio.sleep(15)
    told = await labbing.get(lablet)
    assert [endpoint.addresses for endpoint in told.endpoints] == [("192.168.254.10",), ()]
    await asyncio.sleep(3600)
    assert (await labbing.get(lablet)).version == told.version


async def test_what_runs_is_asked_for_seldom(labbing: Labbing) -> None:
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await asyncio.sleep(400)
    before = len(labbing.servers.asked)
    await asyncio.sleep(3600)
    looks = [line for line in labbing.servers.asked[before:] if line.endswith("/layer3_addresses")]
    assert 50 <= len(looks) <= 61, "once a minute"


async def test_fifty_lablets_on_one_worker(labbing: Labbing) -> None:
    worker = await labbing.worker()
    await labbing.people.definitions.create(
        CreateDefinitionRequest(
            name="light",
            version="1",
            topology=TOPOLOGY,
            requirements=LabletRequirements(
                license=False, nodes=0, cpu_cores=0.0, memory_gb=0.0, storage_gb=0.0, ports=("CONSOLE",)
            ),
        )
    )
    await labbing.start()
    made = [await labbing.people.lablets.create(CreateLabletRequest(definition="light")) for _ in range(50)]
    lablets = [await labbing.place(each, worker) for each in made]
    for lablet in lablets:
        await labbing.until_status(lablet, LabletStatus.RUNNING, within=300)
    assert labbing.servers.imports() == 50
    assert labbing.servers.markers() == sorted(f"{lablet.id}.1" for lablet in lablets)
    assert len({(await labbing.get(lablet)).ports["CONSOLE"] for lablet in lablets}) == 50
    for lablet in lablets:
        await labbing.people.lablets.terminate(lablet.id)
    for lablet in lablets:
        await labbing.until_status(lablet, LabletStatus.TERMINATED, within=300)
    assert labbing.servers.labs() == []
