"""Discovery on the simulated cloud and a real control plane: which workers are marked as lost, and which not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.client.base import Leader
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange, FailPage, Outage, RefuseCalls, ScriptedFault
from lcm.core import clock
from lcm.core.controller.leader_election import StaleTermError
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.unit.controllers.worker.discovery.region_scene import (
    BEYOND_DOUBT,
    OTHER_ACCOUNT,
    REGION,
    RegionScene,
    region_scene,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.worker.record import Worker


@pytest.fixture
async def scene() -> AsyncIterator[RegionScene]:
    async with region_scene() as scene:
        yield scene


def instances(workers: list[Worker]) -> list[str]:
    return [worker.instance_id or "" for worker in workers]


# Orphans


async def test_ten_ghosts_among_thirteen_are_marked_after_a_person_has_confirmed_it(scene: RegionScene) -> None:
    """discovery.md#orphans: the ten of thirteen that its log shows."""
    workers = await scene.fleet_of(13)
    scene.hide(*instances(workers[:10]))
    discovery = scene.discovery()
    await scene.scan_for(discovery, minutes=60)
    assert await scene.marked() == []
    assert (await scene.internal.fleet()).breakers[REGION].only_a_person_closes
    await scene.reset_breaker()
    await discovery.scan()
    marked = await scene.marked()
    assert {worker.id for worker in marked} == {worker.id for worker in workers[:10]}
    assert {worker.terminated_by for worker in marked} == {"discovery-gc"}
    assert {worker.terminated_reason for worker in marked} == {"EC2 instance not found during discovery"}
    assert {worker.desired_status for worker in marked} == {DesiredStatus.RUNNING}
    assert discovery.orphans_terminated_count == discovery.stats()["orphans_terminated_count"] == 10
    assert not await scene.breaker_known()


async def test_two_ghosts_among_thirteen_are_marked_once_they_are_certainly_gone(scene: RegionScene) -> None:
    """discovery.md#orphans: marked, and each is logged."""
    workers = await scene.fleet_of(13)
    scene.hide(*instances(workers[:2]))
    discovery = scene.discovery()
    await scene.scan_for(discovery, minutes=5)
    assert await scene.marked() == []
    assert set(scene.woken) == {worker.id for worker in workers[:2]}
    scene.woken.clear()
    await asyncio.sleep(300)
    with capture_logs() as logs:
        await discovery.scan()
    assert {worker.id for worker in await scene.marked()} == {worker.id for worker in workers[:2]}
    lost = [each for each in logs if each["event"] == "worker lost"]
    assert {each["log_level"] for each in lost} == {"warning"}
    assert [(each["worker"], each["instance_id"], each["region"]) for each in lost] == [
        (worker.id, worker.instance_id, REGION) for worker in sorted(workers[:2], key=lambda each: each.id)
    ]
    assert scene.woken == []
    assert not await scene.breaker_known()


async def test_losses_of_the_last_half_hour_count_together(scene: RegionScene) -> None:
    """worker-lifecycle.md#breaker: the control plane counts in the commit that writes each loss."""
    workers = await scene.fleet_of(13)
    discovery = scene.discovery()
    for count in (1, 2, 3):
        scene.hide(workers[count - 1].instance_id or "")
        await scene.scan_for(discovery, minutes=10)
    assert len(await scene.marked()) == 2
    known = (await scene.internal.fleet()).breakers[REGION]
    assert known.only_a_person_closes
    assert known.reason.startswith("eu-west-1: 3 of 13 workers lost within 30 minutes")
    # Another leader does not forget it.
    await scene.internal.announce_leadership(Leader("worker-controller", 6))
    await scene.scan_for(scene.discovery(term=6), minutes=60)
    assert len(await scene.marked()) == 2
    await scene.reset_breaker()
    await scene.internal.announce_leadership(Leader("worker-controller", 7))
    await scene.scan_for(scene.discovery(term=7), minutes=10)
    assert len(await scene.marked()) == 3


async def test_losses_more_than_half_an_hour_apart_do_not_count_together(scene: RegionScene) -> None:
    workers = await scene.fleet_of(5)
    discovery = scene.discovery()
    for count in (1, 2, 3):
        scene.hide(workers[count - 1].instance_id or "")
        await scene.scan_for(discovery, minutes=40)
        assert len(await scene.marked()) == count
    assert not await scene.breaker_known()


