"""The region cache on the simulated cloud: shared sweeps, batched describes, and when an instance is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import CloudUnreachableError
from lcm.cloud.region_cache import DESCRIBE, SWEEP, RegionCache
from lcm.cloud.simulated import SimulatedProvider
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange, FailPage, LagReads, Outage
from lcm.cloud.types import InstanceState
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lcm.cloud.types import Instance, InstanceSelection, Sweep
    from tests.unit.cloud.conftest import Observed

REGION = "eu-central-1"


async def test_concurrent_callers_share_one_sweep(scene: Observed) -> None:
    ids = await scene.running("w1", "w2")
    sweeps = await asyncio.gather(*(scene.cache.sweep() for _ in range(100)))
    assert scene.describes == 1
    assert all(sweep is sweeps[0] for sweep in sweeps)
    assert set(sweeps[0].instances) == set(ids)


async def test_a_later_caller_gets_a_sweep_within_max_age(scene: Observed) -> None:
    first = await scene.cache.sweep()
    await asyncio.sleep(20)
    assert await scene.cache.sweep(max_age=30) is first
    assert scene.describes == 1
    second = await scene.cache.sweep(max_age=10)
    assert second.began_at > first.began_at
    assert scene.describes == 2


async def test_age_counts_from_the_beginning_of_a_sweep(scene: Observed) -> None:
    first = await scene.cache.sweep()
    assert clock.boottime() - first.began_at == pytest.approx(2.0)
    assert await scene.cache.sweep(max_age=1.9) is not first


async def test_a_sweep_that_began_before_not_before_is_not_used(scene: Observed) -> None:
    early = asyncio.create_task(scene.cache.sweep())
    await asyncio.sleep(0.5)
    acted = clock.boottime()
    late = [asyncio.create_task(scene.cache.sweep(60, not_before=acted)) for _ in range(5)]
    first = await early
    assert first.began_at < acted
    sweeps = await asyncio.gather(*late)
    assert {sweep.began_at >= acted for sweep in sweeps} == {True}
    assert scene.describes == 2


async def test_not_before_in_the_future_is_an_error(scene: Observed) -> None:
    with pytest.raises(ValueError, match="in the future"):
        await scene.cache.sweep(not_before=clock.boottime() + 1)


async def test_a_cancelled_caller_does_not_end_the_sweep_of_the_others(scene: Observed) -> None:
    impatient = asyncio.create_task(scene.cache.sweep())
    patient = asyncio.create_task(scene.cache.sweep())
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert (await patient).complete
    assert scene.describes == 1


async def test_a_cancelled_caller_does_not_cancel_the_batch_of_the_others(scene: Observed) -> None:
    ids = await scene.running("w1", "w2")
    impatient = asyncio.create_task(scene.cache.describe([ids[0]]))
    patient = asyncio.create_task(scene.cache.describe([ids[1]]))
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert set((await patient).instances) == {ids[1]}
    assert scene.describes == 1


async def test_callers_during_a_call_share_the_next_call(scene: Observed) -> None:
    ids = await scene.running("w1", "w2", "w3")
    early = asyncio.create_task(scene.cache.describe([ids[0]]))
    await asyncio.sleep(0.5)
    requested_at = clock.boottime()
    late = await asyncio.gather(scene.cache.describe([ids[1]]), scene.cache.describe([ids[2]]))
    assert [set(result.instances) for result in late] == [{ids[1]}, {ids[2]}]
    assert all(result.began_at >= requested_at for result in late)
    assert set((await early).instances) == {ids[0]}
    assert scene.describes == 2


async def test_a_partial_sweep_is_marked_and_the_complete_one_stays(scene: Observed) -> None:
    await scene.running(*(f"w{number}" for number in range(15)))
    whole = await scene.cache.sweep()
    assert whole.complete
    await asyncio.sleep(30)
    scene.world.inject_fault(REGION, FailPage(2, times=1))
    partial = await scene.cache.sweep(max_age=10)
    assert not partial.complete
    assert len(partial.instances) == 10
    assert await scene.cache.sweep(max_age=60) is whole
    assert await scene.cache.sweep(max_age=10) is partial
    assert (await scene.cache.sweep()).complete


async def test_a_state_from_before_the_last_start_does_not_come_back(scene: Observed) -> None:
    """EC2's pages mix old and new states: a stopped instance that was started is not stopped again by an old page."""
    (instance_id,) = await scene.running("w1")
    await scene.provider.stop_instance(REGION, instance_id)
    await asyncio.sleep(60)
    stopped = (await scene.cache.sweep()).instances[instance_id]
    assert stopped.state is InstanceState.STOPPED
    await scene.provider.start_instance(REGION, instance_id)
    assert (await scene.cache.sweep()).instances[instance_id].state is InstanceState.PENDING
    scene.world.inject_fault(REGION, LagReads(15))
    for read in (await scene.cache.sweep(), await scene.cache.describe([instance_id])):
        assert read.instances[instance_id].state is InstanceState.PENDING
    assert scene.cache.instance(instance_id) is not stopped
    scene.world.inject_fault(REGION, LagReads(0))
    await scene.provider.terminate_instance(REGION, instance_id)
    assert (await scene.cache.sweep()).instances[instance_id].state is InstanceState.SHUTTING_DOWN


