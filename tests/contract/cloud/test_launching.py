"""Launching: one instance for a client token, whatever response is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import (
    CloudOutcomeUnknownError,
    CloudThrottledError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
)
from lcm.cloud.types import WORKER_TAG, InstanceState
from tests.support.aws.conformance import RUN, Refusal

if TYPE_CHECKING:
    from tests.support.aws.conformance import CloudBed


async def _terminate(bed: CloudBed, instance_id: str) -> None:
    await bed.cloud.terminate_instance(bed.region, instance_id)

    async def over() -> bool:
        seen = (await bed.cloud.describe(bed.region, [instance_id])).instances.get(instance_id)
        return seen is not None and seen.state is InstanceState.TERMINATED

    await bed.eventually(over, "it has terminated")


async def test_an_instance_matches_its_launch_parameters(bed: CloudBed) -> None:
    """cloud-and-cml.md: launch."""
    parameters = bed.parameters("w1")
    instance = await bed.cloud.launch_instance(parameters)
    assert instance.state is InstanceState.PENDING
    assert instance.id in await bed.live_instances()
    assert instance.instance_type == parameters.instance_type
    assert instance.image_id == parameters.image_id
    assert instance.subnet_id == parameters.subnet_id
    assert instance.launched_at.tzinfo is not None
    assert dict(instance.tags) == dict(parameters.tags)
    assert instance.worker_id == "w1"


async def test_tags_are_there_as_soon_as_it_is_seen(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    instance = await bed.cloud.launch_instance(parameters)

    async def seen() -> bool:
        shown = (await bed.cloud.describe(bed.region, [instance.id])).instances.get(instance.id)
        return shown is not None and dict(shown.tags) == dict(parameters.tags)

    await bed.eventually(seen, "it is seen with its tags")


async def test_the_same_token_is_the_same_instance(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    first = await bed.cloud.launch_instance(parameters)
    again = [await bed.cloud.launch_instance(parameters) for _ in range(3)]
    assert {instance.id for instance in again} == {first.id}
    assert await bed.live_instances() == [first.id]


async def test_launches_at_once_with_one_token_are_one_instance(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    launched = await asyncio.gather(*(bed.cloud.launch_instance(parameters) for _ in range(4)))
    assert len({instance.id for instance in launched}) == 1
    assert len(await bed.live_instances()) == 1


async def test_another_attempt_is_another_instance(bed: CloudBed) -> None:
    first = await bed.cloud.launch_instance(bed.parameters("w1", 1))
    second = await bed.cloud.launch_instance(bed.parameters("w1", 2))
    assert await bed.live_instances() == sorted([first.id, second.id])


async def test_a_token_with_other_parameters_is_refused(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    first = await bed.cloud.launch_instance(parameters)
    with pytest.raises(LaunchTokenMismatchError):
        await bed.cloud.launch_instance(replace(parameters, instance_type="t3.medium"))
    assert await bed.live_instances() == [first.id]


async def test_a_token_holds_in_its_zone_alone(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    first = await bed.cloud.launch_instance(parameters)
    elsewhere = await bed.cloud.launch_instance(replace(parameters, subnet_id=bed.subnets[1]))
    assert await bed.live_instances() == sorted([first.id, elsewhere.id])


async def test_the_token_of_a_terminated_instance_is_spent(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    instance = await bed.cloud.launch_instance(parameters)

    async def visible() -> bool:
        return instance.id in (await bed.cloud.describe(bed.region, [instance.id])).instances

    await bed.eventually(visible, "it is visible")
    await _terminate(bed, instance.id)
    with pytest.raises(LaunchTokenSpentError):
        await bed.cloud.launch_instance(parameters)
    assert await bed.live_instances() == []
    await bed.forget_terminated()
    with pytest.raises(LaunchTokenSpentError):
        await bed.cloud.launch_instance(parameters)


@pytest.mark.parametrize("losses", [1, 2, 5])
async def test_however_many_replies_are_lost_there_is_one_instance(bed: CloudBed, losses: int) -> None:
    parameters = bed.parameters("w1")
    bed.lose_replies(losses)
    for _ in range(losses):
        with pytest.raises(CloudOutcomeUnknownError) as lost:
            await bed.cloud.launch_instance(parameters)
        assert lost.value.operation == RUN
        assert len(await bed.live_instances()) == 1
    instance = await bed.cloud.launch_instance(parameters)
    assert await bed.live_instances() == [instance.id]


async def test_a_launch_that_is_tried_once_is_sent_once(bed: CloudBed) -> None:
    bed.lose_replies(1)
    before = bed.calls().get(RUN, 0)
    with pytest.raises(CloudOutcomeUnknownError):
        await bed.cloud.launch_instance(bed.parameters("w1"))
    assert bed.calls()[RUN] == before + 1


async def test_the_instance_of_a_lost_launch_is_found_by_its_worker(bed: CloudBed) -> None:
    bed.lose_replies(1)
    with pytest.raises(CloudOutcomeUnknownError):
        await bed.cloud.launch_instance(bed.parameters("w1"))
    other = await bed.cloud.launch_instance(bed.parameters("w2"))

    async def found() -> bool:
        return len((await bed.cloud.find_launched(bed.region, "w1")).instances) == 1

    await bed.eventually(found, "the launched instance is found")
    sweep = await bed.cloud.find_launched(bed.region, "w1")
    assert sweep.complete
    assert [instance.tags[WORKER_TAG] for instance in sweep.instances.values()] == ["w1"]
    assert sorted([*sweep.instances, other.id]) == await bed.live_instances()


async def test_all_attempts_of_a_worker_are_found_in_any_state(bed: CloudBed) -> None:
    first = await bed.cloud.launch_instance(bed.parameters("w1", 1))
    second = await bed.cloud.launch_instance(bed.parameters("w1", 2))

    async def found() -> bool:
        return set((await bed.cloud.find_launched(bed.region, "w1")).instances) == {first.id, second.id}

    await bed.eventually(found, "both are found")
    await _terminate(bed, first.id)
    sweep = await bed.cloud.find_launched(bed.region, "w1")
    assert sweep.instances[first.id].state is InstanceState.TERMINATED
    assert sweep.instances[second.id].state is not InstanceState.TERMINATED


async def test_nothing_is_found_for_an_unknown_worker(bed: CloudBed) -> None:
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))

    async def visible() -> bool:
        return instance.id in (await bed.cloud.find_launched(bed.region, "w1")).instances

    await bed.eventually(visible, "the other worker's is visible")
    for worker_id in ("nobody", "w", "w*", "?1"):
        sweep = await bed.cloud.find_launched(bed.region, worker_id)
        assert sweep.complete
        assert not sweep.instances


async def test_lacking_capacity_launches_nothing_and_leaves_the_token_free(bed: CloudBed) -> None:
    bed.refuse(RUN, Refusal.CAPACITY, 2)
    parameters = bed.parameters("w1")
    for _ in range(2):
        with pytest.raises(InsufficientCapacityError) as lacking:
            await bed.cloud.launch_instance(parameters)
        assert lacking.value.code == Refusal.CAPACITY.value
    assert await bed.live_instances() == []
    instance = await bed.cloud.launch_instance(parameters)
    assert await bed.live_instances() == [instance.id]


async def test_a_throttled_launch_launches_nothing(bed: CloudBed) -> None:
    bed.throttle(RUN, 1)
    with pytest.raises(CloudThrottledError):
        await bed.cloud.launch_instance(bed.parameters("w1"))
    assert await bed.live_instances() == []
    await bed.cloud.launch_instance(bed.parameters("w1"))
    assert len(await bed.live_instances()) == 1


async def test_an_unknown_image_is_refused(bed: CloudBed) -> None:
    with pytest.raises(InvalidCloudRequestError):
        await bed.cloud.launch_instance(replace(bed.parameters("w1"), image_id="ami-0123456789abcdef0"))
    assert await bed.live_instances() == []


async def test_an_unknown_subnet_is_refused(bed: CloudBed) -> None:
    with pytest.raises(InvalidCloudRequestError):
        await bed.cloud.launch_instance(replace(bed.parameters("w1"), subnet_id="subnet-0123456789abcdef0"))
    assert await bed.live_instances() == []


async def test_a_replay_returns_an_instance_that_is_not_visible_yet(bed: CloudBed) -> None:
    bed.hide_new_instances(86400)
    parameters = bed.parameters("w1")
    first = await bed.cloud.launch_instance(parameters)
    sweep = await bed.cloud.find_launched(bed.region, "w1")
    assert sweep.complete
    assert not sweep.instances
    assert (await bed.cloud.launch_instance(parameters)).id == first.id
    assert await bed.live_instances() == [first.id]


async def test_nested_virtualization_is_launched_with_types_that_offer_it(bed: CloudBed) -> None:
    """cloud-and-cml.md: a replay is the same request, and another one is refused."""
    nested = replace(bed.parameters("w1"), instance_type="m8i.2xlarge", nested_virtualization=True)
    instance = await bed.cloud.launch_instance(nested)
    assert (await bed.cloud.launch_instance(replace(nested))).id == instance.id
    with pytest.raises(LaunchTokenMismatchError):
        await bed.cloud.launch_instance(replace(nested, nested_virtualization=False))
    assert await bed.live_instances() == [instance.id]


async def test_nested_virtualization_is_refused_for_other_types(bed: CloudBed) -> None:
    parameters = bed.parameters("w1")
    with pytest.raises(InvalidCloudRequestError, match="nested virtualization"):
        await bed.cloud.launch_instance(replace(parameters, nested_virtualization=True))
    assert await bed.live_instances() == []
    assert (await bed.cloud.launch_instance(parameters)).instance_type == parameters.instance_type
