"""Workers that vanish, stop, drain or fall silent under their lablets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.client.resources.internal import InternalApi
from lcm.control_plane.records.kinds import WORKERS
from lcm.model.access import Role
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.status import WorkerStatus
from tests.support.records.newer_version import upgrade
from tests.support.virtual.lablet_platform import NOT_READY, READY, LabletPlatform, start_lablet_platform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lcm.model.access import CmlCredentials
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

FAILS = LostWorkerPolicy.FAIL


@pytest.fixture
async def platform() -> AsyncIterator[LabletPlatform]:
    async with start_lablet_platform() as platform:
        yield platform


async def terminated(platform: LabletPlatform, worker: Worker) -> None:
    """EC2 has lost the instance."""
    platform.servers.down.add("192.0.2.7")
    await platform.report(worker, WorkerStatus.TERMINATED, terminated_by="discovery-gc")


async def unwanted(platform: LabletPlatform, worker: Worker) -> None:
    """A person terminates the worker without waiting for its lablets."""
    await platform.people.workers.terminate(worker.id)


async def replaced(platform: LabletPlatform, worker: Worker) -> None:
    """The instance is gone and is replaced, with an empty CML."""
    await platform.report(worker, WorkerStatus.PENDING, instance_id=None, conditions=platform.cml(*NOT_READY))
    await platform.report(worker, WorkerStatus.PROVISIONING, instance_id="i-another")
    await platform.report(worker, WorkerStatus.STARTING)
    platform.servers.add("192.0.2.9")
    platform.servers.down.add("192.0.2.7")
    ready = platform.cml(*READY)
    await platform.report(worker, WorkerStatus.RUNNING, public_ip="192.0.2.9", conditions=ready)


WAYS = [terminated, unwanted, replaced]


async def brought_to(
    platform: LabletPlatform, worker: Worker, status: LabletStatus, policy: LostWorkerPolicy
) -> Lablet:
    """A lablet in a status, in which it stays until the controller is back."""
    if status is LabletStatus.SCHEDULED:
        return await platform.lablet(worker, lost_worker_policy=policy)
    controller = await platform.start("before")
    lablet = await platform.lablet(worker, lost_worker_policy=policy)
    if status is LabletStatus.INSTANTIATING:
        lablet = await platform.until_status(lablet, status, within=60)
        await platform.until(lambda: len(platform.servers.labs()) == 1, "imported", within=60)
    else:
        lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    if status is LabletStatus.STOPPING:
        await platform.people.lablets.terminate(lablet.id)
        lablet = await platform.until_status(lablet, status, within=60)
    await controller.stop()
    lablet = await platform.get(lablet)
    assert lablet.status is status
    return lablet


@pytest.mark.parametrize("policy", LostWorkerPolicy)
@pytest.mark.parametrize("status", [LabletStatus.SCHEDULED, LabletStatus.INSTANTIATING, LabletStatus.RUNNING])
@pytest.mark.parametrize("way", WAYS)
async def test_a_lost_worker_lets_its_lablets_go_by_their_policy(
    platform: LabletPlatform,
    way: Callable[[LabletPlatform, Worker], Awaitable[None]],
    status: LabletStatus,
    policy: LostWorkerPolicy,
) -> None:
    """Issue 8: lablets on it end in a defined state."""
    worker = await platform.worker()
    lablet = await brought_to(platform, worker, status, policy)
    await way(platform, worker)
    await platform.start()
    if way is replaced and status is LabletStatus.SCHEDULED:
        await platform.until_status(lablet, LabletStatus.RUNNING, within=120)  # nothing of it was on the old instance
        return
    becomes = LabletStatus.FAILED if policy is FAILS else LabletStatus.PENDING_SCHEDULING
    lablet = await platform.until_status(lablet, becomes, within=60)
    assert (lablet.lab_id, lablet.ports, lablet.endpoints) == (None, {}, ())
    assert (await platform.control.internal.worker(worker.id)).allocation.lablets == 0


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_to_end_has_ended_with_its_worker(
    platform: LabletPlatform, way: Callable[[LabletPlatform, Worker], Awaitable[None]]
) -> None:
    worker = await platform.worker()
    lablet = await brought_to(platform, worker, LabletStatus.STOPPING, LostWorkerPolicy.RESCHEDULE)
    await way(platform, worker)
    await platform.start()
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=60)


async def test_a_worker_that_is_not_ready_is_not_dialled(platform: LabletPlatform) -> None:
    """lablets.md: it waits for the worker controller's verdict."""
    worker = await platform.worker()
    lablet = await platform.lablet(worker)
    await platform.report(worker, WorkerStatus.RUNNING, conditions=platform.cml(*NOT_READY))
    await platform.start()
    await asyncio.sleep(600)
    assert platform.servers.requests == []
    lablet = await platform.get(lablet)
    assert lablet.status is LabletStatus.SCHEDULED
    assert lablet.message == "waiting for worker alpha: its CML is not ready"
    await platform.report(worker, WorkerStatus.RUNNING, conditions=platform.cml(*READY))
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert lablet.message == ""


