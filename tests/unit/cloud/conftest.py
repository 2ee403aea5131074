"""A region of the simulated cloud with an observer in front of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lcm.cloud.region_cache import RegionCache
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

REGION = "eu-central-1"
# Slow enough that many can ask while one sweep is under way.
TIMING = Timing(page_latency=(2.0, 2.0), visible_after=(0.0, 0.0), pending=(20.0, 20.0), stopping=(30.0, 30.0))


class Observed:
    """What the tests of the observer look at."""

    def __init__(self) -> None:
        self.world = SimulatedCloud(seed=5, timing=TIMING, page_size=10)
        self.place = self.world.add_region(REGION)
        self.image = self.world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
        self.provider = SimulatedProvider(self.world)
        self.observer = RegionCache(self.provider, REGION)

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


@pytest.fixture
async def scene() -> Observed:
    return Observed()
