"""Reservations: lablet and worker in one commit, everything checked again in it, nobody in between."""

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
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, read_secret
from lcm.control_plane.workers.controller_writes import Leader, WorkerControllerWrites
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
    """One ready worker with these changes, and a definition that takes 1 CPU, 1 GB, 1 GB and 1 node."""
    desk = await LabletDesk().open(a_ready_worker(**changes))
    await desk.define()
    desk.commits = 0
    return desk


async def test_lablet_and_worker_change_in_one_commit_with_history_audit_and_events() -> None:
    desk = await a_desk()
    await desk.define(version="2", ports=("CON", "WEB"), cpu_cores=0.5, memory_gb=1.5, nodes=3)
    lablet, before = await desk.make(), await desk.worker()
    desk.commits = 0
    (answer,) = await desk.schedule((lablet, "w-1"))
    assert desk.commits == 1
    placed, worker = await desk.lablet(lablet.id), await desk.worker()
    assert (answer.placed, answer.code, answer.ports) == (True, None, placed.ports)
    assert (placed.status, placed.worker_id, placed.placement_attempt) == ("SCHEDULED", "w-1", 1)
    assert placed.ports == {"CON": 20000, "WEB": 20001}
    assert (placed.version, placed.generation) == (2, 1)
    assert placed.placement is not None
    assert worker.allocation == Allocation(
        cpu_cores=0.5, memory_gb=1.5, storage_gb=1, nodes=3, lablets=1, ports=(20000, 20001)
    )
    assert (worker.version, worker.generation) == (before.version + 1, before.generation)
    steps = await desk.told(LABLET_HISTORY, lablet.id)
    assert [(step["to_status"], step["actor"]["name"], step["worker_id"]) for step in steps] == [
        ("PENDING_SCHEDULING", "anna", None),
        ("SCHEDULED", "resource-scheduler", "w-1"),
    ]
    assert [line["action"] for line in await desk.told(AUDIT, lablet.id)] == ["created", "scheduled"]
    assert (await desk.told(LABLET_CHANGED, lablet.id))[-1]["status"] == "SCHEDULED"
    assert (await desk.told(WORKER_CHANGED, "w-1"))[-1]["allocation"]["lablets"] == 1


async def test_many_lablets_on_one_worker_are_one_commit_and_one_version() -> None:
    desk = await a_desk()
    lablets = [await desk.make() for _ in range(2)]
    before, desk.commits = await desk.worker(), 0
    answers = await desk.schedule(*((lablet, "w-1") for lablet in lablets))
    assert [answer.placed for answer in answers] == [True, True]
    worker = await desk.worker()
    assert (desk.commits, worker.version) == (1, before.version + 1)
    assert worker.allocation.cpu_cores == 2


async def test_what_does_not_fit_is_refused_and_the_rest_of_the_batch_stands() -> None:
    desk = await a_desk()
    lablets = [await desk.make(name=f"lab-{number}") for number in range(4)]
    answers = await desk.schedule((lablets[0], "w-1"), (lablets[1], "w-gone"), (lablets[2], "w-1"), (lablets[3], "w-1"))
    assert [answer.lablet_id for answer in answers] == [lablet.id for lablet in lablets]
    assert [(answer.placed, answer.code) for answer in answers] == [
        (True, None),
        (False, "not_found"),
        (True, None),
        (False, "not_possible_now"),
    ]
    assert answers[3].detail == "it does not fit on alpha: needs 1 CPU core, 0 are left"
    assert (await desk.lablet(lablets[3].id)).status is LabletStatus.PENDING_SCHEDULING
    assert (await desk.worker()).allocation.lablets == 2