async def test_no_worker_is_called_before_the_workers_were_verified(platform: LabletPlatform) -> None:
    """lablets.md, ADR-043: nothing until the present worker-controller leader has reported its startup sweep done."""
    worker = await platform.worker()
    lablet = await platform.lablet(worker)
    await platform.plane.ask(
        "POST",
        "/api/internal/leadership",
        role=Role.CONTROLLER,
        headers={"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "4"},
        json={"term": 4},
    )
    await platform.start()
    await asyncio.sleep(300)
    assert platform.servers.requests == []
    assert (await platform.get(lablet)).status is LabletStatus.SCHEDULED
    await platform.plane.ask(
        "POST",
        "/api/internal/leadership",
        role=Role.CONTROLLER,
        headers={"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "4"},
        json={"term": 4, "startup_sweep_done": True},
    )
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)


@pytest.mark.parametrize("policy", LostWorkerPolicy)
async def test_a_silent_worker_is_waited_for_only_so_long(platform: LabletPlatform, policy: LostWorkerPolicy) -> None:
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker, lost_worker_policy=policy)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await platform.report(worker, WorkerStatus.RUNNING, conditions=platform.cml(*NOT_READY))
    await asyncio.sleep(850)
    assert (await platform.get(lablet)).status is LabletStatus.RUNNING
    becomes = LabletStatus.FAILED if policy is FAILS else LabletStatus.PENDING_SCHEDULING
    await platform.until_status(lablet, becomes, within=120)
    assert len(platform.servers.labs()) == 1, "it could not be removed"
    # Once the worker is back, the lab that was left there is removed, whatever happened to the lablet.
    await platform.report(worker, WorkerStatus.RUNNING, conditions=platform.cml(*READY))
    await platform.until(lambda: platform.servers.labs() == [], "removed", within=120)
    assert "lab_removed" in await platform.audits(worker.id)


