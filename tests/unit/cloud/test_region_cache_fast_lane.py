"""The observer's fast lane: what moves is followed closely, and only as long as it moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.cloud.region_cache import FAST_LANE
from lcm.cloud.simulated.faults import Outage
from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from tests.unit.cloud.conftest import Observed

REGION = "eu-central-1"


async def test_the_fast_lane_follows_what_moves_and_rests_when_nothing_does(scene: Observed) -> None:
    changes: list[tuple[str, InstanceState]] = []
    scene.observer.on_change(lambda seen: changes.extend((each.id, each.state) for each in seen))
    await scene.observer.start()
    instance_id = await scene.launch("w1")
    await scene.observer.look()
    assert set(scene.observer.tracked) == {instance_id}
    await asyncio.sleep(30)
    assert changes == [(instance_id, InstanceState.PENDING), (instance_id, InstanceState.RUNNING)]
    assert not scene.observer.tracked
    calls = scene.observer.calls_total[FAST_LANE]
    assert 2 <= calls <= 4
    await asyncio.sleep(3600)
    assert scene.observer.calls_total[FAST_LANE] == calls
    assert not scene.observer._something_moves.is_set()
    await scene.observer.stop()


async def test_a_tracked_instance_is_seen_to_come_to_rest_within_seconds(scene: Observed) -> None:
    [instance_id] = await scene.running("w1")
    await scene.observer.look()
    await scene.observer.start()
    await scene.provider.stop_instance(REGION, instance_id)
    scene.observer.track(instance_id)
    await asyncio.sleep(30 + 5 + 2 + 2)
    seen = scene.observer.instance(instance_id)
    assert seen is not None
    assert seen.state is InstanceState.STOPPED
    assert not scene.observer.tracked
    await scene.observer.stop()


async def test_a_tracked_id_that_never_shows_is_let_go(scene: Observed) -> None:
    await scene.observer.start()
    scene.observer.track("i-never")
    await asyncio.sleep(900)
    assert not scene.observer.tracked
    await scene.observer.stop()


async def test_the_fast_lane_outlives_an_outage(scene: Observed) -> None:
    await scene.observer.start()
    instance_id = await scene.launch("w1")
    scene.observer.track(instance_id)
    scene.world.strike(REGION, Outage(120))
    await asyncio.sleep(180)
    seen = scene.observer.instance(instance_id)
    assert seen is not None
    assert seen.state is InstanceState.RUNNING
    await scene.observer.stop()
