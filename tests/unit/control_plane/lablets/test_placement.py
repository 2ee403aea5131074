"""Reservations: lablet and worker change in one commit, in which everything is checked again."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.records.kinds import AUDIT, LABLET_CHANGED, LABLET_HISTORY, WORKER_CHANGED
from lcm.control_plane.records.unit_of_work import Leader
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, read_secret
from lcm.control_plane.workers.controller_writes import WorkerControllerWrites
from lcm.core import clock
from lcm.model.fleet.state import FleetState
from lcm.model.lablet.status import LabletStatus
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold
from lcm.model.worker.requests import IdleDetectionRequest, ScaleUpRequest
from lcm.model.worker.template import Allocation
from tests.support.records.lablet_records import (
    LABLET_CONTROLLER,
    SCHEDULER,
    STALE,
    WORKER_CONTROLLER,
    LabletDesk,
    LaggingStore,
    a_ready_worker,
)

NO_MORE = Allocation()


async def a_desk(**changes: Any) -> LabletDesk:
    """One ready worker with these changes, and a definition that needs 1 CPU, 1 GB, 1 GB and 1 node."""
    desk = await LabletDesk().open(a_ready_worker(**changes))
    await desk.define()
    desk.commits = 0
    return desk


async def test_lablet_and_worker_change_in_one_commit_with_history_audit_and_events() -> None:
    desk = await a_desk()
    await desk.define(version="2", ports=("CON", "WEB"), cpu_cores=0.5, memory_gb=1.5, nodes=3)
    lablet, before = await desk.make(), await desk.worker()
    desk.commits = 0
    (result,) = await desk.schedule((lablet, "w-1"))
    assert desk.commits == 1
    placed, worker = await desk.lablet(lablet.id), await desk.worker()
    assert (result.placed, result.code, result.ports) == (True, None, placed.ports)
    assert (placed.status, placed.worker_id, placed.placement_attempt) == ("SCHEDULED", "w-1", 1)
    assert placed.ports == {"CON": 20000, "WEB": 20001}
    assert (placed.version, placed.generation) == (2, 1)
    assert placed.placement is not None
    assert worker.allocation == Allocation(
        cpu_cores=0.5, memory_gb=1.5, storage_gb=1, nodes=3, lablets=1, ports=(20000, 20001)
    )
    assert (worker.version, worker.generation) == (before.version + 1, before.generation)
    steps = await desk.entries(LABLET_HISTORY, lablet.id)
    assert [(step["to_status"], step["actor"]["name"], step["worker_id"]) for step in steps] == [
        ("PENDING_SCHEDULING", "anna", None),
        ("SCHEDULED", "resource-scheduler", "w-1"),
    ]
    assert [line["action"] for line in await desk.entries(AUDIT, lablet.id)] == ["created", "scheduled"]
    assert (await desk.entries(LABLET_CHANGED, lablet.id))[-1]["status"] == "SCHEDULED"
    assert (await desk.entries(WORKER_CHANGED, "w-1"))[-1]["allocation"]["lablets"] == 1


async def test_many_lablets_on_one_worker_are_one_commit_and_one_version() -> None:
    desk = await a_desk()
    lablets = [await desk.make() for _ in range(2)]
    before, desk.commits = await desk.worker(), 0
    results = await desk.schedule(*((lablet, "w-1") for lablet in lablets))
    assert [result.placed for result in results] == [True, True]
    worker = await desk.worker()
    assert (desk.commits, worker.version) == (1, before.version + 1)
    assert worker.allocation.cpu_cores == 2


async def test_what_does_not_fit_is_rejected_and_the_rest_of_the_batch_is_placed() -> None:
    desk = await a_desk()
    lablets = [await desk.make(name=f"lab-{number}") for number in range(4)]
    results = await desk.schedule((lablets[0], "w-1"), (lablets[1], "w-gone"), (lablets[2], "w-1"), (lablets[3], "w-1"))
    assert [result.lablet_id for result in results] == [lablet.id for lablet in lablets]
    assert [(result.placed, result.code) for result in results] == [
        (True, None),
        (False, "not_found"),
        (True, None),
        (False, "not_possible_now"),
    ]
    assert results[3].detail == "it does not fit on alpha: needs 1 CPU core, but 0 are available"
    assert (await desk.lablet(lablets[3].id)).status is LabletStatus.PENDING_SCHEDULING
    assert (await desk.worker()).allocation.lablets == 2


@pytest.mark.parametrize(
    ("changes", "needs", "why"),
    [
        ({"status": "DRAINING"}, {}, "it is DRAINING"),
        ({"desired_status": "STOPPED"}, {}, "its desired status is STOPPED"),
        ({"conditions": ()}, {}, "its CML is not ready"),
        ({}, {"license": True}, "needs a license"),
        ({}, {"cpu_cores": 2.5}, "needs 2.5 CPU cores, but 2 are available"),
        ({}, {"memory_gb": 4.5}, "GB of memory"),
        ({}, {"storage_gb": 100.5}, "GB of storage"),
        ({}, {"nodes": 16}, "needs 16 nodes, but 15 are available"),
        ({"cml_version": "2.6.1"}, {"cml_version": ">=2.7"}, "needs CML >=2.7, but it runs 2.6.1"),
        ({"node_definitions": ("iosv",)}, {"node_definitions": ("cat9kv",)}, "lacks node definition cat9kv"),
        ({"allocation": Allocation(ports=tuple(range(20000, 30000)))}, {"ports": ("CON",)}, "needs 1 port"),
    ],
)
async def test_each_filter_is_checked_again_in_the_commit(
    changes: dict[str, Any], needs: dict[str, Any], why: str
) -> None:
    desk = await LabletDesk().open(a_ready_worker(**changes))
    await desk.define(**needs)
    before = await desk.worker()
    (result,) = await desk.schedule((await desk.make(), "w-1"))
    assert (result.placed, result.code) == (False, "not_possible_now")
    assert why in result.detail
    assert await desk.worker() == before


async def test_a_worker_in_another_region_is_rejected() -> None:
    desk = await a_desk()
    (result,) = await desk.schedule((await desk.make(aws_region="us-east-1"), "w-1"))
    assert "it is in eu-west-1" in result.detail


async def test_nothing_is_placed_on_a_worker_on_hold() -> None:
    hold = Hold(reason="exam", by="bob", since=clock.now())
    desk = await a_desk(hold=hold)
    (result,) = await desk.schedule((await desk.make(), "w-1"))
    assert (result.placed, result.code) == (False, "held")
    assert "on hold by bob: exam" in result.detail


async def test_an_expired_hold_has_no_effect() -> None:
    over = Hold(reason="exam", by="bob", since=clock.now(), until=clock.now() - timedelta(seconds=1))
    desk = await a_desk(hold=over)
    (result,) = await desk.schedule((await desk.make(), "w-1"))
    assert result.placed


async def test_nothing_is_placed_while_the_fleet_is_on_hold() -> None:
    desk = await a_desk()

    async def hold(tx: Any) -> None:
        await tx.fleet()
        tx.save_fleet(FleetState(hold=Hold(reason="outage", by="bob", since=tx.now)))

    await desk.unit_of_work.run(SCHEDULER.actor, hold)
    with pytest.raises(ProblemError, match="the fleet is on hold by bob: outage") as caught:
        await desk.schedule((await desk.make(), "w-1"))
    assert caught.value.code is ProblemCode.HELD
    assert (await desk.worker()).allocation == NO_MORE


async def test_nothing_is_placed_before_the_startup_sweep_of_the_current_leader() -> None:
    desk = await LabletDesk().open(a_ready_worker(), swept=False)
    await desk.define()
    lablet = await desk.make()
    for _ in range(2):
        with pytest.raises(ProblemError, match="startup sweep") as caught:
            await desk.schedule((lablet, "w-1"))
        assert caught.value.code is ProblemCode.NOT_POSSIBLE_NOW
        await desk.sweep(done=False)
    await desk.sweep()
    assert [result.placed for result in await desk.schedule((lablet, "w-1"))] == [True]
    await desk.sweep(Leader("worker-controller", 6), done=False)  # a new leader has not swept yet
    with pytest.raises(ProblemError, match="startup sweep"):
        await desk.schedule((await desk.make(), "w-1"))


async def test_a_stale_scheduler_places_nothing() -> None:
    desk = await a_desk()
    first, second = await desk.make(), await desk.make()
    assert [result.placed for result in await desk.schedule((first, "w-1"))] == [True]
    with pytest.raises(ProblemError) as caught:
        await desk.schedule((second, "w-1"), leader=STALE)
    assert caught.value.code is ProblemCode.STALE_LEADER
    assert (await desk.worker()).allocation.lablets == 1


async def test_the_worker_controller_itself_may_place() -> None:
    """Its own leadership then both fences the write and is checked for the sweep."""
    desk = await a_desk()
    results = await desk.schedule((await desk.make(), "w-1"), leader=WORKER_CONTROLLER)
    assert [result.placed for result in results] == [True]


async def test_a_lablet_is_placed_once_however_often_it_is_requested() -> None:
    desk = await a_desk()
    lablet = await desk.make()
    results = await desk.schedule((lablet, "w-1"), (lablet, "w-1"))
    assert [(result.placed, result.code) for result in results] == [(True, None), (False, "version_conflict")]
    (again,) = await desk.schedule((lablet, "w-1"))
    assert again.code == "version_conflict"
    (known,) = await desk.schedule((await desk.lablet(lablet.id), "w-1"))
    assert known.code == "illegal_transition"
    assert (await desk.worker()).allocation.lablets == 1


async def test_an_ended_or_unknown_lablet_is_not_placed() -> None:
    desk = await a_desk()
    lablet = await desk.make()
    ended = await desk.end(lablet)
    results = await desk.schedule((ended, "w-1"), (ended.model_copy(update={"id": "l-none"}), "w-1"))
    assert [result.code for result in results] == ["illegal_transition", "not_found"]


async def test_one_lablet_for_two_workers_at_once_gets_one() -> None:
    desk = await LabletDesk(LaggingStore(random.Random(1))).open(
        a_ready_worker(), a_ready_worker(id="w-2", name="beta", instance_id="i-2")
    )
    await desk.define()
    lablet = await desk.make()
    results = await desk.schedule((lablet, "w-1"), (lablet, "w-2"))
    assert sorted(result.placed for result in results) == [False, True]
    taken = [(await desk.worker(name)).allocation.lablets for name in ("w-1", "w-2")]
    assert sorted(taken) == [0, 1]


@pytest.mark.parametrize("seed", range(10))
async def test_two_schedulers_at_once_never_overcommit_a_worker(seed: int) -> None:
    desk = await LabletDesk(LaggingStore(random.Random(seed))).open(a_ready_worker())
    await desk.define()
    lablets = [await desk.make() for _ in range(6)]
    batches = [desk.schedule(*((lablet, "w-1") for lablet in half)) for half in (lablets[:3], lablets[3:])]
    results = [result for batch in await asyncio.gather(*batches) for result in batch]
    assert sum(result.placed for result in results) == 2
    assert (await desk.worker()).allocation.cpu_cores == 2


@pytest.mark.parametrize("seed", range(10))
async def test_a_hold_during_a_placement_is_serialized_with_it(seed: int) -> None:
    desk = await LabletDesk(LaggingStore(random.Random(seed))).open(a_ready_worker())
    await desk.define()
    lablet = await desk.make()

    async def hold(tx: Any) -> None:
        worker = await tx.worker("w-1")
        held = Hold(reason="exam", by="bob", since=tx.now)
        tx.save_worker(worker.model_copy(update={"hold": held, "version": worker.version + 1}), "hold")

    (result,), _ = await asyncio.gather(
        desk.schedule((lablet, "w-1")), desk.unit_of_work.run(LABLET_CONTROLLER.actor, hold)
    )
    worker = await desk.worker()
    assert worker.hold is not None
    assert worker.allocation.lablets == result.placed


@pytest.mark.parametrize("status", ["PENDING_SCHEDULING", "TERMINATED", "FAILED", "EXPIRED"])
@pytest.mark.parametrize("by", ["status", "release"])
async def test_a_lablet_that_leaves_its_worker_releases_its_reservation(status: str, by: str) -> None:
    desk = await a_desk()
    await desk.define(version="2", ports=("CON",), cpu_cores=0.1)
    stays, goes = await desk.placed(), await desk.placed()
    goes = await desk.report(goes, "INSTANTIATING", lab_id="lab-1", instance_id="i-1")
    before, desk.commits = await desk.worker(), 0
    left = await (desk.report(goes, status) if by == "status" else desk.release(goes, status))
    assert desk.commits == 1
    worker = await desk.worker()
    assert worker.allocation == Allocation(cpu_cores=0.1, memory_gb=1, storage_gb=1, nodes=1, lablets=1, ports=(20000,))
    assert worker.version == before.version + 1
    assert (left.ports, left.endpoints, left.lab_id) == ({}, (), None)
    assert left.worker_id == (None if status == "PENDING_SCHEDULING" else "w-1")
    assert stays.ports == {"CON": 20000}


async def test_released_ports_are_reused_lowest_first() -> None:
    desk = await a_desk()
    await desk.define(version="2", ports=("CON",), cpu_cores=0.1)
    first, second = await desk.placed(), await desk.placed()
    assert (first.ports, second.ports) == ({"CON": 20000}, {"CON": 20001})
    await desk.end(first)
    assert (await desk.placed()).ports == {"CON": 20000}


async def test_releasing_on_a_terminated_worker_never_goes_negative() -> None:
    desk = await a_desk()
    lablet = await desk.report(await desk.placed(), "INSTANTIATING")

    async def lost(tx: Any) -> None:
        worker = await tx.worker("w-1")
        fields = {"status": "TERMINATED", "allocation": NO_MORE, "version": worker.version + 1}
        tx.save_worker(type(worker)(**{**dict(worker), **fields}), "lost")

    await desk.unit_of_work.run(WORKER_CONTROLLER.actor, lost)
    left = await desk.release(lablet, "PENDING_SCHEDULING")
    assert left.status is LabletStatus.PENDING_SCHEDULING
    assert (await desk.worker()).allocation == NO_MORE


@pytest.mark.parametrize("seed", range(10))
async def test_a_worker_is_paused_or_gets_a_lablet_but_never_both(seed: int) -> None:
    long_ago = clock.now() - timedelta(hours=3)
    idle = a_ready_worker(created_at=long_ago, last_resumed_at=long_ago)
    desk = await LabletDesk(LaggingStore(random.Random(seed))).open(idle)
    await desk.define()
    lablet = await desk.make()
    telemetry = IdleDetectionRequest.model_validate(
        {"events": [{"category": "system_stats", "at": clock.now()}], "observed_at": clock.now()}
    )
    (result,), found = await asyncio.gather(
        desk.schedule((lablet, "w-1")), desk.workers.detect_idle(WORKER_CONTROLLER, "w-1", telemetry)
    )
    assert found.auto_pause_triggered is not result.placed
    worker = await desk.worker()
    assert (worker.desired_status == "STOPPED") is found.auto_pause_triggered
    assert worker.allocation.lablets == result.placed


async def test_a_worker_that_scale_up_launches_gets_the_configured_license() -> None:
    desk = await LabletDesk().open()
    await desk.unit_of_work.run(WORKER_CONTROLLER.actor, lambda tx: seed_templates(tx, None))
    reports = WorkerControllerWrites(replace(desk.plane, scale_up_license=SecretStr("tok-1")))
    need = ScaleUpRequest.model_validate({"template": "small", "reason": "full", "for": "l-1"})
    worker = await reports.scale_up(SCHEDULER, need)
    assert worker.has_license_token
    secret = await read_secret(desk.store, desk.plane.secret_box, worker.id, LICENSE_TOKEN)
    assert secret.reveal() == "tok-1"
    assert await reports.scale_up(SCHEDULER, need) == worker
    plain = await desk.workers.scale_up(
        SCHEDULER, ScaleUpRequest.model_validate({**need.model_dump(by_alias=True), "for": "l-2"})
    )
    assert not plain.has_license_token