async def test_an_empty_scan_at_fifty_workers_marks_none_and_opens_the_breaker(scene: RegionScene) -> None:
    workers = await scene.fleet_of(50)
    scene.hide(*instances(workers))
    discovery = scene.discovery()
    await discovery.scan()
    assert (await scene.internal.fleet()).breakers[REGION].only_a_person_closes
    await scene.scan_for(discovery, minutes=20)
    assert await scene.marked() == []
    await scene.reset_breaker()
    await discovery.scan()
    assert len(await scene.marked()) == 50


async def test_a_partial_scan_at_fifty_workers_marks_none(scene: RegionScene) -> None:
    """discovery.md#orphans: only what a whole scan did not find."""
    workers = await scene.fleet_of(50)
    scene.hide(*instances(workers[:2]))
    scene.world.inject_fault(REGION, FailPage(2, times=1000))
    discovery = scene.discovery()
    for _ in range(3):
        await discovery.scan()
        await asyncio.sleep(300)
    assert await scene.marked() == []
    assert not await scene.breaker_known()
    assert "incomplete" in discovery.errors[REGION]


async def test_a_failing_scan_at_fifty_workers_marks_none(scene: RegionScene) -> None:
    """discovery.md#orphans: a scan that failed has found nothing out."""
    await scene.fleet_of(50)
    scene.world.inject_fault(REGION, Outage(1e9))
    discovery = scene.discovery()
    for _ in range(3):
        await discovery.scan()
        await asyncio.sleep(300)
    assert await scene.marked() == []
    assert not await scene.breaker_known()
    scene.world.inject_fault(REGION, Outage(0.0))
    await discovery.scan()
    assert discovery.errors == {}


async def test_a_scan_whose_read_by_id_fails_marks_none(scene: RegionScene) -> None:
    workers = await scene.fleet_of(3)
    scene.hide(workers[0].instance_id or "")
    calls = scene.world.calls()["DescribeInstances"]
    # The sweep is one page; the next call is the one by id.
    fails_then = ScriptedFault(
        RefuseCalls("DescribeInstances", "InternalError"), REGION, operation="DescribeInstances", nth=2
    )
    scene.world.play([fails_then])
    discovery = scene.discovery()
    await discovery.scan()
    assert scene.world.calls()["DescribeInstances"] == calls + 2
    assert await scene.marked() == []
    assert REGION in discovery.errors
    await scene.scan_for(discovery, minutes=5)
    assert await scene.marked() == []
    await asyncio.sleep(300)
    await discovery.scan()
    assert len(await scene.marked()) == 1


