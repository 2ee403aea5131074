"""The simulated cloud: time, random numbers, requests, throttling, size."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import (
    CloudError,
    CloudOutcomeUnknownError,
    CloudThrottledError,
    CloudUnreachableError,
    InvalidCloudRequestError,
    LaunchTokenSpentError,
)
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing, fault_injection
from lcm.cloud.simulated.faults import LoseResponses
from lcm.cloud.simulated.region import InstanceFilter
from lcm.cloud.types import InstanceSelection, InstanceState, LaunchParameters
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable

REGION = "eu-central-1"


def build(seed: int = 1, timing: Timing | None = None) -> tuple[SimulatedCloud, SimulatedProvider, str]:
    world = SimulatedCloud(seed=seed, timing=timing)
    world.add_region(REGION)
    image = world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
    return world, SimulatedProvider(world), image


def parameters(image: str, worker_id: str = "w1", attempt: int = 1) -> LaunchParameters:
    return launch_of(worker_id, attempt, region=REGION, image_id=image, subnet_id=None)


def history(seed: int) -> str:
    """A busy hour, as text."""
    lines: list[str] = []

    async def busy() -> None:
        with clock.use(VirtualClock(asyncio.get_running_loop())):
            world, provider, image = build(seed)
            launched = await asyncio.gather(
                *(provider.launch_instance(parameters(image, f"w{number}")) for number in range(20))
            )
            for turn in range(60):
                chosen = launched[world.rng.randrange(20)].id
                change = world.rng.choice(
                    [provider.stop_instance, provider.start_instance, provider.terminate_instance]
                )
                try:
                    answer: object = await change(REGION, chosen)
                except CloudError as error:
                    answer = str(error)
                sweep = await provider.sweep(REGION, InstanceSelection())
                lines.append(f"{turn} {world.time():.6f} {change.__name__} {chosen} {answer}")
                lines.extend(f"{each.id} {each.state} {each.public_ip}" for each in sweep.instances.values())
                await asyncio.sleep(60)
            lines.append(json.dumps(world.to_json(), sort_keys=True))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(busy())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_the_same_seed_is_the_same_history() -> None:
    assert history(7) == history(7)
    assert history(7) != history(8)


async def test_metal_takes_its_time() -> None:
    world, provider, image = build(timing=Timing(pending=(10.0, 10.0), visible_after=(0.0, 0.0)))
    small = await provider.launch_instance(parameters(image, "w1"))
    metal = await provider.launch_instance(replace(parameters(image, "w2"), instance_type="m5zn.metal"))
    await asyncio.sleep(15)
    seen = (await provider.describe(REGION, [small.id, metal.id])).instances
    assert seen[small.id].state is InstanceState.RUNNING
    assert seen[metal.id].state is InstanceState.PENDING
    await asyncio.sleep(80)
    assert (await provider.describe(REGION, [metal.id])).instances[metal.id].state is InstanceState.RUNNING
    assert len(world.live_instances()) == 2


async def test_a_terminated_instance_is_shown_for_an_hour_and_its_token_spent_for_a_day() -> None:
    world, provider, image = build()
    instance = await provider.launch_instance(parameters(image))
    await asyncio.sleep(60)
    await provider.terminate_instance(REGION, instance.id)
    await asyncio.sleep(3000)
    assert (await provider.describe(REGION, [instance.id])).instances[instance.id].state is InstanceState.TERMINATED
    await asyncio.sleep(1000)
    assert not (await provider.sweep(REGION, InstanceSelection())).instances
    assert not world.regions[REGION].machines
    await asyncio.sleep(80000)
    with pytest.raises(LaunchTokenSpentError):
        await provider.launch_instance(parameters(image))
    await asyncio.sleep(10000)
    await provider.sweep(REGION, InstanceSelection())
    again = await provider.launch_instance(parameters(image))
    assert again.id != instance.id


async def test_a_client_without_rate_limit_is_throttled() -> None:
    world, _, image = build()
    hasty = SimulatedProvider(world, pace=None)
    results = await asyncio.gather(
        *(hasty.launch_instance(parameters(image, f"w{number}")) for number in range(20)), return_exceptions=True
    )
    kinds = Counter(type(result) for result in results)
    assert kinds[CloudThrottledError] == 15
    assert len(world.live_instances()) == 5


async def test_a_sent_request_is_executed_even_if_its_caller_is_cancelled() -> None:
    world, provider, image = build()
    caller = asyncio.create_task(provider.launch_instance(parameters(image)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    assert world.live_instances() == []
    await asyncio.sleep(1)
    assert len(world.live_instances()) == 1


async def test_a_silent_server_fails_after_the_read_timeout() -> None:
    world, provider, image = build(timing=Timing(read_timeout=30.0))
    world.inject_fault(REGION, LoseResponses(1, silent=True))
    began = asyncio.get_running_loop().time()
    with pytest.raises(CloudOutcomeUnknownError):
        await provider.launch_instance(parameters(image))
    assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=1)


async def test_a_client_that_is_cut_off_is_alone_with_that() -> None:
    world, provider, image = build()
    other = SimulatedProvider(world)
    provider.cut = True
    with pytest.raises(CloudUnreachableError):
        await provider.launch_instance(parameters(image))
    assert not (await provider.sweep(REGION, InstanceSelection())).complete
    assert (await other.sweep(REGION, InstanceSelection())).complete
    assert world.live_instances() == []


async def test_being_cut_off_while_waiting_leaves_the_outcome_open() -> None:
    world, provider, image = build()

    async def cut_during(call: Awaitable[object]) -> None:
        asyncio.get_running_loop().call_soon(setattr, provider, "cut", True)
        await call

    with pytest.raises(CloudOutcomeUnknownError):
        await cut_during(provider.launch_instance(parameters(image)))
    assert len(world.live_instances()) == 1
    provider.cut = False
    with pytest.raises(CloudUnreachableError):
        await cut_during(provider.health(REGION))


async def test_regions_are_apart() -> None:
    world, provider, image = build()
    world.add_region("us-east-1", account_id="210987654321")
    assert list(provider.regions) == [REGION, "us-east-1"]
    await provider.launch_instance(parameters(image))
    await asyncio.sleep(10)
    assert await provider.account_id("us-east-1") == "210987654321"
    elsewhere = await provider.sweep("us-east-1", InstanceSelection())
    assert elsewhere.complete
    assert not elsewhere.instances
    with pytest.raises(InvalidCloudRequestError):
        await provider.health("nowhere-1")


async def test_image_names_know_stars_and_question_marks_only() -> None:
    world, provider, _ = build()
    image = world.add_image(REGION, "cml [2]", created_at=clock.now())
    for pattern, found in (("cml [2]", True), ("cml ?2?", True), ("* [2]", True), ("cml [[]2]", False)):
        images = await provider.find_images(REGION, pattern, ["self"])
        assert [each.id for each in images] == ([image] if found else [])


async def test_a_filter_takes_200_values() -> None:
    world, _, _ = build()
    ids = tuple(f"i-{number}" for number in range(201))
    with pytest.raises(InvalidCloudRequestError, match="FilterLimitExceeded"):
        world.regions[REGION].describe_page(InstanceFilter(instance_ids=ids), 0, 1, world.time())


async def test_public_addresses_come_from_the_given_network() -> None:
    world = SimulatedCloud(public_network="127.64.0.0/16")
    world.add_region(REGION)
    image = world.add_image(REGION, "cml", created_at=clock.now())
    provider = SimulatedProvider(world)
    addresses = [(await provider.launch_instance(parameters(image, f"w{n}"))).public_ip for n in range(4)]
    assert len(set(addresses)) == 4
    assert all(address is not None and address.startswith("127.64.") for address in addresses)


async def test_ten_thousand_instances() -> None:
    world, provider, image = build()
    place = world.regions[REGION]
    for number in range(10_000):
        place.run_instance(parameters(image, f"w{number}"), world.time() - 600)
    fault_injection.reveal_instances(place, world.time())
    sweep = await provider.sweep(REGION, InstanceSelection())
    assert sweep.complete
    assert len(sweep.instances) == 10_000
    assert sweep.calls == 10
    assert {instance.state for instance in sweep.instances.values()} == {InstanceState.RUNNING}
    again = await provider.sweep(REGION, InstanceSelection())
    assert all(again.instances[key] is instance for key, instance in sweep.instances.items())
