"""The watch over a region, on the simulated cloud and a real control plane."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.client.base import Leader
from lcm.client.errors import UnreachableError
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange, FailPage, Outage
from lcm.cloud.types import InstanceState
from lcm.controllers.worker.observe.observation import LossVerdict, Visibility
from lcm.core import clock
from lcm.core.controller.leader_election import StaleTermError
from lcm.model.worker.status import DesiredStatus
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


async def test_before_the_first_read_there_is_no_observation(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    assert scene.monitor().last_observation(worker, 0.0) is None


async def test_a_sweep_is_cached_and_serves_callers_that_acted_before_it(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    monitor = scene.monitor()
    began = clock.boottime()
    await monitor.sweep([worker])
    observation = monitor.last_observation(worker, began)
    assert observation is not None
    assert (observation.visibility, observation.state) == (Visibility.SEEN, InstanceState.RUNNING)
    assert observation.account_id == scene.place.account_id
    assert monitor.last_observation(worker, clock.boottime()) is None


async def test_a_caller_that_acted_since_gets_a_new_read(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    monitor = scene.monitor()
    await monitor.sweep([worker])
    await scene.provider.stop_instance(REGION, worker.instance_id or "")
    acted = clock.boottime()
    observation = await monitor.observe(worker, acted)
    assert observation.state is InstanceState.STOPPING
    assert observation.began_at >= acted
    calls = scene.world.calls()["DescribeInstances"]
    assert await monitor.observe(worker, acted) == observation
    assert scene.world.calls()["DescribeInstances"] == calls


async def test_a_failed_read_returns_its_error_and_nothing_else(scene: RegionScene) -> None:
    [worker] = await scene.fleet_of(1)
    scene.world.inject_fault(REGION, Outage(600))
    observation = await scene.monitor().observe(worker, 0.0)
    assert observation.visibility is Visibility.NOT_OBSERVED
    assert "no connection" in observation.error


async def test_a_new_instance_younger_than_five_minutes_that_is_not_visible_is_not_lost(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    scene.hide(instance_id)
    worker = await scene.record(instance_id)
    [other] = await scene.fleet_of(1)
    worker = worker.model_copy(update={"instance_since": clock.now()})
    monitor = scene.monitor()
    recorded = clock.boottime()
    while clock.boottime() - recorded < 290:
        diff = await monitor.sweep([worker, other])
        assert diff is not None
        assert not diff.lost
        observation = monitor.last_observation(worker, 0.0)
        assert observation is not None
        assert observation.visibility is Visibility.NOT_VISIBLE
        assert monitor.loss_verdict(worker)[0] is LossVerdict.UNJUDGED
        await asyncio.sleep(30)
    await asyncio.sleep(60)
    diff = await monitor.sweep([worker, other])
    assert diff is not None
    assert diff.lost == diff.absent == {worker.id}
    assert (await monitor.observe(worker, 0.0)).visibility is Visibility.GONE
    assert monitor.loss_verdict(worker) == (LossVerdict.ALLOWED, "")


async def test_what_counts_is_the_age_of_the_instance_and_not_of_the_worker(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    worker = await scene.record(instance_id)
    await asyncio.sleep(BEYOND_DOUBT)
    scene.hide(instance_id)
    replaced = worker.model_copy(update={"instance_since": clock.now()})
    diff = await scene.monitor().sweep([replaced])
    assert diff is not None
    assert not diff.lost


async def test_one_that_only_lacks_its_tags_is_found_by_its_id(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch({"Name": "bare"}))
    worker = await scene.record(instance_id)
    await asyncio.sleep(BEYOND_DOUBT)
    monitor = scene.monitor()
    diff = await monitor.sweep([worker])
    assert diff is not None
    assert not diff.mismatched
    assert not diff.unseen


async def test_terminated_outside_is_lost_at_once_by_the_next_sweep(scene: RegionScene) -> None:
    workers = await scene.fleet_of(2)
    monitor = scene.monitor()
    await monitor.sweep(workers)
    scene.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, workers[0].instance_id))
    await asyncio.sleep(30)
    assert (await monitor.observe(workers[0], clock.boottime())).state is InstanceState.TERMINATED
    # A read of one worker alone gives no verdict.
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.UNJUDGED
    diff = await monitor.sweep(workers)
    assert diff is not None
    assert diff.lost == {workers[0].id}
    assert diff.absent == frozenset()
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.ALLOWED


async def test_a_verdict_is_about_the_instance_that_was_found_lost(scene: RegionScene) -> None:
    workers = await scene.fleet_of(2)
    monitor = scene.monitor()
    scene.hide(workers[0].instance_id or "")
    await scene.outlast(monitor, workers)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.ALLOWED
    replaced = workers[0].model_copy(update={"instance_id": "i-new"})
    assert monitor.loss_verdict(replaced)[0] is LossVerdict.UNJUDGED


# The whole region


async def test_failed_and_partial_sweeps_give_no_verdict(scene: RegionScene) -> None:
    workers = await scene.fleet_of(50)
    monitor = scene.monitor()
    scene.hide(workers[0].instance_id or "")
    await scene.outlast(monitor, workers)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.ALLOWED
    scene.world.inject_fault(REGION, FailPage(2, times=1))
    assert await monitor.sweep(workers, scan=True) is None
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.UNJUDGED
    scene.world.inject_fault(REGION, Outage(600))
    assert await monitor.sweep(workers, scan=True) is None
    assert not await scene.breaker_known()


async def test_an_empty_sweep_at_fifty_workers_opens_the_breaker_and_only_a_person_closes_it(
    scene: RegionScene,
) -> None:
    workers = await scene.fleet_of(50)
    monitor = scene.monitor()
    scene.hide(*(worker.instance_id or "" for worker in workers))
    await monitor.sweep(workers)
    assert await scene.breaker_known()
    await scene.outlast(monitor, workers)
    for _ in range(4):
        await monitor.sweep(workers, scan=True)
        assert {monitor.loss_verdict(worker)[0] for worker in workers} == {LossVerdict.BLOCKED}
        await asyncio.sleep(300)
    known = (await scene.internal.fleet()).breakers[REGION]
    assert known.only_a_person_closes
    assert known.affected == 50
    await scene.reset_breaker()
    await monitor.sweep(workers)
    assert {monitor.loss_verdict(worker)[0] for worker in workers} == {LossVerdict.ALLOWED}
    assert not await scene.breaker_known()


async def test_the_wrong_account_marks_none_also_after_a_reset(scene: RegionScene) -> None:
    workers = await scene.fleet_of(5)
    monitor = scene.monitor()
    scene.hide(*(worker.instance_id or "" for worker in workers))
    scene.place.account_id = OTHER_ACCOUNT
    for reset in (False, True):
        if reset:
            await scene.reset_breaker()
        for _ in range(3):
            await monitor.sweep(workers, scan=True)
            assert {monitor.loss_verdict(worker)[0] for worker in workers} == {LossVerdict.BLOCKED}
            observations = [await monitor.observe(worker, 0.0) for worker in workers]
            assert {observation.visibility for observation in observations} == {Visibility.NOT_VISIBLE}
            await asyncio.sleep(300)
    assert not await scene.breaker_known()


async def test_the_breaker_is_reported_once_and_closed_by_the_second_scan(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    monitor = scene.monitor()
    scene.terminate(*(worker.instance_id or "" for worker in workers[:10]))
    await asyncio.sleep(30)
    await monitor.sweep(workers, scan=True)
    for _ in range(9):
        await asyncio.sleep(30)
        await monitor.sweep(workers)
    assert monitor.breaker_open
    assert await scene.breaker_known()
    await asyncio.sleep(30)
    await monitor.sweep(workers, scan=True)
    assert not monitor.breaker_open
    assert [monitor.loss_verdict(worker)[0] for worker in workers] == [LossVerdict.ALLOWED] * 10 + [
        LossVerdict.UNJUDGED
    ] * 3
    assert len(await scene.audited("breaker_opened")) == len(await scene.audited("breaker_closed")) == 1


async def test_two_scans_do_not_share_a_sweep(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    monitor = scene.monitor()
    scene.terminate(*(worker.instance_id or "" for worker in workers[:10]))
    await asyncio.sleep(30)
    for _ in range(3):
        await monitor.sweep(workers, scan=True, max_age=60)
    assert monitor.breaker_open


async def test_a_breaker_that_was_open_is_taken_over_by_the_next_leader(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    scene.terminate(*(worker.instance_id or "" for worker in workers[:10]))
    await asyncio.sleep(30)
    await scene.monitor().sweep(workers, scan=True)
    await scene.internal.announce_leadership(Leader("worker-controller", 6))
    monitor = scene.monitor(term=6)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.UNJUDGED
    await monitor.sweep(workers, scan=True)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.BLOCKED
    await asyncio.sleep(300)
    await monitor.sweep(workers, scan=True)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.ALLOWED
    monitor.begin_term()
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.UNJUDGED


async def test_a_change_of_leader_restarts_the_count_of_absences(scene: RegionScene) -> None:
    """worker-lifecycle.md#gone."""
    workers = await scene.fleet_of(2)
    monitor = scene.monitor()
    scene.hide(workers[0].instance_id or "")
    await scene.outlast(monitor, workers, minutes=4)
    monitor.begin_term()
    await scene.outlast(monitor, workers, minutes=4)
    assert (await monitor.observe(workers[0], 0.0)).visibility is Visibility.NOT_VISIBLE
    await scene.outlast(monitor, workers, minutes=2)
    assert (await monitor.observe(workers[0], 0.0)).visibility is Visibility.GONE


