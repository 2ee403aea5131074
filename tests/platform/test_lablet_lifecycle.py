"""The lifecycle of a lablet on a real control plane and simulated CML servers, from SCHEDULED to its end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.core import clock
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.lablet_platform import NOT_READY, TOPOLOGY, LabletPlatform, start_lablet_platform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def platform() -> AsyncIterator[LabletPlatform]:
    async with start_lablet_platform() as platform:
        yield platform


async def test_a_lab_is_made_started_published_and_removed(platform: LabletPlatform) -> None:
    """lablets.md: imports the topology, starts it, waits until it has converged, publishes the node addresses."""
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    (lab,) = platform.servers.labs()
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
    await platform.people.lablets.terminate(lablet.id)
    lablet = await platform.until_status(lablet, LabletStatus.TERMINATED, within=120)
    assert platform.servers.labs() == []
    assert platform.servers.imports() == 1
    assert (await platform.control.internal.worker(worker.id)).allocation.lablets == 0
    assert await platform.steps(lablet) == [
        "PENDING_SCHEDULING",
        "SCHEDULED",
        "INSTANTIATING",
        "RUNNING",
        "STOPPING",
        "TERMINATED",
    ]


async def test_its_time_ends_it(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker, time_to_live_minutes=10.0)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert lablet.running_since is not None
    await asyncio.sleep(595)
    assert (await platform.get(lablet)).status is LabletStatus.RUNNING
    lablet = await platform.until_status(lablet, LabletStatus.EXPIRED, within=60)
    assert platform.servers.labs() == []
    assert "STOPPING" in await platform.steps(lablet)


async def test_its_last_hour_ends_it_wherever_it_is(platform: LabletPlatform) -> None:
    """Also a lablet that never came up, and one that was never started."""
    worker = await platform.worker()
    await platform.people.definitions.create(
        CreateDefinitionRequest(
            name="slow",
            version="1",
            topology=TOPOLOGY.replace("alpine", "cat8000v"),
            requirements=LabletRequirements(license=False, ports=("CONSOLE",)),
        )
    )
    ends_at = clock.now() + timedelta(seconds=100)
    made = await platform.people.lablets.create(CreateLabletRequest(definition="slow", ends_at=ends_at))
    lablet = await platform.place(made, worker)
    silent = await platform.worker("beta", "192.0.2.8")
    waiting = await platform.lablet(silent, ends_at=ends_at)
    await platform.report(silent, WorkerStatus.RUNNING, conditions=platform.cml(*NOT_READY))
    await platform.start()
    await asyncio.sleep(95)
    assert (await platform.get(lablet)).status is LabletStatus.INSTANTIATING
    await platform.until_status(lablet, LabletStatus.EXPIRED, within=60)
    assert "RUNNING" not in await platform.steps(lablet)
    await platform.until_status(waiting, LabletStatus.EXPIRED, within=10)


async def test_addresses_that_come_later_are_published_later(platform: LabletPlatform) -> None:
    """They are written only when they change."""
    worker = await platform.worker()
    await platform.start()
    platform.servers.silent = True
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert [endpoint.addresses for endpoint in lablet.endpoints] == [(), ()]
    platform.servers.silent = False
    await asyncio.sleep(15)
    published = await platform.get(lablet)
    assert [endpoint.addresses for endpoint in published.endpoints] == [("192.168.254.10",), ()]
    await asyncio.sleep(3600)
    assert (await platform.get(lablet)).version == published.version


async def test_running_labs_are_queried_rarely(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await asyncio.sleep(400)
    before = len(platform.servers.requests)
    await asyncio.sleep(3600)
    queries = [line for line in platform.servers.requests[before:] if line.endswith("/layer3_addresses")]
    assert 50 <= len(queries) <= 61, "once a minute"


async def test_fifty_lablets_on_one_worker(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    await platform.people.definitions.create(
        CreateDefinitionRequest(
            name="light",
            version="1",
            topology=TOPOLOGY,
            requirements=LabletRequirements(
                license=False, nodes=0, cpu_cores=0.0, memory_gb=0.0, storage_gb=0.0, ports=("CONSOLE",)
            ),
        )
    )
    await platform.start()
    made = [await platform.people.lablets.create(CreateLabletRequest(definition="light")) for _ in range(50)]
    lablets = [await platform.place(each, worker) for each in made]
    for lablet in lablets:
        await platform.until_status(lablet, LabletStatus.RUNNING, within=300)
    assert platform.servers.imports() == 50
    assert platform.servers.markers() == sorted(f"{lablet.id}.1" for lablet in lablets)
    assert len({(await platform.get(lablet)).ports["CONSOLE"] for lablet in lablets}) == 50
    for lablet in lablets:
        await platform.people.lablets.terminate(lablet.id)
    for lablet in lablets:
        await platform.until_status(lablet, LabletStatus.TERMINATED, within=300)
    assert platform.servers.labs() == []