@pytest.mark.parametrize(
    ("changes", "needs", "why"),
    [
        ({"status": "DRAINING"}, {}, "it is DRAINING"),
        ({"desired_status": "STOPPED"}, {}, "it is wanted STOPPED"),
        ({"conditions": ()}, {}, "its CML is not ready"),
        ({}, {"license": True}, "needs a licence"),
        ({}, {"cpu_cores": 2.5}, "needs 2.5 CPU cores, 2 are left"),
        ({}, {"memory_gb": 4.5}, "GB of memory"),
        ({}, {"storage_gb": 100.5}, "GB of storage"),
        ({}, {"nodes": 16}, "needs 16 nodes, 15 are left"),
        ({"cml_version": "2.6.1"}, {"cml_version": ">=2.7"}, "needs CML >=2.7, it runs 2.6.1"),
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
    (answer,) = await desk.schedule((await desk.make(), "w-1"))
    assert (answer.placed, answer.code) == (False, "not_possible_now")
    assert why in answer.detail
    assert await desk.worker() == before


async def test_a_worker_in_another_region_than_asked_for_is_refused() -> None:
    desk = await a_desk()
    (answer,) = await desk.schedule((await desk.make(aws_region="us-east-1"), "w-1"))
    assert "it is in eu-west-1" in answer.detail


async def test_nothing_is_placed_on_a_worker_on_hold() -> None:
    hold = Hold(reason="exam", by="bob", since=clock.now())
    desk = await a_desk(hold=hold)
    (answer,) = await desk.schedule((await desk.make(), "w-1"))
    assert (answer.placed, answer.code) == (False, "held")
    assert "on hold by bob: exam" in answer.detail


async def test_a_hold_that_is_over_is_none() -> None:
    over = Hold(reason="exam", by="bob", since=clock.now(), until=clock.now() - timedelta(seconds=1))
    desk = await a_desk(hold=over)
    (answer,) = await desk.schedule((await desk.make(), "w-1"))
    assert answer.placed


async def test_nothing_is_placed_while_the_fleet_is_on_hold() -> None:
    desk = await a_desk()

    async def hold(change: Any) -> None:
        await change.fleet()
        change.save_fleet(FleetState(hold=Hold(reason="outage", by="bob", since=change.now)))

    await desk.records.change(SCHEDULER.actor, hold)
    with pytest.raises(ProblemError, match="the fleet is on hold by bob: outage") as refused:
        await desk.schedule((await desk.make(), "w-1"))
    assert refused.value.code is ProblemCode.HELD
    assert (await desk.worker()).allocation == NO_MORE


async def test_nothing_is_placed_before_the_start_up_sweep_of_the_present_leader() -> None:
    desk = await LabletDesk().open(a_ready_worker(), swept=False)
    await desk.define()
    lablet = await desk.make()
    for _ in range(2):
        with pytest.raises(ProblemError, match="start-up sweep") as refused:
            await desk.schedule((lablet, "w-1"))
        assert refused.value.code is ProblemCode.NOT_POSSIBLE_NOW
        await desk.sweep(done=False)
    await desk.sweep()
    assert [answer.placed for answer in await desk.schedule((lablet, "w-1"))] == [True]
    await desk.sweep(Leader("worker-controller", 6), done=False)  # a new leader has not looked yet
    with pytest.raises(ProblemError, match="start-up sweep"):
        await desk.schedule((await desk.make(), "w-1"))


async def test_a_stale_scheduler_places_nothing() -> None:
    desk = await a_desk()
    first, second = await desk.make(), await desk.make()
    assert [answer.placed for answer in await desk.schedule((first, "w-1"))] == [True]
    with pytest.raises(ProblemError) as refused:
        await desk.schedule((second, "w-1"), leader=STALE)
    assert refused.value.code is ProblemCode.STALE_LEADER
    assert (await desk.worker()).allocation.lablets == 1


async def test_the_worker_controller_itself_may_place() -> None:
    """Its own leadership is then both what fences the write and what is asked about."""
    desk = await a_desk()
    answers = await desk.schedule((await desk.make(), "w-1"), leader=WORKER_CONTROLLER)
    assert [answer.placed for answer in answers] == [True]


async def test_a_lablet_is_placed_once_however_often_it_is_asked_for() -> None:
    desk = await a_desk()
    lablet = await desk.make()
    answers = await desk.schedule((lablet, "w-1"), (lablet, "w-1"))
    assert [(answer.placed, answer.code) for answer in answers] == [(True, None), (False, "version_conflict")]
    (again,) = await desk.schedule((lablet, "w-1"))
    assert again.code == "version_conflict"
    (known,) = await desk.schedule((await desk.lablet(lablet.id), "w-1"))
    assert known.code == "illegal_transition"
    assert (await desk.worker()).allocation.lablets == 1


async def test_a_lablet_that_was_ended_or_never_was_is_not_placed() -> None:
    desk = await a_desk()
    lablet = await desk.make()
    ended = await desk.end(lablet)
    answers = await desk.schedule((ended, "w-1"), (ended.model_copy(update={"id": "l-none"}), "w-1"))
    assert [answer.code for answer in answers] == ["illegal_transition", "not_found"]


async def test_one_lablet_for_two_workers_at_once_gets_one() -> None:
    desk = await LabletDesk(LaggingStore(random.Random(1))).open(
        a_ready_worker(), a_ready_worker(id="w-2", name="beta", instance_id="i-2")
    )
    await desk.define()
    lablet = await desk.make()
    answers = await desk.schedule((lablet, "w-1"), (lablet, "w-2"))
    assert sorted(answer.placed for answer in answers) == [False, True]
    taken = [(await desk.worker(name)).allocation.lablets for name in ("w-1", "w-2")]
    assert sorted(taken) == [0, 1]


@pytest.mark.parametrize("seed", range(10))
async def test_two_schedulers_at_once_never_give_away_more_than_there_is(seed: int) -> None:
    desk = await LabletDesk(LaggingStore(random.Random(seed))).open(a_ready_worker())
    await desk.define()
    lablets = [await desk.make() for _ in range(6)]
    batches = [desk.schedule(*((lablet, "w-1") for lablet in half)) for half in (lablets[:3], lablets[3:])]
    answers = [answer for batch in await asyncio.gather(*batches) for answer in batch]
    assert sum(answer.placed for answer in answers) == 2
    assert (await desk.worker()).allocation.cpu_cores == 2


@pytest.mark.parametrize("seed", range(10))
async def test_a_hold_that_comes_while_something_is_placed_is_before_or_after_it(seed: int) -> None:
    desk = await LabletDesk(LaggingStore(random.Random(seed))).open(a_ready_worker())
    await desk.define()
    lablet = await desk.make()

    async def hold(change: Any) -> None:
        worker = await change.worker("w-1")
        held = Hold(reason="exam", by="bob", since=change.now)
        change.save(worker.model_copy(update={"hold": held, "version": worker.version + 1}), "hold")

    (answer,), _ = await asyncio.gather(
        desk.schedule((lablet, "w-1")), desk.records.change(LABLET_CONTROLLER.actor, hold)
    )
    worker = await desk.worker()
    assert worker.hold is not None
    assert worker.allocation.lablets == answer.placed


@pytest.mark.parametrize("status", ["PENDING_SCHEDULING", "TERMINATED", "FAILED", "EXPIRED"])
@pytest.mark.parametrize("by", ["status", "release"])
async def test_what_leaves_its_worker_gives_back_what_it_took(status: str, by: str) -> None:
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


async def test_ports_that_were_given_back_are_given_again_the_lowest_first() -> None:
    desk = await a_desk()
    await desk.define(version="2", ports=("CON",), cpu_cores=0.1)
    first, second = await desk.placed(), await desk.placed()
    assert (first.ports, second.ports) == ({"CON": 20000}, {"CON": 20001})
    await desk.end(first)
    assert (await desk.placed()).ports == {"CON": 20000}


async def test_a_lablet_leaves_a_worker_that_is_gone_without_going_below_nothing() -> None:
    desk = await a_desk()
    lablet = await desk.report(await desk.placed(), "INSTANTIATING")

    async def lost(change: Any) -> None:
        worker = await change.worker("w-1")
        fields = {"status": "TERMINATED", "allocation": NO_MORE, "version": worker.version + 1}
        change.save(type(worker)(**{**dict(worker), **fields}), "lost")

    await desk.records.change(WORKER_CONTROLLER.actor, lost)
    left = await desk.release(lablet, "PENDING_SCHEDULING")
    assert left.status is LabletStatus.PENDING_SCHEDULING
    assert (await desk.worker()).allocation == NO_MORE


@pytest.mark.parametrize("seed", range(10))
async def test_a_worker_is_paused_or_takes_a_lablet_but_never_both(seed: int) -> None:
    long_ago = clock.now() - timedelta(hours=3)
    idle = a_ready_worker(created_at=long_ago, last_resumed_at=long_ago)
    desk = await LabletDesk(LaggingStore(random.Random(seed))).open(idle)
    await desk.define()
    lablet = await desk.make()
    telemetry = IdleDetectionRequest.model_validate(
        {"events": [{"category": "system_stats", "at": clock.now()}], "observed_at": clock.now()}
    )
    (answer,), found = await asyncio.gather(
        desk.schedule((lablet, "w-1")), desk.workers.detect_idle(WORKER_CONTROLLER, "w-1", telemetry)
    )
    assert found.auto_pause_triggered is not answer.placed
    worker = await desk.worker()
    assert (worker.desired_status == "STOPPED") is found.auto_pause_triggered
    assert worker.allocation.lablets == answer.placed


async def test_a_worker_that_scale_up_launches_gets_the_licence_of_the_settings() -> None:
    desk = await LabletDesk().open()
    await desk.records.change(WORKER_CONTROLLER.actor, lambda change: seed_templates(change, None))
    reports = WorkerControllerWrites(replace(desk.plane, scale_up_license=SecretStr("tok-1")))
    need = ScaleUpRequest.model_validate({"template": "small", "reason": "full", "for": "l-1"})
    worker = await reports.scale_up(SCHEDULER, need)
    assert worker.has_license_token
    secret = await read_secret(desk.store, desk.plane.box, worker.id, LICENSE_TOKEN)
    assert secret.reveal() == "tok-1"
    assert await reports.scale_up(SCHEDULER, need) == worker
    plain = await desk.workers.scale_up(
        SCHEDULER, ScaleUpRequest.model_validate({**need.model_dump(by_alias=True), "for": "l-2"})
    )
    assert not plain.has_license_token
