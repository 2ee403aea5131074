"""Failures on CML: no response, rejections, users who change our labs, stray labs, and holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cml.client.labs import title_with_marker
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.controllers.lablet.deps import LabletPolicy
from lcm.model.lablet.record import CreateDefinitionRequest, LabletRequirements
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.requests import HoldRequest
from tests.support.virtual.lablet_platform import TOPOLOGY, LabletPlatform, start_lablet_platform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cml.simulator.state.labs import Lab
    from lcm.cml.simulator.state.world import World

API = "/api/v0"
HERE = "192.0.2.7"


@pytest.fixture
async def platform() -> AsyncIterator[LabletPlatform]:
    async with start_lablet_platform() as platform:
        yield platform


def somebodys(world: World, title: str) -> Lab:
    """A lab that a user created, with any title."""
    return world.start_user_lab("anna", TOPOLOGY, title)


def remove(world: World, lab: Lab) -> None:
    """A user deletes a lab."""
    del world.labs._labs[lab.id]


async def test_a_silent_cml_only_delays(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    platform.servers.down.add(HERE)
    await platform.start()
    lablet = await platform.lablet(worker)
    await asyncio.sleep(300)
    lablet = await platform.get(lablet)
    assert lablet.status is LabletStatus.INSTANTIATING
    assert "cannot be queried" in lablet.message
    platform.servers.down.clear()
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=180)
    assert lablet.message == ""
    platform.servers.down.add(HERE)
    await asyncio.sleep(300)
    lablet = await platform.get(lablet)
    assert lablet.status is LabletStatus.RUNNING, "unknown is not gone"
    assert "cannot be queried" in lablet.message
    await platform.people.lablets.terminate(lablet.id)
    await asyncio.sleep(300)
    assert (await platform.get(lablet)).status is LabletStatus.STOPPING
    platform.servers.down.clear()
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=180)
    assert platform.servers.labs() == []


async def test_a_topology_that_cml_refuses_fails_at_once(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    platform.world(worker).faults.add(Fault(FaultKind.STATUS, f"{API}/import", status=400))
    await platform.start()
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.FAILED, within=30)
    assert "CML rejected the topology" in (lablet.ending_reason or "")
    assert [line for line in platform.servers.requests if line.endswith("POST /api/v0/import")] == [
        f"{HERE} POST {API}/import"
    ]
    assert (await platform.control.internal.worker(worker.id)).allocation.lablets == 0


async def test_a_lab_that_does_not_come_up_fails_and_is_removed() -> None:
    async with start_lablet_platform(policy=LabletPolicy(start_timeout=120.0)) as platform:
        worker = await platform.worker()
        platform.world(worker).faults.add(Fault(FaultKind.STATUS, f"{API}/labs/", method="PUT", status=400, count=20))
        await platform.start()
        lablet = await platform.lablet(worker)
        await asyncio.sleep(100)
        assert "CML cannot start its lab" in (await platform.get(lablet)).message
        lablet = await platform.until_status(lablet, LabletStatus.FAILED, within=300)
        assert "not up within 120 s" in (lablet.ending_reason or "")
        assert platform.servers.labs() == []


async def test_a_lab_that_does_not_go_is_called_stuck_and_tried_further() -> None:
    async with start_lablet_platform(policy=LabletPolicy(stop_timeout=120.0)) as platform:
        worker = await platform.worker()
        await platform.start()
        lablet = await platform.lablet(worker)
        await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
        fault = Fault(FaultKind.STATUS, f"{API}/labs/", method="DELETE", status=400)
        platform.world(worker).faults.add(fault)
        await platform.people.lablets.terminate(lablet.id)
        await asyncio.sleep(400)
        lablet = await platform.get(lablet)
        assert lablet.status is LabletStatus.STOPPING
        assert lablet.message.startswith("Stuck: ")
        assert platform.registries["one"].get_sample_value("lcm_lablets_stuck") == 1
        platform.world(worker).faults.clear()
        await platform.until_status(lablet, LabletStatus.TERMINATED, within=120)
        assert platform.servers.labs() == []


@pytest.mark.parametrize("policy", LostWorkerPolicy)
async def test_a_lab_that_a_user_deletes_counts_as_lost(platform: LabletPlatform, policy: LostWorkerPolicy) -> None:
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker, lost_worker_policy=policy)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    remove(platform.world(worker), platform.servers.labs()[0])
    becomes = LabletStatus.FAILED if policy is LostWorkerPolicy.FAIL else LabletStatus.PENDING_SCHEDULING
    lablet = await platform.until_status(lablet, becomes, within=120)
    entry = [each async for each in platform.people.lablets.history(lablet.id)][-1]
    assert "its lab was deleted" in entry.reason


async def test_one_response_is_not_enough_to_give_up_a_lab(platform: LabletPlatform) -> None:
    """Unknown is not gone: a 404 for a lab that is still listed decides nothing."""
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    for _ in range(3):
        platform.world(worker).faults.add(
            Fault(FaultKind.STATUS, f"{API}/labs/{lablet.lab_id}", method="GET", status=404, count=1)
        )
        await asyncio.sleep(90)
    assert platform.world(worker).faults.all == []
    assert (await platform.get(lablet)).status is LabletStatus.RUNNING
    assert platform.servers.imports() == 1


async def test_a_copy_of_our_lab_is_reported_and_not_touched(platform: LabletPlatform) -> None:
    platform.sweep_interval = 60.0
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    copy = somebodys(platform.world(worker), title_with_marker("mine now", f"{lablet.id}.1"))
    await asyncio.sleep(300)
    assert await platform.audits(worker.id) == ["labs_not_recorded"]
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=120)
    await asyncio.sleep(600)
    assert [lab.id for lab in platform.servers.labs()] == [copy.id], "also when nothing of ours is left"


async def test_a_copy_is_not_taken_for_ours_while_ours_is_unknown(platform: LabletPlatform) -> None:
    """The older lab is ours; the other one is not deleted with it."""
    worker = await platform.worker()
    await platform.start("one")
    await platform.until(lambda: platform.controllers["one"].is_leader, "one leads")
    platform.lives["one"].die("after", 1)
    lablet = await platform.lablet(worker)
    await platform.until(lambda: platform.lives["one"].dead, "dead", within=60)
    (first,) = platform.servers.labs()
    await asyncio.sleep(3)
    copy = somebodys(platform.world(worker), first.plan.title)
    await platform.people.lablets.terminate(lablet.id)
    await platform.start("two")
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=300)
    await asyncio.sleep(600)
    assert [lab.id for lab in platform.servers.labs()] == [copy.id]


async def test_labs_of_others_are_reported_once_and_never_touched(platform: LabletPlatform) -> None:
    """Issue 8: labs found on CML that belong to no lablet are reported, never deleted."""
    platform.sweep_interval = 60.0
    worker = await platform.worker()
    world = platform.world(worker)
    plain = somebodys(world, "Evening exercise")
    foreign = somebodys(world, title_with_marker("theirs", "l-0123456789ab.1"))
    strange = somebodys(world, title_with_marker("strange", "whatever"))
    controller = await platform.start()
    await asyncio.sleep(2000)
    assert {lab.id for lab in platform.servers.labs()} == {plain.id, foreign.id, strange.id}
    assert {lab.state for lab in platform.servers.labs()} == {"STARTED"}
    assert sorted(await platform.audits(worker.id)) == ["labs_of_unknown_lablets", "labs_without_marker"]
    assert controller.strays.counts() == {
        "labs_without_marker": 1,
        "labs_of_unknown_lablets": 2,
        "labs_not_recorded": 0,
        "labs_left_behind": 0,
    }
    assert controller.counters.sweeps_count == pytest.approx(2000 / 65, abs=4)
    text = platform.registries["one"].get_sample_value("lcm_stray_labs", {"kind": "labs_of_unknown_lablets"})
    assert text == 2


async def test_a_marker_from_the_future_is_not_judged(platform: LabletPlatform) -> None:
    """A control plane that was set back to an older backup must not delete what it does not know."""
    platform.sweep_interval = 60.0
    worker = await platform.worker()
    lablet = await platform.lablet()
    kept = somebodys(platform.world(worker), title_with_marker("later", f"{lablet.id}.7"))
    await platform.start()
    await asyncio.sleep(600)
    assert [lab.id for lab in platform.servers.labs()] == [kept.id]


@pytest.mark.parametrize("whose", ["worker", "fleet"])
async def test_a_hold_lets_no_lab_be_changed(platform: LabletPlatform, whose: str) -> None:
    """worker-lifecycle.md#hold: hold stops cloud and CML changes."""
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    hold = HoldRequest(reason="maintenance")
    if whose == "worker":
        await platform.people.workers.hold(worker.id, hold)
    else:
        await platform.people.fleet.hold(hold)
    await platform.people.lablets.terminate(lablet.id)
    await asyncio.sleep(600)
    lablet = await platform.get(lablet)
    assert lablet.status is LabletStatus.RUNNING
    assert lablet.message == "on hold by admin: maintenance"
    assert [lab.state for lab in platform.servers.labs()] == ["STARTED"]
    if whose == "worker":
        await platform.people.workers.release(worker.id)
    else:
        await platform.people.fleet.release()
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=120)