async def test_the_only_instance_of_a_region_must_be_absent_for_thirty_minutes(scene: RegionScene) -> None:
    """worker-lifecycle.md#gone."""
    [worker] = await scene.fleet_of(1)
    monitor = scene.monitor()
    scene.hide(worker.instance_id or "")
    await scene.outlast(monitor, [worker], minutes=29)
    observation = await monitor.observe(worker, 0.0)
    assert observation.visibility is Visibility.NOT_VISIBLE
    assert (observation.absent_sweeps, observation.gone_after) == (30, 1800.0)
    await scene.outlast(monitor, [worker], minutes=2)
    assert (await monitor.observe(worker, 0.0)).visibility is Visibility.GONE
    assert monitor.loss_verdict(worker)[0] is LossVerdict.ALLOWED


async def test_an_instance_too_young_to_be_missed_says_nothing_about_the_region(scene: RegionScene) -> None:
    """worker-lifecycle.md#gone: nor does the breaker count it."""
    worker, other = await scene.fleet_of(2)
    monitor = scene.monitor()
    scene.hide(worker.instance_id or "", other.instance_id or "")
    for _ in range(7):
        young = other.model_copy(update={"instance_since": clock.now() - timedelta(minutes=4)})
        await monitor.sweep([worker, young])
        await asyncio.sleep(60)
    assert (await monitor.observe(worker, 0.0)).visibility is Visibility.NOT_VISIBLE
    assert not await scene.breaker_known()


