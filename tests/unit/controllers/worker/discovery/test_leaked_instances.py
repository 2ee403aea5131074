"""Leaked instances: which they are, that they are reported once, and when they may be terminated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.types import Instance, InstanceState
from lcm.controllers.worker.discovery.leaked_instances import classify_instance
from lcm.model.access import Role
from lcm.model.worker.record import LaunchIntent
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import a_worker
from tests.support.virtual.time import START
from tests.unit.controllers.worker.discovery.region_scene import REGION, RegionScene, region_scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.controllers.worker.discovery.scan import Discovery
    from lcm.model.worker.record import Worker

INTENT = LaunchIntent(attempt=1, parameters={"region": REGION}, stored_at=START)
INSTANCE = Instance("i-1", InstanceState.RUNNING, "t3.large", "ami-1", START, tags={"lcm:worker_id": "w-1"})


@pytest.fixture
async def scene() -> AsyncIterator[RegionScene]:
    async with region_scene() as scene:
        yield scene


@pytest.mark.parametrize(
    ("worker", "terminable"),
    [
        (None, False),
        (a_worker(status=WorkerStatus.RUNNING, instance_id="i-1"), None),
        (a_worker(launch_intent=INTENT), None),
        (a_worker(launch_intent=INTENT, desired_status=DesiredStatus.TERMINATED), None),
        (a_worker(), False),
        (a_worker(status=WorkerStatus.FAILED), False),
        (a_worker(status=WorkerStatus.RUNNING, instance_id="i-2"), True),
        (a_worker(status=WorkerStatus.FAILED, instance_id="i-2"), True),
        (a_worker(status=WorkerStatus.TERMINATED, instance_id="i-1"), False),
        (a_worker(status=WorkerStatus.TERMINATED, instance_id="i-2"), True),
        (a_worker(status=WorkerStatus.TERMINATED, desired_status=DesiredStatus.TERMINATED), True),
        (a_worker(status=WorkerStatus.TERMINATED, instance_id="i-1", desired_status=DesiredStatus.TERMINATED), True),
    ],
)
def test_what_an_instance_is_by_its_worker(worker: Worker | None, terminable: bool | None) -> None:
    """None: no leak."""
    finding = classify_instance(INSTANCE, worker)
    assert (None if finding is None else finding.terminable) is terminable


async def leaked(scene: RegionScene, name: str = "ended") -> tuple[str, Worker]:
    """A live instance of a worker that was to be terminated, and is."""
    worker = await scene.plane.create(name)
    [instance_id] = await scene.up(scene.launch_for(worker["id"]))
    worker = await scene.plane.report(worker, "PROVISIONING", instance_id=instance_id)
    worker = (await scene.plane.ask("DELETE", f"/api/workers/{worker['id']}")).json()
    await scene.plane.report(worker, "TERMINATED")
    return instance_id, await scene.internal.worker(worker["id"])


async def scans(discovery: Discovery, times: int, every: float = 300.0) -> None:
    for _ in range(times):
        await discovery.scan()
        await asyncio.sleep(every)


async def test_a_leak_is_reported_once_and_again_when_it_comes_back(scene: RegionScene) -> None:
    instance_id, worker = await leaked(scene)
    discovery = scene.discovery()
    await scans(discovery, 3)
    [entry] = await scene.audited("leaked_instance")
    assert entry["subject"] == instance_id
    assert worker.id in entry["reason"]
    assert [leak.instance_id for leak in discovery.leaks.current] == [instance_id]
    scene.hide(instance_id)
    await scans(discovery, 1)
    assert discovery.leaks.current == ()
    scene.reveal(instance_id)
    await scans(discovery, 2)
    assert len(await scene.audited("leaked_instance")) == 2
    assert scene.effects == []


async def test_instances_of_unknown_workers_are_reported_and_not_touched(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch_for("w-unknown"))
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    await scans(discovery, 5)
    assert [leak.instance_id for leak in discovery.leaks.current] == [instance_id]
    assert await scene.workers() == []
    assert scene.effects == []


async def test_a_leak_is_ended_only_after_ten_minutes_and_two_scans(scene: RegionScene) -> None:
    instance_id, _ = await leaked(scene)
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    await scans(discovery, 2)
    assert scene.effects == []
    await discovery.scan()
    assert scene.effects == [instance_id]
    assert scene.machine(instance_id).state is InstanceState.SHUTTING_DOWN
    [entry] = await scene.audited("leaked_instance_terminated")
    assert entry["subject"] == instance_id
    await scans(discovery, 2)
    assert scene.effects == [instance_id]
    assert discovery.leaks.current == ()


async def test_one_long_scan_is_not_two(scene: RegionScene) -> None:
    await leaked(scene)
    scene.set(terminate_leaked_instances=True)
    await asyncio.sleep(3600)
    discovery = scene.discovery()
    await discovery.scan()
    assert scene.effects == []


async def test_one_that_vanished_in_between_is_seen_anew(scene: RegionScene) -> None:
    instance_id, _ = await leaked(scene)
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    await scans(discovery, 1)
    scene.hide(instance_id)
    await scans(discovery, 1)
    scene.reveal(instance_id)
    await scans(discovery, 2)
    assert scene.effects == []
    await discovery.scan()
    assert scene.effects == [instance_id]


async def test_a_second_instance_of_a_worker_is_ended_and_its_own_is_not(scene: RegionScene) -> None:
    worker = await scene.plane.create("twice")
    [own, second] = await scene.up(scene.launch_for(worker["id"]), scene.launch_for(worker["id"]))
    worker = await scene.plane.report(worker, "PROVISIONING", instance_id=own)
    await scene.plane.report(await scene.plane.report(worker, "STARTING"), "RUNNING")
    scene.set(terminate_leaked_instances=True)
    await scans(scene.discovery(), 4)
    assert scene.effects == [second]
    assert scene.world.live_instances() == [own]


@pytest.mark.parametrize("whose", ["worker", "fleet"])
async def test_never_under_a_hold(scene: RegionScene, whose: str) -> None:
    worker = await scene.plane.create("twice")
    [own, second] = await scene.up(scene.launch_for(worker["id"]), scene.launch_for(worker["id"]))
    await scene.plane.report(worker, "PROVISIONING", instance_id=own)
    place = "/api/fleet" if whose == "fleet" else f"/api/workers/{worker['id']}"
    await scene.hold(f"{place}/hold")
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    await scans(discovery, 5)
    assert scene.effects == []
    await scene.plane.ask("POST", f"{place}/release", json={})
    await discovery.scan()
    assert scene.effects == [second]


async def test_never_while_the_breaker_is_open(scene: RegionScene) -> None:
    instance_id, _ = await leaked(scene)
    workers = await scene.fleet_of(6)
    scene.hide(*(worker.instance_id or "" for worker in workers))
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    await scans(discovery, 5)
    assert await scene.breaker_known()
    assert scene.effects == []
    await scene.reset_breaker()
    await scans(discovery, 2)
    assert scene.effects == [instance_id]


async def test_a_launch_in_flight_is_no_leak(scene: RegionScene) -> None:
    worker = await scene.plane.create("new")
    path = f"/api/internal/workers/{worker['id']}/launch"

    intent = {"version": worker["version"], "attempt": 1, "parameters": {"region": REGION}}
    answer = await scene.plane.ask("POST", path, role=Role.CONTROLLER, json=intent)
    assert answer.status_code == 200, answer.text
    await scene.up(scene.launch_for(worker["id"]))
    discovery = scene.discovery()
    await scans(discovery, 3)
    assert discovery.leaks.current == ()


async def test_one_that_could_not_be_ended_is_tried_once_a_scan(scene: RegionScene) -> None:
    instance_id, _ = await leaked(scene)
    scene.set(terminate_leaked_instances=True)
    scene.place.faults.refuse("TerminateInstances", "UnauthorizedOperation", 2)
    discovery = scene.discovery()
    await scans(discovery, 6)
    assert scene.effects == [instance_id] * 3
    assert len(await scene.audited("leaked_instance_terminated")) == 1
