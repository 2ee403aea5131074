"""Fault scripts of the simulated cloud: at a time, or at the nth call."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lcm.cloud.errors import (
    CloudOutcomeUnknownError,
    CloudThrottledError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
)
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing
from lcm.cloud.simulated.faults import (
    AnnounceMaintenance,
    DropFromReads,
    ExternalAction,
    ExternalChange,
    FailPage,
    FailStatusCheck,
    HalvePages,
    HideInstances,
    HideNewInstances,
    LackCapacity,
    LagReads,
    LoseResponses,
    Outage,
    RefuseCalls,
    ScriptedFault,
    ThrottleCalls,
)
from lcm.cloud.types import WORKER_TAG, HealthKind, InstanceSelection, InstanceState
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

REGION = "eu-central-1"
TIMING = Timing(pending=(10.0, 10.0), stopping=(20.0, 20.0), visible_after=(0.0, 0.0))


class Scene:
    def __init__(self, *steps: ScriptedFault) -> None:
        self.world = SimulatedCloud(seed=2, timing=TIMING)
        self.world.add_region(REGION)
        self.image = self.world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
        self.provider = SimulatedProvider(self.world)
        self.script = self.world.play(steps)

    async def launch(self, worker_id: str = "w1", subnet_id: str | None = None) -> str:
        parameters = launch_of(worker_id, 1, region=REGION, image_id=self.image, subnet_id=subnet_id)
        return (await self.provider.launch_instance(parameters)).id

    async def state(self, instance_id: str) -> InstanceState:
        return (await self.provider.describe(REGION, [instance_id])).instances[instance_id].state


async def test_a_step_strikes_at_the_nth_call_and_once() -> None:
    scene = Scene(
        ScriptedFault(
            RefuseCalls("RunInstances", "InsufficientInstanceCapacity"), REGION, operation="RunInstances", nth=2
        )
    )
    await scene.launch("w1")
    with pytest.raises(InsufficientCapacityError):
        await scene.launch("w2")
    await scene.launch("w2")
    assert scene.script.remaining == 0


async def test_timed_faults_take_effect_at_their_time_even_without_a_read() -> None:
    scene = Scene(ScriptedFault(ExternalChange(ExternalAction.STOP), REGION, at=100))
    instance_id = await scene.launch()
    await asyncio.sleep(130)
    assert await scene.state(instance_id) is InstanceState.STOPPED


async def test_an_outage_by_script_ends_by_itself() -> None:
    scene = Scene(ScriptedFault(Outage(60), REGION, at=30))
    assert (await scene.provider.sweep(REGION, InstanceSelection())).complete
    await asyncio.sleep(40)
    assert not (await scene.provider.sweep(REGION, InstanceSelection())).complete
    await asyncio.sleep(60)
    assert (await scene.provider.sweep(REGION, InstanceSelection())).complete


async def test_a_step_that_finds_no_instance_to_strike_is_spent() -> None:
    scene = Scene(
        ScriptedFault(ExternalChange(ExternalAction.TERMINATE), REGION, at=1),
        ScriptedFault(ExternalChange(ExternalAction.START, "i-unknown"), REGION, at=1),
        ScriptedFault(FailStatusCheck(HealthKind.SYSTEM_IMPAIRED, "i-unknown"), REGION, at=1),
    )
    await asyncio.sleep(2)
    assert (await scene.provider.sweep(REGION, InstanceSelection())).complete
    assert scene.script.remaining == 0


async def test_every_kind_of_fault_can_be_scripted() -> None:
    scene = Scene(
        ScriptedFault(ThrottleCalls("StopInstances"), REGION, at=20),
        ScriptedFault(LoseResponses(), REGION, operation="RunInstances", nth=2),
        ScriptedFault(HideNewInstances(50), REGION, operation="RunInstances", nth=3),
        ScriptedFault(FailPage(1), REGION, at=40),
        ScriptedFault(FailStatusCheck(HealthKind.INSTANCE_IMPAIRED), REGION, at=60),
        ScriptedFault(AnnounceMaintenance("reboot", 3600), REGION, at=60),
    )
    first = await scene.launch("w1")
    await asyncio.sleep(25)
    with pytest.raises(CloudThrottledError):
        await scene.provider.stop_instance(REGION, first)
    with pytest.raises(CloudOutcomeUnknownError):
        await scene.launch("w2")
    third = await scene.launch("w3")
    assert third not in (await scene.provider.describe(REGION, [third])).instances
    await asyncio.sleep(20)
    assert not (await scene.provider.sweep(REGION, InstanceSelection())).complete
    await asyncio.sleep(40)
    assert len((await scene.provider.sweep(REGION, InstanceSelection())).instances) == 3
    kinds = {notice.kind for notice in await scene.provider.health(REGION)}
    assert kinds == {HealthKind.INSTANCE_IMPAIRED, HealthKind.MAINTENANCE, HealthKind.CHECKS_PENDING}
    assert scene.script.remaining == 0


async def test_reads_may_lag_behind_a_change() -> None:
    scene = Scene(ScriptedFault(LagReads(15), REGION, at=60), ScriptedFault(LagReads(0), REGION, at=160))
    instance_id = await scene.launch()
    await asyncio.sleep(70)
    assert await scene.provider.stop_instance(REGION, instance_id) is InstanceState.STOPPING
    assert await scene.state(instance_id) is InstanceState.RUNNING
    await asyncio.sleep(16)
    assert await scene.state(instance_id) is InstanceState.STOPPING
    await asyncio.sleep(80)
    await scene.provider.start_instance(REGION, instance_id)
    assert await scene.state(instance_id) is InstanceState.PENDING


async def test_picks_are_seeded() -> None:
    async def victims() -> list[str]:
        scene = Scene(*(ScriptedFault(ExternalChange(ExternalAction.TERMINATE), REGION, at=100 + n) for n in range(3)))
        for number in range(8):
            await scene.launch(f"w{number}")
        await asyncio.sleep(120)
        sweep = await scene.provider.sweep(REGION, InstanceSelection())
        return [each.tags["Name"] for each in sweep.instances.values() if not each.state.live]

    first = await victims()
    assert len(first) == 3
    assert await victims() == first


async def test_a_step_for_an_unknown_region_is_refused_when_the_script_begins() -> None:
    with pytest.raises(InvalidCloudRequestError, match="nowhere-1"):
        Scene(ScriptedFault(Outage(1), "nowhere-1", at=1))


def test_a_step_needs_one_time_to_strike() -> None:
    with pytest.raises(ValueError, match="either"):
        ScriptedFault(Outage(1), REGION)
    with pytest.raises(ValueError, match="either"):
        ScriptedFault(Outage(1), REGION, at=1, operation="RunInstances")


async def seen(scene: Scene, *asked: str) -> set[str]:
    """What a complete read returns: of the region, or of these ids."""
    selection = InstanceSelection((WORKER_TAG,))
    read = scene.provider.describe(REGION, asked) if asked else scene.provider.sweep(REGION, selection)
    result = await read
    assert result.complete
    return set(result.instances)


async def test_old_instances_are_hidden_for_a_while_from_all_reads() -> None:
    scene = Scene()
    hidden, other = await scene.launch("w1"), await scene.launch("w2")
    await asyncio.sleep(3600)
    scene.world.inject_fault(REGION, HideInstances(60, (hidden,)))
    assert await seen(scene) == await seen(scene, hidden, other) == {other}
    scene.world.inject_fault(REGION, HideInstances(120))
    assert await seen(scene) == await seen(scene, hidden, other) == set()
    assert hidden in scene.world.live_instances()
    await asyncio.sleep(121)
    assert await seen(scene) == {hidden, other}


async def test_each_read_leaves_out_some_other_instances() -> None:
    scene = Scene()
    launched = {await scene.launch(f"w{number}") for number in range(30)}
    scene.world.inject_fault(REGION, DropFromReads(0.3, 600))
    reads = [await seen(scene) for _ in range(5)] + [await seen(scene, *launched) for _ in range(5)]
    assert all(10 < len(read) < 30 for read in reads)
    assert len({frozenset(read) for read in reads}) == 10
    await asyncio.sleep(601)
    assert await seen(scene) == launched


async def test_half_a_page_looks_complete() -> None:
    scene = Scene()
    launched = {await scene.launch(f"w{number}") for number in range(10)}
    scene.world.regions[REGION].page_size = 4
    scene.world.inject_fault(REGION, HalvePages(2))
    read = await seen(scene)
    assert read < launched
    assert len(read) == 2 + 2 + 2
    assert await seen(scene) == launched


async def test_half_a_listing_hides_nothing_from_those_who_ask_by_id() -> None:
    scene = Scene()
    launched = {await scene.launch(f"w{number}") for number in range(10)}
    scene.world.inject_fault(REGION, HalvePages(100, listings_only=True))
    for _ in range(3):
        assert len(await seen(scene)) == 5
        assert (await scene.provider.describe(REGION, launched)).instances.keys() == launched
    scene.world.inject_fault(REGION, HalvePages(0))
    assert await seen(scene) == launched


async def test_pages_mix_old_and_new_states() -> None:
    scene = Scene()
    launched = [await scene.launch(f"w{number}") for number in range(20)]
    await asyncio.sleep(300)
    scene.world.regions[REGION].page_size = 1
    for instance_id in launched:
        await scene.provider.stop_instance(REGION, instance_id)
    scene.world.inject_fault(REGION, LagReads(200, share=0.5))
    states = {instance.state for instance in (await scene.provider.describe(REGION, launched)).instances.values()}
    assert states == {InstanceState.RUNNING, InstanceState.STOPPING}


async def test_capacity_may_be_missing_in_one_zone_only() -> None:
    scene = Scene()
    there, here = [await scene.launch(subnet_id, subnet_id) for subnet_id in ("subnet-a", "subnet-b")]
    for instance_id in (there, here):
        await asyncio.sleep(30)
        await scene.provider.stop_instance(REGION, instance_id)
    await asyncio.sleep(30)
    scene.world.inject_fault(REGION, LackCapacity(3600.0, subnet_id="subnet-a"))
    await scene.provider.start_instance(REGION, here)
    await scene.launch("w3", "subnet-b")
    for action in (scene.provider.start_instance(REGION, there), scene.launch("w4", "subnet-a")):
        with pytest.raises(InsufficientCapacityError):
            await action
    await asyncio.sleep(3600)
    await scene.provider.start_instance(REGION, there)
    await scene.launch("w4", "subnet-a")