async def test_one_that_is_to_be_terminated_says_nothing_about_the_region(scene: RegionScene) -> None:
    worker, other = await scene.fleet_of(2)
    leaving = other.model_copy(update={"desired_status": DesiredStatus.TERMINATED})
    monitor = scene.monitor()
    scene.hide(worker.instance_id or "", other.instance_id or "")
    await scene.outlast(monitor, [worker, leaving], minutes=20)
    assert (await monitor.observe(worker, 0.0)).visibility is Visibility.NOT_VISIBLE


async def test_a_report_that_fails_is_made_again(scene: RegionScene, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = await scene.fleet_of(13)
    monitor = scene.monitor()
    scene.terminate(*(worker.instance_id or "" for worker in workers[:10]))
    await asyncio.sleep(30)
    really = scene.internal.report_breaker

    async def fail(leader: Leader, body: BreakerReport) -> FleetState:
        raise UnreachableError("no route")

    monkeypatch.setattr(scene.internal, "report_breaker", fail)
    await monitor.sweep(workers, scan=True)
    await asyncio.sleep(300)
    await monitor.sweep(workers, scan=True)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.BLOCKED
    monkeypatch.setattr(scene.internal, "report_breaker", really)
    await monitor.sweep(workers)
    assert await scene.breaker_known()
    await asyncio.sleep(300)
    await monitor.sweep(workers, scan=True)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.ALLOWED


async def test_until_the_breaker_was_read_there_is_no_verdict(
    scene: RegionScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = await scene.fleet_of(2)
    monitor = scene.monitor()
    scene.terminate(workers[0].instance_id or "")
    await asyncio.sleep(30)

    async def fail() -> FleetState:
        raise UnreachableError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(scene.internal, "fleet", fail)
        await monitor.sweep(workers)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.UNJUDGED
    await monitor.sweep(workers)
    assert monitor.loss_verdict(workers[0])[0] is LossVerdict.ALLOWED


async def test_an_outdated_leader_gets_an_error(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    scene.hide(*(worker.instance_id or "" for worker in workers))
    await scene.internal.announce_leadership(Leader("worker-controller", 9))
    with pytest.raises(StaleTermError):
        await scene.monitor().sweep(workers)


async def test_instances_missing_from_a_sweep_are_read_in_one_call(scene: RegionScene) -> None:
    """discovery.md#orphans: verified by id."""
    workers = await scene.fleet_of(20)
    scene.hide(*(worker.instance_id or "" for worker in workers))
    before = scene.world.calls()["DescribeInstances"]
    await scene.monitor().sweep(workers)
    assert scene.world.calls()["DescribeInstances"] - before == 2
