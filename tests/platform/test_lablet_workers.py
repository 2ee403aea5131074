"""Workers that vanish, stop, drain or fall silent under their lablets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.model.access import Role
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.lablet_platform import NOT_READY, READY, Labbing, a_labbing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

FAILS = LostWorkerPolicy.FAIL


@pytest.fixture
async def labbing() -> AsyncIterator[Labbing]:
    async with a_labbing() as labbing:
        yield labbing


async def terminated(labbing: Labbing, worker: Worker) -> None:
    """EC2 has lost the machine."""
    labbing.servers.down.add("192.0.2.7")
    await labbing.report(worker, WorkerStatus.TERMINATED, terminated_by="discovery-gc")


async def unwanted(labbing: Labbing, worker: Worker) -> None:
    """A person does not want the worker any more, and does not wait for its lablets."""
    await labbing.people.workers.terminate(worker.id)


async def replaced(labbing: Labbing, worker: Worker) -> None:
    """The machine is gone and another one takes its place, with an empty CML."""
    await labbing.report(worker, WorkerStatus.PENDING, instance_id=None, conditions=labbing.cml(*NOT_READY))
    await labbing.report(worker, WorkerStatus.PROVISIONING, instance_id="i-another")
    await labbing.report(worker, WorkerStatus.STARTING)
    labbing.servers.add("192.0.2.9")
    labbing.servers.down.add("192.0.2.7")
    ready = labbing.cml(*READY)
    await labbing.report(worker, WorkerStatus.RUNNING, public_ip="192.0.2.9", conditions=ready)


WAYS = [terminated, unwanted, replaced]


async def brought_to(labbing: Labbing, worker: Worker, status: LabletStatus, policy: LostWorkerPolicy) -> Lablet:
    """A lablet in a status, in which it stays until the controller is there again."""
    if status is LabletStatus.SCHEDULED:
        return await labbing.lablet(worker, lost_worker_policy=policy)
    controller = await labbing.start("before")
    lablet = await labbing.lablet(worker, lost_worker_policy=policy)
    if status is LabletStatus.INSTANTIATING:
        lablet = await labbing.until_status(lablet, status, within=60)
        await labbing.until(lambda: len(labbing.servers.labs()) == 1, "imported", within=60)
    else:
        lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    if status is LabletStatus.STOPPING:
        await labbing.people.lablets.terminate(lablet.id)
        lablet = await labbing.until_status(lablet, status, within=60)
    await controller.stop()
    lablet = await labbing.get(lablet)
    assert lablet.status is status
    return lablet


@pytest.mark.parametrize("policy", LostWorkerPolicy)
@pytest.mark.parametrize("status", [LabletStatus.SCHEDULED, LabletStatus.INSTANTIATING, LabletStatus.RUNNING])
@pytest.mark.parametrize("way", WAYS)
async def test_a_lost_worker_lets_its_lablets_go_by_their_policy(
    labbing: Labbing, way: Callable[[Labbing, Worker], Awaitable[None]], status: LabletStatus, policy: LostWorkerPolicy
) -> None:
    """Issue 8: lablets on it end in a defined state."""
    worker = await labbing.worker()
    lablet = await brought_to(labbing, worker, status, policy)
    await way(labbing, worker)
    await labbing.start()
    if way is replaced and status is LabletStatus.SCHEDULED:
        await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)  # nothing of it was on the old machine
        return
    becomes = LabletStatus.FAILED if policy is FAILS else LabletStatus.PENDING_SCHEDULING
    lablet = await labbing.until_status(lablet, becomes, within=60)
    assert (lablet.lab_id, lablet.ports, lablet.endpoints) == (None, {}, ())
    assert (await labbing.control.internal.worker(worker.id)).allocation.lablets == 0


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_to_end_has_ended_with_its_worker(
    labbing: Labbing, way: Callable[[Labbing, Worker], Awaitable[None]]
) -> None:
    worker = await labbing.worker()
    lablet = await brought_to(labbing, worker, LabletStatus.STOPPING, LostWorkerPolicy.RESCHEDULE)
    await way(labbing, worker)
    await labbing.start()
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=60)


async def test_a_worker_that_is_not_ready_is_not_dialled(labbing: Labbing) -> None:
    """SPEC §10: it waits for the worker controller's verdict."""
    worker = await labbing.worker()
    lablet = await labbing.lablet(worker)
    await labbing.report(worker, WorkerStatus.RUNNING, conditions=labbing.cml(*NOT_READY))
    await labbing.start()
    await asyncio.sleep(600)
    assert labbing.servers.asked == []
    lablet = await labbing.get(lablet)
    assert lablet.status is LabletStatus.SCHEDULED
    assert lablet.message == "waits for worker alpha: its CML is not ready"
    await labbing.report(worker, WorkerStatus.RUNNING, conditions=labbing.cml(*READY))
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert lablet.message == ""


