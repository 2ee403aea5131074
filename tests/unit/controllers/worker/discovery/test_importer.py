"""Imports on the simulated cloud and a real control plane: what becomes a worker, and as what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.types import INSTALLATION_TAG, WORKER_TAG
from lcm.cml.types import SystemInformation
from lcm.controllers.worker.discovery.scan import Discovery
from lcm.core import clock
from lcm.model.worker.status import DesiredStatus, WorkerOrigin, WorkerStatus
from tests.unit.controllers.worker.discovery.region_scene import (
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


async def test_a_running_cml_is_imported_as_it_is(scene: RegionScene) -> None:
    tags = {"cml-managed": "true", "Name": "lab-7", "cml-environment": "production", "cml-region": "us-east-1"}
    more = {f"tag-{number:02}": "x" for number in range(50)}
    [instance_id] = await scene.up(scene.launch({**more, **tags, "aws:cloudformation:stack": "s"}))
    discovery = scene.discovery()
    await discovery.scan()
    [worker] = await scene.workers()
    assert worker.instance_id == instance_id
    assert (worker.name, worker.origin) == ("lab-7", WorkerOrigin.IMPORTED)
    assert (worker.status, worker.desired_status) == (WorkerStatus.RUNNING, DesiredStatus.RUNNING)
    assert worker.public_ip == scene.machine(instance_id).public_ip
    assert worker.aws_account_id == scene.place.account_id
    assert worker.cml_version == "2.9.0+build.3"
    assert len(worker.tags) == 40
    assert worker.tags["cml-environment"] == "production"
    assert worker.tags["cml-region"] == "us-east-1"
    assert not any(key.startswith(("lcm:", "aws:")) for key in worker.tags)
    await discovery.scan()
    assert discovery.imported_count == len(await scene.workers()) == 1


async def test_a_stopped_instance_is_imported_without_a_probe(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    await scene.provider.stop_instance(REGION, instance_id)
    discovery = scene.discovery()
    await discovery.scan()
    assert await scene.workers() == []
    await asyncio.sleep(60)
    await discovery.scan()
    [worker] = await scene.workers()
    assert (worker.status, worker.desired_status) == (WorkerStatus.STOPPED, DesiredStatus.STOPPED)
    assert scene.servers.asked == []


async def test_what_is_no_cml_or_not_ready_or_silent_is_not_imported_this_time(scene: RegionScene) -> None:
    [no_cml] = await scene.up(scene.launch(), cml=False)
    [starting, silent, ready] = await scene.up(scene.launch(), scene.launch(), scene.launch())
    address = scene.machine(starting).public_ip or ""
    scene.servers.responses[address] = SystemInformation("2.9.0", False)
    scene.servers.silent.add(scene.machine(silent).public_ip or "")
    discovery = scene.discovery()
    began = clock.boottime()
    await discovery.scan()
    assert clock.boottime() - began < 10
    assert instances(await scene.workers()) == [ready]
    scene.servers.responses[address] = SystemInformation("2.9.0", True)
    await discovery.scan()
    assert set(instances(await scene.workers())) == {ready, starting}
    assert no_cml not in instances(await scene.workers())


async def test_ten_instances_are_probed_at_once(scene: RegionScene) -> None:
    await scene.up(*(scene.launch() for _ in range(25)))
    await scene.discovery().scan()
    assert scene.servers.most_at_once == 10
    assert len(await scene.workers()) == 25


async def test_a_name_that_is_taken_or_does_not_fit_is_left_out(scene: RegionScene) -> None:
    await scene.plane.create("lab")
    ids = await scene.up(
        scene.launch({"cml-managed": "true", "Name": "lab"}), scene.launch({"cml-managed": "true", "Name": "Ünser Lab"})
    )
    await scene.discovery().scan()
    assert {worker.name for worker in await scene.workers()} == {"lab", *ids}


async def test_only_what_the_filter_says(scene: RegionScene) -> None:
    tagged = await scene.up(
        scene.launch({"cml-managed": "false"}), scene.launch({"team": "net"}), scene.launch({"team": "sec"})
    )
    discovery = scene.discovery()
    await discovery.scan()
    assert await scene.workers() == []
    scene.set(worker_discovery_tag_filter="team=net")
    await discovery.scan()
    assert instances(await scene.workers()) == [tagged[1]]
    scene.set(worker_discovery_tag_filter="team")
    await discovery.scan()
    assert set(instances(await scene.workers())) == {tagged[1], tagged[2]}


async def test_by_image_name_where_that_is_configured(scene: RegionScene) -> None:
    [bare] = await scene.up(scene.launch({"Name": "bare"}))
    scene.set(worker_discovery_ami_filter="other-*")
    discovery = scene.discovery()
    await discovery.scan()
    assert await scene.workers() == []
    scene.set(worker_discovery_ami_filter="cml-2.*")
    await discovery.scan()
    assert instances(await scene.workers()) == [bare]


async def test_an_image_name_is_searched_besides_the_tag(scene: RegionScene) -> None:
    """settings.md: instances of matching images are imported too, besides those with the tag."""
    found = await scene.up(scene.launch({"Name": "bare"}))
    scene.image = scene.world.add_image(REGION, "ubuntu", created_at=clock.now())
    found += await scene.up(scene.launch({"cml-managed": "true"}), scene.launch({"Name": "neither"}))
    scene.set(worker_discovery_ami_filter="cml-2.*")
    await scene.discovery().scan()
    assert set(instances(await scene.workers())) == set(found[:2])


async def test_another_installations_instances_are_never_touched(scene: RegionScene) -> None:
    await scene.up(
        scene.launch_for("w-theirs", installation="theirs"),
        scene.launch({"cml-managed": "true", WORKER_TAG: "w-theirs"}),
        scene.launch({"cml-managed": "true", INSTALLATION_TAG: "theirs"}),
    )
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    for _ in range(4):
        await discovery.scan()
        await asyncio.sleep(300)
    assert await scene.workers() == []
    assert discovery.leaks.current == ()
    assert scene.servers.asked == scene.effects == []


async def test_one_that_is_just_being_launched_for_a_worker_is_not_imported(scene: RegionScene) -> None:
    worker = await scene.plane.create("new")
    await scene.up(scene.launch_for(worker["id"]))
    await scene.discovery().scan()
    assert [each.id for each in await scene.workers()] == [worker["id"]]


async def test_one_whose_own_worker_lives_is_no_candidate_whoever_had_it_before(scene: RegionScene) -> None:
    worker = await scene.plane.create("owner")
    [instance_id] = await scene.up(scene.launch_for(worker["id"]))
    await scene.terminated(instance_id, desired=False, name="former")
    await scene.discovery().scan()
    assert [each.id for each in await scene.workers()] == [worker["id"]]


async def test_two_leaders_that_import_the_same_instance_give_one_worker(scene: RegionScene) -> None:
    ids = await scene.up(*(scene.launch() for _ in range(5)))
    one, other = scene.discovery(), scene.discovery()
    await asyncio.gather(one.scan(), other.scan())
    assert sorted(instances(await scene.workers())) == sorted(ids)
    late = scene.discovery(term=6)
    ids += await scene.up(scene.launch())
    await asyncio.gather(one.scan(), late.scan(), return_exceptions=True)
    assert sorted(instances(await scene.workers())) == sorted(ids)


async def test_an_instance_of_a_lost_worker_that_comes_back_is_imported_with_its_past(scene: RegionScene) -> None:
    [lost, *_] = await scene.fleet_of(3)
    scene.hide(lost.instance_id or "")
    discovery = scene.discovery()
    await scene.scan_for(discovery, minutes=10)
    assert (await scene.now(lost)).status is WorkerStatus.TERMINATED
    scene.reveal(lost.instance_id or "")
    await discovery.scan()
    [back] = [worker for worker in await scene.workers() if worker.instance_id == lost.instance_id]
    assert back.previous_worker_id == lost.id
    assert (await scene.now(lost)).status is WorkerStatus.TERMINATED
    assert discovery.leaks.current == ()


async def test_one_that_we_launched_and_lost_comes_back_too(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch_for("w-placeholder"))
    worker = await scene.terminated(instance_id, desired=False)
    scene.machine(instance_id).tags = {**scene.machine(instance_id).tags, WORKER_TAG: worker.id}
    scene.machine(instance_id)._shown = None
    await scene.discovery().scan()
    [back] = await scene.workers()
    assert (back.instance_id, back.previous_worker_id) == (instance_id, worker.id)
    assert not any(key.startswith("lcm:") for key in back.tags)


async def test_one_whose_worker_was_to_be_terminated_is_a_leak_and_not_imported(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    worker = await scene.terminated(instance_id, desired=True)
    scene.set(terminate_leaked_instances=True)
    discovery = scene.discovery()
    for _ in range(4):
        await discovery.scan()
        await asyncio.sleep(300)
    assert await scene.workers() == []
    [leak] = discovery.leaks.current
    assert (leak.instance_id, leak.worker_id, leak.terminable) == (instance_id, worker.id, False)
    assert scene.effects == []


async def test_with_private_addresses_no_other_is_called(scene: RegionScene) -> None:
    [instance_id] = await scene.up(scene.launch())
    machine = scene.machine(instance_id)
    known = scene.discovery()
    discovery = Discovery(replace(known._deps, private_addresses=True), known._monitors)
    await discovery.scan()
    assert scene.servers.asked == [machine.private_ip]