async def test_an_outage_is_a_failed_sweep_and_nothing_is_described_by_id(scene: Observed) -> None:
    ids = await scene.running("w1")
    scene.world.inject_fault(REGION, Outage(600))
    result = await scene.find([*ids, "i-gone"])
    assert not result.complete
    assert result.error
    assert scene.cache.calls_total[DESCRIBE] == 0


async def test_ids_missing_in_the_sweep_are_described_together_once(scene: Observed) -> None:
    ids = await scene.running("w1", "w2")
    missing = [f"i-{number:017x}" for number in range(150)]
    results = await asyncio.gather(*(scene.find([each]) for each in [*ids, *missing]))
    assert [set(result.instances) for result in results[:2]] == [{ids[0]}, {ids[1]}]
    assert all(result.complete and not result.instances for result in results[2:])
    assert scene.cache.calls_this_cycle == {SWEEP: 1, DESCRIBE: 1}
    await asyncio.gather(*(scene.find([each], max_age=60) for each in missing))
    assert scene.describes == 2


async def test_at_most_200_ids_a_call(scene: Observed) -> None:
    await scene.cache.describe([f"i-{number:017x}" for number in range(450)])
    assert scene.describes == 3


async def test_an_instance_outside_the_selection_is_found_by_id(scene: Observed) -> None:
    parameters = launch_of("w", 1, region=REGION, image_id=scene.image, subnet_id=None)
    bare = await scene.provider.launch_instance(
        type(parameters).from_json({**parameters.to_json(), "tags": {"Name": "x"}})
    )
    result = await scene.find([bare.id])
    assert result.complete
    assert set(result.instances) == {bare.id}


async def test_gone_by_the_rule_on_a_real_history(scene: Observed) -> None:
    launched_at = clock.boottime()
    [instance_id] = await scene.running("w1")
    await scene.find([instance_id])
    scene.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, instance_id))
    assert not scene.cache.is_gone(instance_id, launched_at, clock.boottime())
    await asyncio.sleep(5000)
    for _ in range(2):
        await scene.find([instance_id])
        assert not scene.cache.is_gone(instance_id, launched_at, clock.boottime())
        await asyncio.sleep(200)
    await scene.cache.sweep()
    assert not scene.cache.is_gone(instance_id, launched_at, clock.boottime())
    await scene.find([instance_id], max_age=60)
    assert scene.cache.is_gone(instance_id, launched_at, clock.boottime())


async def test_a_hidden_new_instance_is_never_gone_within_the_allowance(scene: Observed) -> None:
    scene.place.faults.hide_seconds = 280.0
    launched_at = clock.boottime()
    instance_id = await scene.launch("w1")
    while clock.boottime() - launched_at < 290:
        await scene.find([instance_id])
        assert not scene.cache.is_gone(instance_id, launched_at, clock.boottime())
        await asyncio.sleep(15)
    assert (await scene.find([instance_id])).instances
    assert not scene.cache.is_gone(instance_id, launched_at, clock.boottime() + 1000)


async def test_last_lookup_and_account(scene: Observed) -> None:
    [instance_id] = await scene.running("w1")
    assert scene.cache.account_id == ""
    assert scene.cache.last_lookup(instance_id) is None
    swept = await scene.cache.sweep()
    assert scene.cache.account_id == scene.place.account_id
    assert scene.cache.last_lookup(instance_id) == (swept.instances[instance_id], swept.began_at)
    described = await scene.cache.describe([instance_id])
    assert scene.cache.last_lookup(instance_id) == (described.instances[instance_id], described.began_at)


async def test_a_subscriber_can_unsubscribe(scene: Observed) -> None:
    changes: list[Sequence[Instance]] = []
    end = scene.cache.subscribe(changes.append)
    end()
    end()
    await scene.running("w1")
    await scene.cache.sweep()
    assert changes == []


async def test_stop_ends_all_tasks_and_waits(scene: Observed) -> None:
    await scene.cache.start()
    waiting = [asyncio.create_task(scene.cache.sweep()), asyncio.create_task(scene.cache.describe(["i-1"]))]
    await asyncio.sleep(0.5)
    await scene.cache.stop()
    for result in await asyncio.gather(*waiting):
        assert not result.complete
        assert "stopped" in result.error
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_stop_before_the_first_step_ends_all_waits(scene: Observed) -> None:
    waiting = [asyncio.create_task(scene.cache.sweep()), asyncio.create_task(scene.cache.describe(["i-1"]))]
    await asyncio.sleep(0)
    await scene.cache.stop()
    for result in await asyncio.gather(*waiting):
        assert "stopped" in result.error
    assert (await scene.cache.sweep()).complete
    assert (await scene.cache.describe(["i-1"])).complete


async def test_a_cache_can_be_restarted(scene: Observed) -> None:
    await scene.cache.start()
    await scene.cache.stop()
    await scene.cache.start()
    assert (await scene.cache.sweep()).complete
    await scene.cache.stop()


class Refusing(SimulatedProvider):
    """A provider that breaks the rule that reads do not raise."""

    async def sweep(self, region: str, selection: InstanceSelection) -> Sweep:
        raise CloudUnreachableError("no route")

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        raise CloudUnreachableError("no route")


async def test_an_exception_of_a_provider_is_an_incomplete_result(scene: Observed) -> None:
    cache = RegionCache(Refusing(scene.world), REGION)
    assert (await cache.sweep()).error == "no route"
    result = await cache.describe(["i-1"])
    assert not result.complete
    assert result.error == "no route"