async def test_nobody_is_dialled_before_the_workers_were_verified(labbing: Labbing) -> None:
    """SPEC §10, ADR-043: nothing until the present worker-controller leader has reported its startup sweep done."""
    worker = await labbing.worker()
    lablet = await labbing.lablet(worker)
    await labbing.plane.ask(
        "POST",
        "/api/internal/leadership",
        role=Role.CONTROLLER,
        headers={"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "4"},
        json={"term": 4},
    )
    await labbing.start()
    await asyncio.sleep(300)
    assert labbing.servers.asked == []
    assert (await labbing.get(lablet)).status is LabletStatus.SCHEDULED
    await labbing.plane.ask(
        "POST",
        "/api/internal/leadership",
        role=Role.CONTROLLER,
        headers={"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "4"},
        json={"term": 4, "startup_sweep_done": True},
    )
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)


@pytest.mark.parametrize("policy", LostWorkerPolicy)
async def test_a_silent_worker_is_waited_for_only_so_long(labbing: Labbing, policy: LostWorkerPolicy) -> None:
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker, lost_worker_policy=policy)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await labbing.report(worker, WorkerStatus.RUNNING, conditions=labbing.cml(*NOT_READY))
    await asyncio.sleep(850)
    assert (await labbing.get(lablet)).status is LabletStatus.RUNNING
    becomes = LabletStatus.FAILED if policy is FAILS else LabletStatus.PENDING_SCHEDULING
    await labbing.until_status(lablet, becomes, within=120)
    assert len(labbing.servers.labs()) == 1, "nobody could remove it"
    # Once the worker is back, what was left there is removed, whatever became of the lablet.
    await labbing.report(worker, WorkerStatus.RUNNING, conditions=labbing.cml(*READY))
    await labbing.until(lambda: labbing.servers.labs() == [], "removed", within=120)
    assert "lab_removed" in await labbing.audits(worker.id)


async def test_the_wait_goes_on_counting_under_the_next_leader(labbing: Labbing) -> None:
    worker = await labbing.worker()
    first = await labbing.start("one")
    lablet = await labbing.lablet(worker)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await labbing.report(worker, WorkerStatus.RUNNING, conditions=labbing.cml(*NOT_READY))
    await asyncio.sleep(800)
    await first.stop()
    await labbing.start("two")
    await labbing.until_status(lablet, LabletStatus.PENDING_SCHEDULING, within=160)


async def test_a_lab_comes_back_with_its_machine_and_a_persons_stop_is_not_undone(labbing: Labbing) -> None:
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await labbing.restart(worker)
    (lab,) = labbing.servers.labs()
    assert lab.state == "STOPPED"
    await labbing.until(lambda: labbing.servers.labs()[0].state == "STARTED", "started again", within=120)
    await asyncio.sleep(120)
    lablet = await labbing.get(lablet)
    assert (lablet.status, lablet.message) == (LabletStatus.RUNNING, "")
    assert labbing.servers.imports() == 1
    world = labbing.world(worker)
    world.labs.stop(lab, lab.owner)
    await asyncio.sleep(600)
    assert labbing.servers.labs()[0].state == "STOPPED"
    lablet = await labbing.get(lablet)
    assert lablet.status is LabletStatus.RUNNING
    assert "somebody has stopped its lab" in lablet.message


async def test_a_machine_that_is_started_anew_while_it_boots_goes_on(labbing: Labbing) -> None:
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    await labbing.until(lambda: [lab.state for lab in labbing.servers.labs()] == ["STARTED"], "started", within=60)
    await labbing.restart(worker)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=180)
    assert labbing.servers.imports() == 1


async def test_a_lablet_can_end_on_a_worker_that_drains(labbing: Labbing) -> None:
    """SPEC §1.6: a drain waits until no lablet is assigned, so lablets must be able to leave."""
    worker = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(worker)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await labbing.people.workers.drain(worker.id)
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=120)
    assert labbing.servers.labs() == []


async def test_a_lablet_that_was_not_begun_leaves_a_worker_that_drains_at_once(labbing: Labbing) -> None:
    worker = await labbing.worker()
    lablet = await labbing.lablet(worker, lost_worker_policy=FAILS)
    await labbing.people.workers.drain(worker.id)
    await labbing.start()
    lablet = await labbing.until_status(lablet, LabletStatus.PENDING_SCHEDULING, within=60)
    assert labbing.servers.asked == []
    other = await labbing.worker("beta", "192.0.2.8")
    await labbing.place(lablet, other)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert lablet.placement_attempt == 2
    assert labbing.servers.markers() == [f"{lablet.id}.2"]


async def test_what_moved_on_is_removed_where_it_was(labbing: Labbing) -> None:
    """The lab of an older placement is ours: it is removed once its worker is ready again."""
    alpha = await labbing.worker()
    await labbing.start()
    lablet = await labbing.lablet(alpha)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await labbing.report(alpha, WorkerStatus.RUNNING, conditions=labbing.cml(*NOT_READY))
    lablet = await labbing.until_status(lablet, LabletStatus.PENDING_SCHEDULING, within=1000)
    beta = await labbing.worker("beta", "192.0.2.8")
    lablet = await labbing.until_status(await labbing.place(lablet, beta), LabletStatus.RUNNING, within=120)
    assert labbing.servers.markers() == [f"{lablet.id}.1", f"{lablet.id}.2"]
    await labbing.report(alpha, WorkerStatus.RUNNING, conditions=labbing.cml(*READY))
    await labbing.until(lambda: labbing.servers.markers() == [f"{lablet.id}.2"], "removed", within=120)
    assert (await labbing.get(lablet)).status is LabletStatus.RUNNING
