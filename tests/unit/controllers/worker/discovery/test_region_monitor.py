"""The watch over a region, on the simulated cloud and a real control plane."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.client.base import Leader
from lcm.client.errors import StaleLeaderError, UnreachableError
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange, FailPage, Outage
from lcm.cloud.types import InstanceState
from lcm.controllers.worker.observe.observation import LossVerdict, Visibility
from lcm.core import clock
from tests.unit.controllers.worker.discovery.region_scene import (
    BEYOND_DOUBT,
    OTHER_ACCOUNT,
    REGION,
    RegionScene,
    region_scene,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.requests import BreakerReport


@pytest.fixture
async def scene() -> AsyncIterator[RegionScene]:
    async with region_scene() as scene:
        yield scene


# Sights


async def test_nobody_has_looked_yet(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    assert scene.watch().sight(worker, 0.0) is None


async def test_a_sweep_is_remembered_and_serves_those_who_acted_before_it(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    watch = scene.watch()
    began = clock.boottime()
    await watch.sweep([worker])
    sight = watch.sight(worker, began)
    assert sight is not None
    assert (sight.visibility, sight.state) == (Visibility.SEEN, InstanceState.RUNNING)
    assert sight.account_id == scene.place.account_id
    assert watch.sight(worker, clock.boottime()) is None


async def test_who_acted_since_gets_a_look_of_its_own(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    watch = scene.watch()
    await watch.sweep([worker])
    await scene.provider.stop_instance(REGION, worker.instance_id or "")
    acted = clock.boottime()
    sight = await watch.look(worker, acted)
    assert sight.state is InstanceState.STOPPING
    assert sight.began_at >= acted
    calls = scene.world.calls()["DescribeInstances"]
    assert await watch.look(worker, acted) == sight
    assert scene.world.calls()["DescribeInstances"] == calls


async def test_a_look_that_failed_says_why_and_nothing_else(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    scene.world.strike(REGION, Outage(600))
    sight = await scene.watch().look(worker, 0.0)
    assert sight.visibility is Visibility.NO_LOOK
    assert "no connection" in sight.trouble


async def test_a_new_instance_younger_than_five_minutes_that_is_not_visible_is_not_lost(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    scene.hide(instance_id)
    worker = await scene.record(instance_id)
    watch = scene.watch()
    recorded = clock.boottime()
    while clock.boottime() - recorded < 290:
        review = await watch.sweep([worker])
        assert review is not None
        assert not review.lost
        sight = watch.sight(worker, 0.0)
        assert sight is not None
        assert sight.visibility is Visibility.NOT_VISIBLE
        assert watch.loss(worker)[0] is LossVerdict.UNJUDGED
        await asyncio.sleep(30)
    await asyncio.sleep(60)
    review = await watch.sweep([worker])
    assert review is not None
    assert review.lost == review.absent == {worker.id}
    assert (await watch.look(worker, 0.0)).visibility is Visibility.GONE
    assert watch.loss(worker) == (LossVerdict.ALLOWED, "")


async def test_what_counts_is_the_age_of_the_instance_and_not_of_the_worker(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    worker = await scene.record(instance_id)
    await asyncio.sleep(BEYOND_DOUBT)
    scene.hide(instance_id)
    replaced = worker.model_copy(update={"instance_since": clock.now()})
    review = await scene.watch().sweep([replaced])
    assert review is not None
    assert not review.lost


async def test_one_that_only_lacks_its_tags_is_found_by_its_id(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch({"Name": "bare"}))
    worker = await scene.record(instance_id)
    await asyncio.sleep(BEYOND_DOUBT)
    watch = scene.watch()
    review = await watch.sweep([worker])
    assert review is not None
    assert not review.mismatched
    assert not review.none_visible


async def test_terminated_outside_is_lost_at_once_by_the_next_sweep(scene: RegionScene) -> None:
    workers = await scene.fleet_of(2)
    watch = scene.watch()
    await watch.sweep(workers)
    scene.world.strike(REGION, ExternalChange(ExternalAction.TERMINATE, workers[0].instance_id))
    await asyncio.sleep(30)
    assert (await watch.look(workers[0], clock.boottime())).state is InstanceState.TERMINATED
    # A look at one worker alone has not been compared with the others.
    assert watch.loss(workers[0])[0] is LossVerdict.UNJUDGED
    review = await watch.sweep(workers)
    assert review is not None
    assert review.lost == {workers[0].id}
    assert review.absent == frozenset()
    assert watch.loss(workers[0])[0] is LossVerdict.ALLOWED


async def test_a_verdict_is_about_the_instance_that_was_found_lost(scene: RegionScene) -> None:
    workers = await scene.fleet_of(2)
    watch = scene.watch()
    scene.hide(workers[0].instance_id or "")
    await watch.sweep(workers)
    assert watch.loss(workers[0])[0] is LossVerdict.ALLOWED
    replaced = workers[0].model_copy(update={"instance_id": "i-new"})
    assert watch.loss(replaced)[0] is LossVerdict.UNJUDGED


# The whole region


async def test_failed_and_partial_sweeps_judge_nobody(scene: RegionScene) -> None:
    workers = await scene.fleet_of(50)
    watch = scene.watch()
    scene.hide(workers[0].instance_id or "")
    await watch.sweep(workers)
    assert watch.loss(workers[0])[0] is LossVerdict.ALLOWED
    scene.world.strike(REGION, FailPage(2, times=1))
    assert await watch.sweep(workers, scan=True) is None
    assert watch.loss(workers[0])[0] is LossVerdict.UNJUDGED
    scene.world.strike(REGION, Outage(600))
    assert await watch.sweep(workers, scan=True) is None
    assert not await scene.breaker_known()


async def test_an_empty_sweep_at_fifty_workers_opens_the_breaker_and_only_a_person_closes_it(
    scene: RegionScene,
) -> None:
    workers = await scene.fleet_of(50)
    watch = scene.watch()
    scene.hide(*(worker.instance_id or "" for worker in workers))
    for _ in range(4):
        await watch.sweep(workers, scan=True)
        assert {watch.loss(worker)[0] for worker in workers} == {LossVerdict.BLOCKED}
        await asyncio.sleep(300)
    known = (await scene.internal.fleet()).breakers[REGION]
    assert known.only_a_person_closes
    assert known.affected == 50
    await scene.reset_breaker()
    await watch.sweep(workers)
    assert {watch.loss(worker)[0] for worker in workers} == {LossVerdict.ALLOWED}
    assert not await scene.breaker_known()


async def test_the_wrong_account_marks_nobody_also_after_a_persons_reset(scene: RegionScene) -> None:
    workers = await scene.fleet_of(5)
    watch = scene.watch()
    scene.hide(*(worker.instance_id or "" for worker in workers))
    scene.place.account_id = OTHER_ACCOUNT
    for reset in (False, True):
        if reset:
            await scene.reset_breaker()
        for _ in range(3):
            await watch.sweep(workers, scan=True)
            assert {watch.loss(worker)[0] for worker in workers} == {LossVerdict.BLOCKED}
            sights = [await watch.look(worker, 0.0) for worker in workers]
            assert {sight.visibility for sight in sights} == {Visibility.NOT_VISIBLE}
            await asyncio.sleep(300)
    assert not await scene.breaker_known()


async def test_the_breaker_is_reported_once_and_closed_by_the_second_scan(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    watch = scene.watch()
    scene.hide(*(worker.instance_id or "" for worker in workers[:10]))
    await watch.sweep(workers, scan=True)
    for _ in range(9):
        await asyncio.sleep(30)
        await watch.sweep(workers)
    assert watch.breaker_open
    assert await scene.breaker_known()
    await asyncio.sleep(30)
    await watch.sweep(workers, scan=True)
    assert not watch.breaker_open
    assert [watch.loss(worker)[0] for worker in workers] == [LossVerdict.ALLOWED] * 10 + [LossVerdict.UNJUDGED] * 3
    assert len(await scene.audited("breaker_opened")) == len(await scene.audited("breaker_closed")) == 1


async def test_two_scans_do_not_share_a_sweep(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    watch = scene.watch()
    scene.hide(*(worker.instance_id or "" for worker in workers[:10]))
    for _ in range(3):
        await watch.sweep(workers, scan=True, max_age=60)
    assert watch.breaker_open


async def test_a_breaker_that_was_open_is_taken_over_by_the_next_leader(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    hidden = [worker.instance_id or "" for worker in workers[:10]]
    scene.hide(*hidden)
    await scene.watch().sweep(workers, scan=True)
    scene.reveal(*hidden[1:])
    watch = scene.watch(term=6)
    assert watch.loss(workers[0])[0] is LossVerdict.UNJUDGED
    await watch.sweep(workers, scan=True)
    assert watch.loss(workers[0])[0] is LossVerdict.BLOCKED
    await asyncio.sleep(300)
    await watch.sweep(workers, scan=True)
    assert watch.loss(workers[0])[0] is LossVerdict.ALLOWED
    watch.begin()
    assert watch.loss(workers[0])[0] is LossVerdict.UNJUDGED


async def test_a_report_that_fails_is_made_again(scene: RegionScene, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = await scene.fleet_of(13)
    watch = scene.watch()
    scene.hide(*(worker.instance_id or "" for worker in workers[:10]))
    really = scene.internal.report_breaker

    async def fail(leader: Leader, body: BreakerReport) -> FleetState:
        raise UnreachableError("no route")

    monkeypatch.setattr(scene.internal, "report_breaker", fail)
    await watch.sweep(workers, scan=True)
    await asyncio.sleep(300)
    await watch.sweep(workers, scan=True)
    assert watch.loss(workers[0])[0] is LossVerdict.BLOCKED
    monkeypatch.setattr(scene.internal, "report_breaker", really)
    await watch.sweep(workers)
    assert watch.loss(workers[0])[0] is LossVerdict.ALLOWED


async def test_as_long_as_nobody_says_whether_the_breaker_is_open_nobody_is_judged(
    scene: RegionScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = await scene.fleet_of(2)
    watch = scene.watch()
    scene.hide(workers[0].instance_id or "")

    async def fail() -> FleetState:
        raise UnreachableError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(scene.internal, "fleet", fail)
        await watch.sweep(workers)
    assert watch.loss(workers[0])[0] is LossVerdict.UNJUDGED
    await watch.sweep(workers)
    assert watch.loss(workers[0])[0] is LossVerdict.ALLOWED


async def test_a_leader_that_was_overtaken_hears_it(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    scene.hide(*(worker.instance_id or "" for worker in workers[:10]))
    await scene.internal.announce_leadership(Leader("worker-controller", 9))
    with pytest.raises(StaleLeaderError):
        await scene.watch().sweep(workers)


async def test_all_that_a_sweep_does_not_show_is_asked_for_in_one_call(scene: RegionScene) -> None:
    """Seed 004 design, step 3: verified by id."""
    workers = await scene.fleet_of(20)
    scene.hide(*(worker.instance_id or "" for worker in workers))
    before = scene.world.calls()["DescribeInstances"]
    await scene.watch().sweep(workers)
    assert scene.world.calls()["DescribeInstances"] - before == 2
