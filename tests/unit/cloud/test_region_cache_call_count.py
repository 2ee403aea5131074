"""The number of calls in a cycle, counted at the simulated server: it grows with pages, not with workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lcm.cloud.region_cache import SWEEP, RegionCache
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, fault_injection
from lcm.cloud.types import WORKER_TAG, InstanceSelection
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of
from tests.unit.cloud.conftest import find_instances

REGION = "eu-central-1"


@pytest.mark.parametrize("count", [10, 1_000, 10_000])
async def test_calls_of_a_peak_cycle_grow_with_pages(count: int) -> None:
    world = SimulatedCloud(seed=9)
    place = world.add_region(REGION)
    image = world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
    for number in range(count):
        place.run_instance(
            launch_of(f"w{number}", 1, region=REGION, image_id=image, subnet_id=None), world.time() - 3600
        )
    fault_injection.reveal_instances(place, world.time())
    provider = SimulatedProvider(world)
    cache = RegionCache(provider, REGION, InstanceSelection((WORKER_TAG,)))
    await cache.start()
    ids = list(place.machines)
    results = await asyncio.gather(*(find_instances(cache, [each]) for each in ids))
    assert all(result.complete and len(result.instances) == 1 for result in results)
    await provider.health(REGION)
    assert len(await provider.get_instance_metrics(REGION, ids)) == count
    assert sum(world.calls().values()) <= -(-count // 1000) + 3 + -(-7 * count // 500)
    assert cache.calls_this_cycle == {SWEEP: -(-count // 1000)}
    await cache.stop()
