"""A restarted simulated cloud continues from its stored state."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import LaunchTokenSpentError
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing, persistence
from lcm.cloud.simulated.faults import AnnounceMaintenance, FailStatusCheck
from lcm.cloud.simulated.machine import MaintenanceEvent, _event_from_json
from lcm.cloud.types import HealthKind, InstanceSelection, InstanceState
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.virtual.time import VirtualClock

REGION = "eu-central-1"
TIMING = Timing(pending=(30.0, 30.0), stopping=(60.0, 60.0))


async def busy_world() -> tuple[SimulatedCloud, SimulatedProvider, str, list[str]]:
    world = SimulatedCloud(seed=4, timing=TIMING)
    world.add_region(REGION, subnets={"subnet-a": "a"})
    image = world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
    provider = SimulatedProvider(world)
    ids = []
    for number in range(4):
        parameters = launch_of(f"w{number}", 1, region=REGION, image_id=image, subnet_id="subnet-a")
        ids.append((await provider.launch_instance(parameters)).id)
    await asyncio.sleep(60)
    await provider.terminate_instance(REGION, ids[3])
    await asyncio.sleep(120)
    world.inject_fault(REGION, FailStatusCheck(HealthKind.SYSTEM_IMPAIRED, ids[0]))
    world.inject_fault(REGION, AnnounceMaintenance("reboot", 3600, ids[0]))
    await provider.stop_instance(REGION, ids[1])
    return world, provider, image, ids


async def test_the_stored_form_is_plain_json_and_restores_the_same() -> None:
    world, *_ = await busy_world()
    picture = json.loads(json.dumps(world.to_json()))
    again = SimulatedCloud.from_json(picture, timing=TIMING)
    assert again.to_json() == {**picture, "restarts": 1}


async def test_instances_keep_their_ids_tokens_and_faults() -> None:
    world, provider, image, ids = await busy_world()
    before = (await provider.sweep(REGION, InstanceSelection())).instances
    again = SimulatedCloud.from_json(world.to_json(), timing=TIMING)
    restarted = SimulatedProvider(again)
    assert (await restarted.sweep(REGION, InstanceSelection())).instances == before
    assert {notice.kind for notice in await restarted.health(REGION)} == {
        HealthKind.SYSTEM_IMPAIRED,
        HealthKind.MAINTENANCE,
    }
    replay = launch_of("w2", 1, region=REGION, image_id=image, subnet_id="subnet-a")
    assert (await restarted.launch_instance(replay)).id == ids[2]
    with pytest.raises(LaunchTokenSpentError):
        await restarted.launch_instance(
            launch_of("w3", 1, region=REGION, image_id=image, subnet_id="subnet-a"),
        )
    fresh = await restarted.launch_instance(
        launch_of("w9", 1, region=REGION, image_id=image, subnet_id="subnet-a"),
    )
    assert fresh.id not in ids
    assert fresh.public_ip not in {instance.public_ip for instance in before.values()}


async def test_transitions_that_fell_due_while_it_was_off_have_happened(virtual_clock: VirtualClock) -> None:
    world, provider, _, ids = await busy_world()
    stopping = (await provider.describe(REGION, [ids[1]])).instances[ids[1]]
    assert stopping.state is InstanceState.STOPPING
    picture = world.to_json()
    virtual_clock.suspended += 120
    restarted = SimulatedProvider(SimulatedCloud.from_json(picture, timing=TIMING))
    assert (await restarted.describe(REGION, [ids[1]])).instances[ids[1]].state is InstanceState.STOPPED


async def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    world, *_ = await busy_world()
    path = tmp_path / "cloud.json"
    persistence.save(path, world.to_json())
    first = path.read_bytes()
    with pytest.raises(TypeError):
        persistence.save(path, {"format": object()})
    assert path.read_bytes() == first
    persistence.save(path, world.to_json())
    assert persistence.load(path) == world.to_json()


async def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        SimulatedCloud.from_json({"format": 99})


def test_events_of_an_earlier_version_are_restored() -> None:
    assert _event_from_json("[Completed] reboot", 5.0) == MaintenanceEvent("reboot", 5.0, completed=True)
    assert _event_from_json("reboot", 5.0) == MaintenanceEvent("reboot", 5.0, completed=False)
    assert _event_from_json("reboot", 5.0, completed=True) == MaintenanceEvent("reboot", 5.0, completed=True)
