"""The observer on the simulated cloud: sharing sweeps, asking together, concluding no more than was seen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import CloudUnreachableError
from lcm.cloud.region_cache import DESCRIBE, SWEEP, RegionCache
from lcm.cloud.simulated import SimulatedProvider
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange, FailPage, Outage
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lcm.cloud.types import Instance, InstanceSelection, Sweep
    from tests.unit.cloud.conftest import Observed

REGION = "eu-central-1"


async def test_all_who_ask_at_once_share_one_sweep(scene: Observed) -> None:
    ids = await scene.running("w1", "w2")
    sweeps = await asyncio.gather(*(scene.observer.look() for _ in range(100)))
    assert scene.describes == 1
    assert all(sweep is sweeps[0] for sweep in sweeps)
    assert set(sweeps[0].instances) == set(ids)


async def test_who_asks_later_gets_a_sweep_that_is_young_enough(scene: Observed) -> None:
    first = await scene.observer.look()
    await asyncio.sleep(20)
    assert await scene.observer.look(max_age=30) is first
    assert scene.describes == 1
    second = await scene.observer.look(max_age=10)
    assert second.began_at > first.began_at
    assert scene.describes == 2


async def test_age_counts_from_the_beginning_of_a_sweep(scene: Observed) -> None:
    first = await scene.observer.look()
    assert clock.boottime() - first.began_at == pytest.approx(2.0)
    assert await scene.observer.look(max_age=1.9) is not first


async def test_a_sweep_that_began_before_the_moment_does_not_serve(scene: Observed) -> None:
    early = asyncio.create_task(scene.observer.look())
    await asyncio.sleep(0.5)
    acted = clock.boottime()
    late = [asyncio.create_task(scene.observer.look(60, not_before=acted)) for _ in range(5)]
    first = await early
    assert first.began_at < acted
    sweeps = await asyncio.gather(*late)
    assert {sweep.began_at >= acted for sweep in sweeps} == {True}
    assert scene.describes == 2


async def test_a_moment_that_has_not_come_is_refused(scene: Observed) -> None:
    with pytest.raises(ValueError, match="later than now"):
        await scene.observer.look(not_before=clock.boottime() + 1)


async def test_one_who_gives_up_does_not_end_the_sweep_of_the_others(scene: Observed) -> None:
    impatient = asyncio.create_task(scene.observer.look())
    patient = asyncio.create_task(scene.observer.look())
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert (await patient).complete
    assert scene.describes == 1


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(scene: Observed) -> None:
    ids = await scene.running("w1", "w2")
    impatient = asyncio.create_task(scene.observer.describe([ids[0]]))
    patient = asyncio.create_task(scene.observer.describe([ids[1]]))
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert set((await patient).instances) == {ids[1]}
    assert scene.describes == 1


async def test_who_asks_while_others_are_answered_shares_the_next_call(scene: Observed) -> None:
    ids = await scene.running("w1", "w2", "w3")
    early = asyncio.create_task(scene.observer.describe([ids[0]]))
    await asyncio.sleep(0.5)
    asked = clock.boottime()
    late = await asyncio.gather(scene.observer.describe([ids[1]]), scene.observer.describe([ids[2]]))
    assert [set(look.instances) for look in late] == [{ids[1]}, {ids[2]}]
    assert all(look.began_at >= asked for look in late)
    assert set((await early).instances) == {ids[0]}
    assert scene.describes == 2


async def test_a_partial_sweep_is_marked_and_the_complete_one_stays(scene: Observed) -> None:
    await scene.running(*(f"w{number}" for number in range(15)))
    whole = await scene.observer.look()
    assert whole.complete
    await asyncio.sleep(30)
    scene.world.strike(REGION, FailPage(2, times=1))
    partial = await scene.observer.look(max_age=10)
    assert not partial.complete
    assert len(partial.instances) == 10
    assert await scene.observer.look(max_age=60) is whole
    assert await scene.observer.look(max_age=10) is partial
    assert (await scene.observer.look()).complete


async def test_an_outage_is_a_failed_sweep_and_nobody_asks_by_id(scene: Observed) -> None:
    ids = await scene.running("w1")
    scene.world.strike(REGION, Outage(600))
    seen = await scene.observer.look_for([*ids, "i-gone"])
    assert not seen.complete
    assert seen.trouble
    assert scene.observer.calls_total[DESCRIBE] == 0


async def test_ids_that_the_sweep_does_not_show_are_asked_for_together_once(scene: Observed) -> None:
    ids = await scene.running("w1", "w2")
    missing = [f"i-{number:017x}" for number in range(150)]
    looks = await asyncio.gather(*(scene.observer.look_for([each]) for each in [*ids, *missing]))
    assert [set(look.instances) for look in looks[:2]] == [{ids[0]}, {ids[1]}]
    assert all(look.complete and not look.instances for look in looks[2:])
    assert scene.observer.calls_this_cycle == {SWEEP: 1, DESCRIBE: 1}
    await asyncio.gather(*(scene.observer.look_for([each], max_age=60) for each in missing))
    assert scene.describes == 2


async def test_at_most_200_ids_a_call(scene: Observed) -> None:
    await scene.observer.describe([f"i-{number:017x}" for number in range(450)])
    assert scene.describes == 3


async def test_what_the_selection_leaves_out_is_found_by_id(scene: Observed) -> None:
    parameters = launch_of("w", 1, region=REGION, image_id=scene.image, subnet_id=None)
    bare = await scene.provider.launch_instance(
        type(parameters).from_json({**parameters.to_json(), "tags": {"Name": "x"}})
    )
    look = await scene.observer.look_for([bare.id])
    assert look.complete
    assert set(look.instances) == {bare.id}


async def test_gone_by_the_rule_on_a_real_history(scene: Observed) -> None:
    launched_at = clock.boottime()
    [instance_id] = await scene.running("w1")
    await scene.observer.look_for([instance_id])
    scene.world.strike(REGION, ExternalChange(ExternalAction.TERMINATE, instance_id))
    assert not scene.observer.is_gone(instance_id, launched_at, clock.boottime())
    await asyncio.sleep(5000)
    await scene.observer.look()
    assert not scene.observer.is_gone(instance_id, launched_at, clock.boottime())
    await scene.observer.look_for([instance_id], max_age=60)
    assert scene.observer.is_gone(instance_id, launched_at, clock.boottime())


async def test_a_hidden_new_instance_is_never_gone_within_the_allowance(scene: Observed) -> None:
    scene.place.faults.hide_seconds = 280.0
    launched_at = clock.boottime()
    instance_id = await scene.launch("w1")
    while clock.boottime() - launched_at < 290:
        await scene.observer.look_for([instance_id])
        assert not scene.observer.is_gone(instance_id, launched_at, clock.boottime())
        await asyncio.sleep(15)
    assert (await scene.observer.look_for([instance_id])).instances
    assert not scene.observer.is_gone(instance_id, launched_at, clock.boottime() + 1000)


async def test_when_somebody_looked_last_and_as_whom(scene: Observed) -> None:
    [instance_id] = await scene.running("w1")
    assert scene.observer.account_id == ""
    assert scene.observer.last_lookup(instance_id) is None
    swept = await scene.observer.look()
    assert scene.observer.account_id == scene.place.account_id
    assert scene.observer.last_lookup(instance_id) == (swept.instances[instance_id], swept.began_at)
    described = await scene.observer.describe([instance_id])
    assert scene.observer.last_lookup(instance_id) == (described.instances[instance_id], described.began_at)


async def test_a_subscriber_may_leave(scene: Observed) -> None:
    told: list[Sequence[Instance]] = []
    end = scene.observer.on_change(told.append)
    end()
    end()
    await scene.running("w1")
    await scene.observer.look()
    assert told == []


async def test_stopping_leaves_nothing_behind_and_nobody_waiting(scene: Observed) -> None:
    await scene.observer.start()
    waiting = [asyncio.create_task(scene.observer.look()), asyncio.create_task(scene.observer.describe(["i-1"]))]
    await asyncio.sleep(0.5)
    await scene.observer.stop()
    for look in await asyncio.gather(*waiting):
        assert not look.complete
        assert "stopped" in look.trouble
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_stopping_at_once_leaves_nobody_waiting_either(scene: Observed) -> None:
    waiting = [asyncio.create_task(scene.observer.look()), asyncio.create_task(scene.observer.describe(["i-1"]))]
    await asyncio.sleep(0)
    await scene.observer.stop()
    for look in await asyncio.gather(*waiting):
        assert "stopped" in look.trouble
    assert (await scene.observer.look()).complete
    assert (await scene.observer.describe(["i-1"])).complete


async def test_an_observer_starts_again(scene: Observed) -> None:
    await scene.observer.start()
    await scene.observer.stop()
    await scene.observer.start()
    assert (await scene.observer.look()).complete
    await scene.observer.stop()


class Refusing(SimulatedProvider):
    """A provider that does not keep to the rule that looks do not raise."""

    async def sweep(self, region: str, selection: InstanceSelection) -> Sweep:
        raise CloudUnreachableError("no route")

    async def describe(self, region: str, instance_ids: Collection[str]) -> Sweep:
        raise CloudUnreachableError("no route")


async def test_an_error_of_a_provider_is_an_incomplete_look(scene: Observed) -> None:
    observer = RegionCache(Refusing(scene.world), REGION)
    assert (await observer.look()).trouble == "no route"
    look = await observer.describe(["i-1"])
    assert not look.complete
    assert look.trouble == "no route"
