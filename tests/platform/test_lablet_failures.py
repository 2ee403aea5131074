"""What goes wrong on CML: silence, refusals, people who change our labs, labs that are nobody's, and holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cml.client.labs import title_with_marker
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.controllers.lablet.deps import LabletPolicy
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.requests import HoldRequest
from tests.support.virtual.lablet_platform import TOPOLOGY, Labbing, a_labbing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cml.simulator.state.labs import Lab
    from lcm.cml.simulator.state.world import World

API = "/api/v0"
HERE = "192.0.2.7"


@pytest.fixture
async def labbing() -> AsyncIterator[Labbing]:
    async with a_labbing() as labbing:
        yield labbing


def somebodys(world: World, title: str) -> Lab:
    """A lab that a person made, under a title of their choice."""
    return world.start_user_lab("anna", TOPOLOGY, title)


def remove(world: World, lab: Lab) -> None:
    """A person deletes a lab."""
    del world.labs._labs[lab.id]


async def test_a_silent_cml_only_delays(labbing: Labbing) -> None:
    worker = await labbing.worker()
    labbing.servers.down.add(HERE)
    await labbing.start()
    lablet = await labbing.lablet(worker)
    await asyncio.sleep(300)
    lablet = await labbing.get(lablet)
    assert lablet.status is LabletStatus.INSTANTIATING
    assert "cannot be asked" in lablet.message
    labbing.servers.down.clear()
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=180)
    assert lablet.message == ""
    labbing.servers.down.add(HERE)
    await asyncio.sleep(300)
    lablet = await labbing.get(lablet)
    assert lablet.status is LabletStatus.RUNNING, "unknown is not gone"
    assert "cannot be asked" in lablet.message
    await labbing.people.lablets.terminate(lablet.id)
    await asyncio.sleep(300)
    assert (await labbing.get(lablet)).status is LabletStatus.STOPPING
    labbing.servers.down.clear()
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=180)
    assert labbing.servers.labs() == []


async def test_a_topology_that_cml_refuses_fails_at_once(labbing: Labbing) -> None:
    worker = await labbing.worker()
    labbing.world(worker).faults.add(Fault(FaultKind.STATUS, f"{API}/import", status=400))
    await labbing.start()
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.FAILED, within=30)
    assert "CML refuses the topology" in (lablet.ending_reason or "")
    assert [line for line in labbing.servers.asked if line.endswith("POST /api/v0/import")] == [
        f"{HERE} POST {API}/import"
    ]
    assert (await labbing.control.internal.worker(worker.id)).allocation.lablets == 0


async def test_a_lab_that_does_not_come_up_fails_and_is_removed() -> None:
    async with a_labbing(policy=LabletPolicy(start_timeout=120.0)) as labbing:
        worker = await labbing.worker()
        labbing.world(worker).faults.add(Fault(FaultKind.STATUS, f"{API}/labs/", method="PUT", status=400, count=20))
        await labbing.start()
        lablet = await labbing.lablet(worker)
        await asyncio.sleep(100)
        assert "CML does not start its lab" in (await labbing.get(lablet)).message
        lablet = await labbing.until_status(lablet, LabletStatus.FAILED, within=300)
        assert "not up within 120 s" in (lablet.ending_reason or "")
        assert labbing.servers.labs() == []


async def test_a_lab_that_does_not_go_is_called_stuck_and_tried_further() -> None:
    async with a_labbing(policy=LabletPolicy(stop_timeout=120.0)) as labbing:
        worker = await labbing.worker()
        await labbing.start()
        lablet = await labbing.lablet(worker)
        await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
        fault = Fault(FaultKind.STATUS, f"{API}/labs/", method="DELETE", status=400)
        labbing.world(worker).faults.add(fault)
        await labbing.people.lablets.terminate(lablet.id)
        await asyncio.sleep(400)
        lablet = await labbing.get(lablet)
        assert lablet.status is LabletStatus.STOPPING
        assert lablet.message.startswith("Stuck: ")
        assert labbing.registries["one"].get_sample_value("lcm_lablets_stuck") == 1
        labbing.world(worker).faults.clear()
        await labbing.until_status(lablet, LabletStatus.TERMINATED, within=120)
        assert labbing.servers.labs() == []


@pytest.mark.parametrize("policy", LostWorkerPolicy)
async def test_a_lab_that_somebody_deletes_is_as_good_as_lost(labbing: Labbing, policy: LostWorkerPolicy) -> None:
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker, lost_worker_policy=policy)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    remove(labbing.world(worker), labbing.servers.labs()[0])
    becomes = LabletStatus.FAILED if policy is LostWorkerPolicy.FAIL else LabletStatus.PENDING_SCHEDULING
    lablet = await labbing.until_status(lablet, becomes, within=120)
    entry = [each async for each in labbing.people.lablets.history(lablet.id)][-1]
    assert "deleted its lab" in entry.reason


async def test_one_answer_is_not_enough_to_give_a_lab_up(labbing: Labbing) -> None:
    """Unknown is not gone: a 404 for a lab that the list still shows decides nothing."""
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    for _ in range(3):
        labbing.world(worker).faults.add(
            Fault(FaultKind.STATUS, f"{API}/labs/{lablet.lab_id}", method="GET", status=404, count=1)
        )
        await asyncio.sleep(90)
    assert labbing.world(worker).faults.all == []
    assert (await labbing.get(lablet)).status is LabletStatus.RUNNING
    assert labbing.servers.imports() == 1


async def test_a_copy_of_our_lab_is_told_of_and_left_alone(labbing: Labbing) -> None:
    labbing.sweep_interval = 60.0
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    copy = somebodys(labbing.world(worker), title_with_marker("mine now", f"{lablet.id}.1"))
    await asyncio.sleep(300)
    assert await labbing.audits(worker.id) == ["labs_not_recorded"]
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=120)
    await asyncio.sleep(600)
    assert [lab.id for lab in labbing.servers.labs()] == [copy.id], "also when nothing of ours is left"


async def test_a_copy_is_not_taken_for_ours_while_ours_is_unknown(labbing: Labbing) -> None:
    """Ours is the older one; the other is not deleted with it."""
    worker = await labbing.worker()
    await labbing.start("one")
    await labbing.until(lambda: labbing.controllers["one"].is_leader, "one leads")
    labbing.lives["one"].die("after", 1)
    lablet = await labbing.lablet(worker)
    await labbing.until(lambda: labbing.lives["one"].dead, "dead", within=60)
    (first,) = labbing.servers.labs()
    await asyncio.sleep(3)
    copy = somebodys(labbing.world(worker), first.plan.title)
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.start("two")
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=300)
    await asyncio.sleep(600)
    assert [lab.id for lab in labbing.servers.labs()] == [copy.id]


async def test_labs_of_others_are_told_of_once_and_never_touched(labbing: Labbing) -> None:
    """Issue 8: labs found on CML that belong to no lablet are reported, never deleted."""
    labbing.sweep_interval = 60.0
    worker = await labbing.worker()
    world = labbing.world(worker)
    plain = somebodys(world, "Evening exercise")
    foreign = somebodys(world, title_with_marker("theirs", "l-0123456789ab.1"))
    strange = somebodys(world, title_with_marker("strange", "whatever"))
    controller = await labbing.start()
    await asyncio.sleep(2000)
    assert {lab.id for lab in labbing.servers.labs()} == {plain.id, foreign.id, strange.id}
    assert {lab.state for lab in labbing.servers.labs()} == {"STARTED"}
    assert sorted(await labbing.audits(worker.id)) == ["labs_of_unknown_lablets", "labs_without_marker"]
    assert controller.strays.counts() == {
        "labs_without_marker": 1,
        "labs_of_unknown_lablets": 2,
        "labs_not_recorded": 0,
        "labs_left_behind": 0,
    }
    assert controller.counters.sweeps_count == pytest.approx(2000 / 65, abs=4)
    text = labbing.registries["one"].get_sample_value("lcm_stray_labs", {"kind": "labs_of_unknown_lablets"})
    assert text == 2


async def test_a_marker_from_the_future_is_not_judged(labbing: Labbing) -> None:
    """A control plane that was set back to an older backup must not delete what it has forgotten."""
    labbing.sweep_interval = 60.0
    worker = await labbing.worker()
    lablet = await labbing.lablet()
    kept = somebodys(labbing.world(worker), title_with_marker("later", f"{lablet.id}.7"))
    await labbing.start()
    await asyncio.sleep(600)
    assert [lab.id for lab in labbing.servers.labs()] == [kept.id]


@pytest.mark.parametrize("whose", ["worker", "fleet"])
async def test_a_hold_lets_no_lab_be_changed(labbing: Labbing, whose: str) -> None:
    """SPEC §1.8: hold stops cloud and CML changes."""
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    hold = HoldRequest(reason="maintenance")
    if whose == "worker":
        await labbing.people.workers.hold(worker.id, hold)
    else:
        await labbing.people.fleet.hold(hold)
    await labbing.people.lablets.terminate(lablet.id)
    await asyncio.sleep(600)
    lablet = await labbing.get(lablet)
    assert lablet.status is LabletStatus.RUNNING
    assert lablet.message == "on hold by admin: maintenance"
    assert [lab.state for lab in labbing.servers.labs()] == ["STARTED"]
    if whose == "worker":
        await labbing.people.workers.release(worker.id)
    else:
        await labbing.people.fleet.release()
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=120)


async def test_an_account_that_cml_refuses_is_asked_for_anew(labbing: Labbing) -> None:
    worker = await labbing.worker()
    world = labbing.world(worker)
    known = world.sessions.accounts["admin"]
    known.password = "another"
    await labbing.start()
    lablet = await labbing.lablet(worker)
    await asyncio.sleep(60)
    assert "refused" in (await labbing.get(lablet)).message
    known.password = "simulated"
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=300)