async def test_the_wait_goes_on_counting_under_the_next_leader(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    first = await platform.start("one")
    lablet = await platform.lablet(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await platform.report(worker, WorkerStatus.RUNNING, conditions=platform.cml(*NOT_READY))
    await asyncio.sleep(800)
    await first.stop()
    await platform.start("two")
    await platform.until_status(lablet, LabletStatus.PENDING_SCHEDULING, within=160)


async def test_a_lab_comes_back_with_its_instance_and_a_users_stop_is_not_undone(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await platform.restart(worker)
    (lab,) = platform.servers.labs()
    assert lab.state == "STOPPED"
    await platform.until(lambda: platform.servers.labs()[0].state == "STARTED", "started again", within=120)
    await asyncio.sleep(120)
    lablet = await platform.get(lablet)
    assert (lablet.status, lablet.message) == (LabletStatus.RUNNING, "")
    assert platform.servers.imports() == 1
    world = platform.world(worker)
    world.labs.stop(lab, lab.owner)
    await asyncio.sleep(600)
    assert platform.servers.labs()[0].state == "STOPPED"
    lablet = await platform.get(lablet)
    assert lablet.status is LabletStatus.RUNNING
    assert "a user stopped its lab" in lablet.message


async def test_an_instance_that_restarts_while_it_boots_continues(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    await platform.until(lambda: [lab.state for lab in platform.servers.labs()] == ["STARTED"], "started", within=60)
    await platform.restart(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=180)
    assert platform.servers.imports() == 1


async def test_a_lablet_can_end_on_a_worker_that_drains(platform: LabletPlatform) -> None:
    """worker-lifecycle.md#terminating: a drain waits until no lablet is assigned, so lablets must be able to leave."""
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await platform.people.workers.drain(worker.id)
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=120)
    assert platform.servers.labs() == []


async def test_a_lablet_that_was_not_begun_leaves_a_worker_that_drains_at_once(platform: LabletPlatform) -> None:
    worker = await platform.worker()
    lablet = await platform.lablet(worker, lost_worker_policy=FAILS)
    await platform.people.workers.drain(worker.id)
    await platform.start()
    lablet = await platform.until_status(lablet, LabletStatus.PENDING_SCHEDULING, within=60)
    assert platform.servers.requests == []
    other = await platform.worker("beta", "192.0.2.8")
    await platform.place(lablet, other)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert lablet.placement_attempt == 2
    assert platform.servers.markers() == [f"{lablet.id}.2"]


async def test_what_moved_on_is_removed_where_it_was(platform: LabletPlatform) -> None:
    """The lab of an older placement is ours: it is removed once its worker is ready again."""
    alpha = await platform.worker()
    await platform.start()
    lablet = await platform.lablet(alpha)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await platform.report(alpha, WorkerStatus.RUNNING, conditions=platform.cml(*NOT_READY))
    lablet = await platform.until_status(lablet, LabletStatus.PENDING_SCHEDULING, within=1000)
    beta = await platform.worker("beta", "192.0.2.8")
    lablet = await platform.until_status(await platform.place(lablet, beta), LabletStatus.RUNNING, within=120)
    assert platform.servers.markers() == [f"{lablet.id}.1", f"{lablet.id}.2"]
    await platform.report(alpha, WorkerStatus.RUNNING, conditions=platform.cml(*READY))
    await platform.until(lambda: platform.servers.markers() == [f"{lablet.id}.2"], "removed", within=120)
    assert (await platform.get(lablet)).status is LabletStatus.RUNNING


async def test_a_lablet_continues_when_a_newer_version_has_finished_with_its_worker(platform: LabletPlatform) -> None:
    """Nobody polls, and a change of a worker wakes none of its lablets: the lablet must check by itself."""
    platform.reconciliation = replace(platform.reconciliation, polling_enabled=False)
    worker = await platform.worker()
    await platform.start()
    lablet = await platform.until_status(await platform.lablet(worker), LabletStatus.RUNNING)
    store = platform.plane.services.context.store
    await upgrade(store, WORKERS, worker.id, status="HIBERNATING")
    await platform.people.lablets.terminate(lablet.id)
    await asyncio.sleep(120)
    lablet = await platform.get(lablet)
    assert lablet.status is LabletStatus.STOPPING, "nothing of this worker is changed"
    assert lablet.message.startswith("this version of LCM does not know status HIBERNATING of worker alpha")
    await asyncio.sleep(1000)
    assert (await platform.get(lablet)).message.startswith("Stuck: this version of LCM does not know")
    assert platform.servers.markers(), "its lab is still there"
    await upgrade(store, WORKERS, worker.id, status="RUNNING")
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=300)
    assert not platform.servers.markers()


async def test_one_request_says_which_workers_have_an_account_of_their_own(
    platform: LabletPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = InternalApi.cml_credentials

    async def counted(self: InternalApi, worker_id: str) -> CmlCredentials:
        asked.append(worker_id)
        return await ask(self, worker_id)

    monkeypatch.setattr(InternalApi, "cml_credentials", counted)
    names = ("alpha", "bravo", "carol")
    workers = [await platform.worker(name, f"192.0.2.{number}") for number, name in enumerate(names, 10)]
    lablets = [await platform.lablet(worker) for worker in workers]
    await platform.start()
    for lablet in lablets:
        await platform.until_status(lablet, LabletStatus.RUNNING)
    assert asked == []
