"""Minimum, maximum and cooldown, also with concurrent requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.workers.idle import pause_idle_worker
from lcm.control_plane.workers.lifecycle import stop
from lcm.control_plane.workers.scaling import (
    ScaleUpPlan,
    count_running_workers,
    scale_down,
    scale_up,
)
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings, ScalingSettings
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold, Worker
from lcm.model.worker.requests import ScaleUpRequest
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.worker_records import ANNA, CONTROLLER, Desk
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction

SMALL = DEFAULT_TEMPLATES[1]


def scaling(**overrides: Any) -> FleetSettings:
    return FleetSettings(scaling=ScalingSettings(**overrides))


async def running_fleet(desk: Desk, size: int) -> None:
    for number in range(size):
        await desk.add(a_worker(id=f"w-{number}", name=f"n{number}", status="RUNNING", instance_id=f"i-{number}"))


async def pause(desk: Desk, worker_id: str, settings: FleetSettings) -> Worker:
    async def attempt(tx: Transaction) -> Worker:
        return await pause_idle_worker(tx, await tx.worker(worker_id), settings)

    return await desk.unit_of_work.run(CONTROLLER, attempt)


async def shrink(desk: Desk, worker_id: str, settings: FleetSettings) -> Worker:
    return await desk.unit_of_work.run(CONTROLLER, lambda tx: scale_down(tx, worker_id, settings, "idle"))


async def test_concurrent_pauses_never_go_below_the_minimum(desk: Desk) -> None:
    await running_fleet(desk, 10)
    settings = scaling(min_workers=4)
    pauses = [pause(desk, f"w-{number}", settings) for number in range(10)]
    results = await asyncio.gather(*pauses, return_exceptions=True)
    refused = [result for result in results if isinstance(result, ProblemError)]
    assert len(refused) == 4
    assert {refusal.code for refusal in refused} == {ProblemCode.MIN_WORKERS}
    assert await count_running_workers(desk.store) == 4


async def test_a_persons_stop_at_the_same_time_counts_too(desk: Desk) -> None:
    """The pause counted five, then a person stopped one: the pause must count again before it acts."""
    await running_fleet(desk, 5)

    async def by_hand(tx: Transaction) -> None:
        tx.save_worker(stop(await tx.worker("w-1"), tx.now), "stop")

    async def attempt(tx: Transaction) -> Worker:
        paused = await pause_idle_worker(tx, await tx.worker("w-0"), scaling(min_workers=4))
        if (await desk.worker("w-1")).desired_status is DesiredStatus.RUNNING:
            await desk.unit_of_work.run(ANNA, by_hand)
        return paused

    with pytest.raises(ProblemError) as caught:
        await desk.unit_of_work.run(CONTROLLER, attempt)
    assert caught.value.code is ProblemCode.MIN_WORKERS
    assert await count_running_workers(desk.store) == 4


async def test_an_auto_pause_is_counted_dated_and_audited(desk: Desk) -> None:
    await running_fleet(desk, 1)
    worker = await pause(desk, "w-0", scaling())
    assert (worker.auto_pause_count, worker.pause_reason, worker.paused_by_policy) == (1, "idle_timeout", True)
    assert (worker.desired_status, worker.last_paused_at) == (DesiredStatus.STOPPED, clock.now())
    assert (await desk.entries(AUDIT))[-1]["action"] == "auto_paused"


async def test_the_cooldown_holds_between_scale_downs_and_across_leaders(desk: Desk) -> None:
    await running_fleet(desk, 3)
    settings = scaling(scale_down_enabled=True)
    assert (await shrink(desk, "w-0", settings)).status is WorkerStatus.DRAINING
    await asyncio.sleep(599)
    with pytest.raises(ProblemError) as caught:
        await shrink(desk, "w-1", settings)
    assert caught.value.code is ProblemCode.COOLDOWN
    await asyncio.sleep(1)
    assert (await shrink(desk, "w-1", settings)).status is WorkerStatus.DRAINING


async def test_two_scale_downs_at_once_are_one(desk: Desk) -> None:
    await running_fleet(desk, 5)
    downs = [shrink(desk, f"w-{number}", scaling()) for number in range(5)]
    results = await asyncio.gather(*downs, return_exceptions=True)
    assert sum(isinstance(result, Worker) for result in results) == 1


@pytest.mark.parametrize("whole_fleet", [True, False])
async def test_nothing_is_paused_or_drained_under_a_hold(desk: Desk, whole_fleet: bool) -> None:
    await running_fleet(desk, 3)
    held = Hold(reason="exam", by="anna", since=NOW)

    async def hold(tx: Transaction) -> None:
        if whole_fleet:
            tx.save_fleet((await tx.fleet()).model_copy(update={"hold": held}))
        else:
            worker = await tx.worker("w-0")
            tx.save_worker(worker.model_copy(update={"hold": held, "version": worker.version + 1}), "hold")

    await desk.unit_of_work.run(ANNA, hold)
    for act in (pause, shrink):
        with pytest.raises(ProblemError, match="exam") as caught:
            await act(desk, "w-0", scaling())
        assert caught.value.code is ProblemCode.HELD


async def test_only_a_running_worker_is_scaled_down(desk: Desk) -> None:
    await desk.add(a_worker())
    with pytest.raises(ProblemError, match="RUNNING"):
        await shrink(desk, "w-1", scaling())


# Scale-up


async def grow(desk: Desk, settings: FleetSettings | None = None, *, need: str | None = None, **more: Any) -> Worker:
    request = ScaleUpRequest.model_validate({"template": "small", "reason": "a lablet waits", "for": need, **more})
    worker_id = clock.new_id("w")

    async def attempt(tx: Transaction) -> Worker:
        overrides = settings or scaling()
        return await scale_up(tx, ScaleUpPlan(request, SMALL, "eu-west-1", worker_id), overrides)

    return await desk.unit_of_work.run(CONTROLLER, attempt)


async def test_one_request_never_yields_two_workers(desk: Desk) -> None:
    first = await grow(desk, need="lablet-1")
    assert (first.origin, first.template_name, first.requested_for) == ("scale-up", "small", "lablet-1")
    assert (await grow(desk, need="lablet-1")).id == first.id
    assert (await grow(desk, need="lablet-2")).id != first.id


async def test_concurrent_repeats_of_one_request_yield_one_worker(desk: Desk) -> None:
    requests = [grow(desk, need="lablet-1") for _ in range(8)]
    workers = await asyncio.gather(*requests)
    assert len({worker.id for worker in workers}) == 1


async def test_a_starting_worker_satisfies_an_anonymous_request(desk: Desk) -> None:
    first = await grow(desk)
    assert (await grow(desk)).id == first.id


async def test_a_worker_that_a_policy_stopped_is_resumed_before_one_is_launched(desk: Desk) -> None:
    stopped = {"status": "STOPPED", "desired_status": "STOPPED"}
    await desk.add(a_worker(id="w-a", name="a", **stopped))  # by a person: not resumed
    await desk.add(a_worker(id="w-b", name="b", **stopped, paused_by_policy=True, template_name="large"))
    held = Hold(reason="exam", by="anna", since=NOW)
    await desk.add(a_worker(id="w-c", name="c", **stopped, paused_by_policy=True, hold=held))
    await desk.add(a_worker(id="w-d", name="d", **stopped, paused_by_policy=True, aws_region="us-east-1"))
    await desk.add(a_worker(id="w-e", name="e", **stopped, paused_by_policy=True))
    resumed = await grow(desk, need="lablet-1")
    assert (resumed.id, resumed.desired_status, resumed.auto_resume_count) == ("w-e", DesiredStatus.RUNNING, 1)
    assert (await desk.entries(AUDIT))[-1]["details"] == {"resumed": True}


async def test_the_maximum_counts_everything_that_is_not_terminated(desk: Desk) -> None:
    settings = scaling(max_workers_per_region=3)
    for number, status in enumerate(["FAILED", "STOPPED", "RUNNING", "TERMINATED"]):
        await desk.add(a_worker(id=f"w-{number}", name=f"n{number}", status=status, template_name="large"))
    with pytest.raises(ProblemError) as caught:
        await grow(desk, settings)
    assert (caught.value.code, caught.value.current) == (ProblemCode.MAX_WORKERS, {"workers": 3})


async def test_the_planned_worker_is_resumed_or_none(desk: Desk) -> None:
    stopped = {"status": "STOPPED", "desired_status": "STOPPED", "paused_by_policy": True}
    for name in ("a", "b", "c"):
        await desk.add(a_worker(id=f"w-{name}", name=name, **stopped))
    assert (await grow(desk, need="lablet-1", worker_id="w-b")).id == "w-b"
    again = await grow(desk, need="lablet-2", worker_id="w-b")  # it is not stopped any more
    assert again.id == "w-a"
    launched = await grow(desk, need="lablet-3", resume=False)
    assert launched.id not in {"w-a", "w-b", "w-c"}
    assert (await desk.entries(AUDIT))[-1]["details"] == {"resumed": False}


async def test_no_worker_of_another_team_is_resumed_in_place_of_the_chosen_one(desk: Desk) -> None:
    """The lablets that need a worker could not be placed on it, and would wait for it without end."""
    stopped = {"status": "STOPPED", "desired_status": "STOPPED", "paused_by_policy": True}
    await desk.add(a_worker(id="w-a", name="a", team="team-blue", **stopped))
    assert (await grow(desk, need="lablet-1", worker_id="w-gone")).id != "w-a", "the chosen one was started meanwhile"
    assert (await grow(desk, need="lablet-2", worker_id="w-a")).id == "w-a"
    assert (await grow(desk)).id != "w-a", "it starts, but for its team"