async def test_the_wrong_account_never_marks_a_worker_also_after_a_reset(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    await scene.up(scene.launch())
    scene.hide(*instances(workers))
    scene.place.account_id = OTHER_ACCOUNT
    discovery = scene.discovery()
    for _ in range(3):
        await discovery.scan()
        await asyncio.sleep(300)
    assert discovery.imported_count == 0
    await scene.reset_breaker()
    for _ in range(3):
        await discovery.scan()
        await asyncio.sleep(300)
    assert await scene.marked() == []


async def test_a_new_instance_younger_than_five_minutes_that_is_not_visible_is_not_lost(scene: RegionScene) -> None:
    await scene.fleet_of(2)
    [instance_id] = await scene.up(scene.launch())
    scene.hide(instance_id)
    await scene.record(instance_id)
    discovery = scene.discovery()
    for _ in range(5):
        await discovery.scan()
        await asyncio.sleep(60)
    assert await scene.marked() == []
    await asyncio.sleep(120)
    await discovery.scan()
    assert len(await scene.marked()) == 1


async def test_when_disabled_nothing_is_marked_or_imported_but_scans_continue(scene: RegionScene) -> None:
    workers = await scene.fleet_of(13)
    scene.terminate(*instances(workers[:10]))
    await scene.up(scene.launch())
    scene.set(worker_discovery_enabled=False)
    discovery = scene.discovery()
    await discovery.scan()
    assert await scene.breaker_known()
    await asyncio.sleep(300)
    await discovery.scan()
    assert not await scene.breaker_known()
    assert len(await scene.workers()) == 13
    assert set(scene.woken) == {worker.id for worker in workers[:10]}


async def test_without_settings_nothing_is_marked_or_imported(scene: RegionScene) -> None:
    workers = await scene.fleet_of(3)
    scene.hide(workers[0].instance_id or "")
    await scene.up(scene.launch())
    scene.settings = None
    discovery = scene.discovery()
    for _ in range(3):
        await discovery.scan()
        await asyncio.sleep(300)
    assert {worker.id for worker in await scene.workers()} == {worker.id for worker in workers}


@pytest.mark.parametrize("whose", ["worker", "fleet"])
async def test_a_hold_keeps_a_lost_worker(scene: RegionScene, whose: str) -> None:
    [worker, *_] = await scene.fleet_of(3)
    scene.hide(worker.instance_id or "")
    await scene.hold("/api/fleet/hold" if whose == "fleet" else f"/api/workers/{worker.id}/hold")
    discovery = scene.discovery()
    await scene.scan_for(discovery, minutes=10)
    assert await scene.marked() == []
    assert scene.woken == [worker.id] * 3


async def test_replace_provisioning_and_terminated_ones_are_only_woken(scene: RegionScene) -> None:
    """discovery.md#orphans: who is compared."""
    workers = await scene.fleet_of(1)
    replace = await scene.plane.create("replace", lost_instance_policy="replace")
    replace = await scene.plane.report(replace, "PROVISIONING", instance_id="i-0a")
    replace = await scene.plane.report(await scene.plane.report(replace, "STARTING"), "RUNNING")
    young = await scene.plane.report(await scene.plane.create("young"), "PROVISIONING", instance_id="i-0b")
    scene.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, workers[0].instance_id))
    await asyncio.sleep(BEYOND_DOUBT)
    discovery = scene.discovery()
    await discovery.scan()
    assert await scene.marked() == []
    assert set(scene.woken) == {replace["id"], young["id"], workers[0].id}


async def test_a_worker_changed_meanwhile_is_left_for_the_next_scan(scene: RegionScene) -> None:
    [worker, *_] = await scene.fleet_of(3)
    scene.hide(worker.instance_id or "")
    monitor = scene.monitor()
    really = monitor.sweep

    async def sweep(*given: object, **more: object) -> object:
        diff = await really(*given, **more)  # type: ignore[arg-type]
        await scene.plane.ask("PATCH", f"/api/workers/{worker.id}", json={"tags": {"note": str(clock.boottime())}})
        return diff

    monitor.sweep = sweep  # type: ignore[method-assign,assignment]
    discovery = scene.discovery(monitor)
    await scene.scan_for(discovery, minutes=10)
    assert (await scene.now(worker)).status is WorkerStatus.RUNNING
    assert discovery.orphans_terminated_count == 0
    monitor.sweep = really  # type: ignore[method-assign]
    await discovery.scan()
    assert (await scene.now(worker)).status is WorkerStatus.TERMINATED


# The loop


async def test_the_first_scan_is_5_s_after_leadership_then_every_interval(scene: RegionScene) -> None:
    """discovery.md#import: soon after an election, then each interval."""
    discovery = scene.discovery()
    began = clock.boottime()
    running = asyncio.create_task(discovery.run())
    await asyncio.sleep(4.9)
    assert scene.world.calls()["DescribeInstances"] == 0
    await asyncio.sleep(5)
    assert discovery.scans_count == 1
    scene.set(discovery_interval=60.0)
    await asyncio.sleep(300 - (clock.boottime() - began))
    assert discovery.scans_count == 1
    await asyncio.sleep(10)
    assert discovery.scans_count == 2
    await asyncio.sleep(600)
    assert discovery.scans_count == 12
    running.cancel()
    await asyncio.wait([running])


async def test_an_overtaken_leader_ends_the_loop(scene: RegionScene) -> None:
    await scene.up(scene.launch())
    await scene.internal.announce_leadership(Leader("worker-controller", 9))
    with pytest.raises(StaleTermError):
        await scene.discovery().run()
    assert await scene.workers() == []
