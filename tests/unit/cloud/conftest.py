"""A region of the simulated cloud with a region cache."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.region_cache import RegionCache
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from lcm.cloud.types import Sweep

REGION = "eu-central-1"
# Slow enough for many calls during one sweep.
TIMING = Timing(page_latency=(2.0, 2.0), visible_after=(0.0, 0.0), pending=(20.0, 20.0), stopping=(30.0, 30.0))


class Observed:
    """The region cache, its provider and its simulated cloud."""

    def __init__(self) -> None:
        self.world = SimulatedCloud(seed=5, timing=TIMING, page_size=10)
        self.place = self.world.add_region(REGION)
        self.image = self.world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
        self.provider = SimulatedProvider(self.world)
        self.cache = RegionCache(self.provider, REGION)

    async def launch(self, worker_id: str) -> str:
        parameters = launch_of(worker_id, 1, region=REGION, image_id=self.image, subnet_id=None)
        return (await self.provider.launch_instance(parameters)).id

    async def running(self, *workers: str) -> list[str]:
        ids = [await self.launch(worker) for worker in workers]
        await asyncio.sleep(60)
        return ids

    @property
    def describes(self) -> int:
        return self.world.calls()["DescribeInstances"]

    async def find(
        self, instance_ids: Collection[str], max_age: float = 0.0, not_before: float = float("-inf")
    ) -> Sweep:
        """Find instances as a controller does: in a shared sweep, and by id if a complete sweep lacks them."""
        return await find_instances(self.cache, instance_ids, max_age, not_before)


async def find_instances(
    cache: RegionCache, instance_ids: Collection[str], max_age: float = 0.0, not_before: float = float("-inf")
) -> Sweep:
    sweep = await cache.sweep(max_age, not_before)
    found = {i: sweep.instances[i] for i in instance_ids if i in sweep.instances}
    missing = [i for i in instance_ids if i not in found]
    if not missing or not sweep.complete:
        return replace(sweep, instances=found)
    described = await cache.describe(missing, max(sweep.began_at, not_before))
    return replace(described, instances={**found, **described.instances}, began_at=sweep.began_at)


@pytest.fixture
async def scene() -> Observed:
    return Observed()
