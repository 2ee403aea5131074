"""The fast lane of the region cache: instances in transition are polled often, until they settle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.cloud.region_cache import FAST_LANE
from lcm.cloud.simulated.faults import Outage
from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from tests.unit.cloud.conftest import Observed

REGION = "eu-central-1"


async def test_the_fast_lane_polls_only_during_transitions(scene: Observed) -> None:
    changes: list[tuple[str, InstanceState]] = []
    scene.cache.subscribe(lambda seen: changes.extend((each.id, each.state) for each in seen))
    await scene.cache.start()
    instance_id = await scene.launch("w1")
    await scene.cache.sweep()
    assert set(scene.cache.tracked) == {instance_id}
    await asyncio.sleep(30)
    assert changes == [(instance_id, InstanceState.PENDING), (instance_id, InstanceState.RUNNING)]
    assert not scene.cache.tracked
    calls = scene.cache.calls_total[FAST_LANE]
    assert 2 <= calls <= 4
    await asyncio.sleep(3600)
    assert scene.cache.calls_total[FAST_LANE] == calls
    assert not scene.cache._has_tracked.is_set()
    await scene.cache.stop()


async def test_a_tracked_instance_is_seen_as_settled_within_seconds(scene: Observed) -> None:
    [instance_id] = await scene.running("w1")
    await scene.cache.sweep()
    await scene.cache.start()
    await scene.provider.stop_instance(REGION, instance_id)
    scene.cache.track(instance_id)
    await asyncio.sleep(30 + 5 + 2 + 2)
    seen = scene.cache.instance(instance_id)
    assert seen is not None
    assert seen.state is InstanceState.STOPPED
    assert not scene.cache.tracked
    await scene.cache.stop()


async def test_a_tracked_id_that_is_never_found_is_dropped(scene: Observed) -> None:
    await scene.cache.start()
    scene.cache.track("i-never")
    await asyncio.sleep(900)
    assert not scene.cache.tracked
    await scene.cache.stop()


async def test_the_fast_lane_survives_an_outage(scene: Observed) -> None:
    await scene.cache.start()
    instance_id = await scene.launch("w1")
    scene.cache.track(instance_id)
    scene.world.inject_fault(REGION, Outage(120))
    await asyncio.sleep(180)
    seen = scene.cache.instance(instance_id)
    assert seen is not None
    assert seen.state is InstanceState.RUNNING
    await scene.cache.stop()
