"""States of an instance, and the calls that each state allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import (
    CloudOutcomeUnknownError,
    CloudThrottledError,
    IncorrectInstanceStateError,
    InstanceNotFoundError,
)
from lcm.cloud.types import InstanceState
from tests.support.aws.conformance import START, STOP, TERMINATE, OutOfBand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cloud.types import Instance
    from tests.support.aws.conformance import CloudBed

UNKNOWN_ID = "i-0123456789abcdef0"


async def see(bed: CloudBed, instance_id: str) -> Instance:
    sweep = await bed.cloud.describe(bed.region, [instance_id])
    assert sweep.complete
    return sweep.instances[instance_id]


async def reach(bed: CloudBed, instance_id: str, state: InstanceState) -> Instance:
    async def reached() -> bool:
        found = (await bed.cloud.describe(bed.region, [instance_id])).instances.get(instance_id)
        return found is not None and found.state is state

    await bed.eventually(reached, f"it is {state.value}")
    return await see(bed, instance_id)


async def running(bed: CloudBed, worker_id: str = "w1") -> Instance:
    instance = await bed.cloud.launch_instance(bed.parameters(worker_id))
    return await reach(bed, instance.id, InstanceState.RUNNING)


async def stopped(bed: CloudBed) -> Instance:
    instance = await running(bed)
    await bed.cloud.stop_instance(bed.region, instance.id)
    return await reach(bed, instance.id, InstanceState.STOPPED)


async def terminated(bed: CloudBed) -> Instance:
    instance = await running(bed)
    await bed.cloud.terminate_instance(bed.region, instance.id)
    return await reach(bed, instance.id, InstanceState.TERMINATED)


async def test_a_launched_instance_is_pending_and_then_runs(bed: CloudBed) -> None:
    """cloud-and-cml.md: describe."""
    bed.hold_transitions(True)
    launched = await bed.cloud.launch_instance(bed.parameters("w1"))
    await reach(bed, launched.id, InstanceState.PENDING)
    bed.hold_transitions(False)
    instance = await reach(bed, launched.id, InstanceState.RUNNING)
    assert instance.private_ip
    assert instance.public_ip


async def test_stopping_takes_a_while(bed: CloudBed) -> None:
    """cloud-and-cml.md: stop."""
    instance = await running(bed)
    bed.hold_transitions(True)
    assert await bed.cloud.stop_instance(bed.region, instance.id) is InstanceState.STOPPING
    assert (await see(bed, instance.id)).state is InstanceState.STOPPING
    bed.hold_transitions(False)
    at_rest = await reach(bed, instance.id, InstanceState.STOPPED)
    assert at_rest.public_ip is None
    assert at_rest.private_ip == instance.private_ip


async def test_a_started_instance_has_another_public_address(bed: CloudBed) -> None:
    """cloud-and-cml.md: start."""
    instance = await running(bed)
    await bed.cloud.stop_instance(bed.region, instance.id)
    await reach(bed, instance.id, InstanceState.STOPPED)
    bed.hold_transitions(True)
    assert await bed.cloud.start_instance(bed.region, instance.id) is InstanceState.PENDING
    assert (await see(bed, instance.id)).state is InstanceState.PENDING
    bed.hold_transitions(False)
    again = await reach(bed, instance.id, InstanceState.RUNNING)
    assert again.public_ip
    assert again.public_ip not in (instance.public_ip, instance.private_ip)
    assert again.private_ip == instance.private_ip
    assert again.launched_at >= instance.launched_at


async def test_terminating_takes_a_while_and_is_seen(bed: CloudBed) -> None:
    """cloud-and-cml.md: terminate."""
    instance = await running(bed)
    bed.hold_transitions(True)
    assert await bed.cloud.terminate_instance(bed.region, instance.id) is InstanceState.SHUTTING_DOWN
    assert (await see(bed, instance.id)).state is InstanceState.SHUTTING_DOWN
    assert await bed.live_instances() == []
    bed.hold_transitions(False)
    await reach(bed, instance.id, InstanceState.TERMINATED)


async def test_a_stopped_instance_can_be_terminated(bed: CloudBed) -> None:
    instance = await stopped(bed)
    await bed.cloud.terminate_instance(bed.region, instance.id)
    await reach(bed, instance.id, InstanceState.TERMINATED)


async def test_starting_a_running_instance_is_no_error(bed: CloudBed) -> None:
    bed.hold_transitions(True)
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    await reach(bed, instance.id, InstanceState.PENDING)
    assert await bed.cloud.start_instance(bed.region, instance.id) is InstanceState.PENDING
    bed.hold_transitions(False)
    await reach(bed, instance.id, InstanceState.RUNNING)
    assert await bed.cloud.start_instance(bed.region, instance.id) is InstanceState.RUNNING
    assert (await see(bed, instance.id)).state is InstanceState.RUNNING


async def test_stopping_a_stopped_instance_is_no_error(bed: CloudBed) -> None:
    instance = await running(bed)
    bed.hold_transitions(True)
    for _ in range(2):
        assert await bed.cloud.stop_instance(bed.region, instance.id) is InstanceState.STOPPING
    bed.hold_transitions(False)
    await reach(bed, instance.id, InstanceState.STOPPED)
    assert await bed.cloud.stop_instance(bed.region, instance.id) is InstanceState.STOPPED


async def test_terminating_a_terminated_instance_is_no_error(bed: CloudBed) -> None:
    instance = await running(bed)
    bed.hold_transitions(True)
    for _ in range(2):
        assert await bed.cloud.terminate_instance(bed.region, instance.id) is InstanceState.SHUTTING_DOWN
    bed.hold_transitions(False)
    await reach(bed, instance.id, InstanceState.TERMINATED)
    assert await bed.cloud.terminate_instance(bed.region, instance.id) is InstanceState.TERMINATED


async def test_a_pending_instance_cannot_be_stopped(bed: CloudBed) -> None:
    bed.hold_transitions(True)
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    await reach(bed, instance.id, InstanceState.PENDING)
    with pytest.raises(IncorrectInstanceStateError):
        await bed.cloud.stop_instance(bed.region, instance.id)


async def test_a_stopping_instance_cannot_be_started(bed: CloudBed) -> None:
    instance = await running(bed)
    bed.hold_transitions(True)
    await bed.cloud.stop_instance(bed.region, instance.id)
    with pytest.raises(IncorrectInstanceStateError):
        await bed.cloud.start_instance(bed.region, instance.id)


async def test_a_terminated_instance_stays_terminated(bed: CloudBed) -> None:
    instance = await terminated(bed)
    with pytest.raises(IncorrectInstanceStateError):
        await bed.cloud.start_instance(bed.region, instance.id)
    with pytest.raises(IncorrectInstanceStateError):
        await bed.cloud.stop_instance(bed.region, instance.id)
    assert (await see(bed, instance.id)).state is InstanceState.TERMINATED
    assert await bed.live_instances() == []


async def test_a_terminated_instance_is_shown_for_a_while_and_then_unknown(bed: CloudBed) -> None:
    instance = await terminated(bed)
    await bed.forget_terminated()
    sweep = await bed.cloud.describe(bed.region, [instance.id])
    assert sweep.complete
    assert not sweep.instances
    with pytest.raises(InstanceNotFoundError):
        await bed.cloud.terminate_instance(bed.region, instance.id)


def calls_by_id(bed: CloudBed, instance_id: str) -> list[Callable[[], Awaitable[InstanceState]]]:
    cloud, region = bed.cloud, bed.region
    return [
        lambda: cloud.start_instance(region, instance_id),
        lambda: cloud.stop_instance(region, instance_id),
        lambda: cloud.terminate_instance(region, instance_id),
    ]


async def test_an_unknown_id_is_not_found(bed: CloudBed) -> None:
    for call in calls_by_id(bed, UNKNOWN_ID):
        with pytest.raises(InstanceNotFoundError):
            await call()


async def test_a_new_instance_that_is_not_visible_yet_is_not_found(bed: CloudBed) -> None:
    bed.hide_new_instances(86400)
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    for call in calls_by_id(bed, instance.id):
        with pytest.raises(InstanceNotFoundError):
            await call()
    assert await bed.live_instances() == [instance.id]
    bed.reveal_instances()
    await reach(bed, instance.id, InstanceState.RUNNING)


async def test_an_instance_hidden_for_a_moment_shows_up_by_itself(bed: CloudBed) -> None:
    bed.hide_new_instances(0.2)
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    await reach(bed, instance.id, InstanceState.RUNNING)


@pytest.mark.parametrize("operation", [START, STOP, TERMINATE])
async def test_a_throttled_change_changes_nothing(bed: CloudBed, operation: str) -> None:
    instance = await (stopped(bed) if operation == START else running(bed))
    bed.throttle(operation, 1)
    call = calls_by_id(bed, instance.id)[[START, STOP, TERMINATE].index(operation)]
    with pytest.raises(CloudThrottledError) as throttled:
        await call()
    assert throttled.value.operation == operation
    assert (await see(bed, instance.id)).state is instance.state
    await call()
    assert (await see(bed, instance.id)).state is not instance.state


@pytest.mark.parametrize("operation", [START, STOP, TERMINATE])
async def test_a_mutation_whose_response_is_lost_may_be_repeated(bed: CloudBed, operation: str) -> None:
    instance = await (stopped(bed) if operation == START else running(bed))
    goal = {START: InstanceState.RUNNING, STOP: InstanceState.STOPPED, TERMINATE: InstanceState.TERMINATED}[operation]
    bed.lose_replies(1)
    call = calls_by_id(bed, instance.id)[[START, STOP, TERMINATE].index(operation)]
    with pytest.raises(CloudOutcomeUnknownError):
        await call()
    assert (await see(bed, instance.id)).state is not instance.state
    await call()
    await reach(bed, instance.id, goal)


async def test_external_changes_are_seen(bed: CloudBed) -> None:
    instance = await running(bed)
    await bed.out_of_band(OutOfBand.STOP, instance.id)
    await reach(bed, instance.id, InstanceState.STOPPED)
    await bed.out_of_band(OutOfBand.START, instance.id)
    assert (await reach(bed, instance.id, InstanceState.RUNNING)).public_ip != instance.public_ip
    await bed.out_of_band(OutOfBand.TERMINATE, instance.id)
    await reach(bed, instance.id, InstanceState.TERMINATED)