async def test_an_account_that_cml_refuses_is_read_again(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    world = platform.world(worker)
    known = world.sessions.accounts["admin"]
    known.password = "another"
    await platform.start()
    lablet = await platform.lablet(worker)
    await asyncio.sleep(60)
    assert "rejected" in (await platform.get(lablet)).message
    known.password = "simulated"
    await platform.until_status(lablet, LabletStatus.RUNNING, within=300)


async def test_a_slow_cml_with_many_lablets_does_not_delay_the_lablets_of_others(platform: LabletPlatform) -> None:
    """controllers.md#work-queue: the passes of one worker's lablets take only a part of the slots."""
    sick, well = await platform.worker("sick", HERE), await platform.worker("well", "192.0.2.8")
    small = LabletRequirements(license=False, cpu_cores=0.1, memory_gb=0.1, storage_gb=0.1, nodes=2, ports=("CONSOLE",))
    definition = CreateDefinitionRequest(name="exercise", version="2", topology=TOPOLOGY, requirements=small)
    await platform.people.definitions.create(definition)
    await platform.start()
    for _ in range(12):
        await platform.lablet(sick)
    running = LabletStatus.RUNNING

    async def all_run() -> bool:
        return all([lablet.status is running async for lablet in platform.people.lablets.list()])

    await platform.until(all_run, "all run", within=900)
    platform.world(sick).faults.add(Fault(FaultKind.SLOW, seconds=29.0))
    await asyncio.sleep(300)
    for _ in range(4):  # each meets other passes of the sick one
        lablet = await platform.until_status(await platform.lablet(well), running, within=40)
        await platform.people.lablets.terminate(lablet.id)
        await platform.until_status(lablet, LabletStatus.TERMINATED, within=40)
        await asyncio.sleep(17)
