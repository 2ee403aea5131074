"""A sweep of 10,000 instances: its duration, how long it blocks the event loop, and its number of calls.

The server is a fake of the wire format in a process of its own, with descriptions as large as EC2's.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from benchmarks.support.output import report
from lcm.cloud.aws import AwsConfig, AwsProvider, RegionConfig
from lcm.cloud.rate_limit import DESCRIBE_RATE
from lcm.cloud.types import InstanceSelection
from tests.support.aws.credentials import REGION, dummy_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

COUNT = 10_000
SAMPLE = 40
ROOT = Path(__file__).parents[1]


class Stalls:
    """The longest time between two ticks that should be a millisecond apart."""

    longest = 0.0

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, loop.time() - before - 0.001)


@contextmanager
def wire_server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.aws.ec2_wire", str(COUNT)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.communicate()


@asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    watched = Stalls()
    task = asyncio.create_task(watched.watch())
    await asyncio.sleep(0.05)
    watched.longest = 0.0
    try:
        yield watched
    finally:
        task.cancel()


async def measure(url: str) -> None:
    region = RegionConfig(region=REGION, endpoint_url=url)
    cloud = AwsProvider(AwsConfig({REGION: region}), CollectorRegistry())
    try:
        # The first sweep learns the number of instances and starts the poller process.
        await cloud.sweep(REGION, InstanceSelection())
        async with stalls() as watched:
            began = time.perf_counter()
            sweep = await cloud.sweep(REGION, InstanceSelection())
            took = time.perf_counter() - began
        assert sweep.complete
        assert len(sweep.instances) == COUNT
        naive = await one_by_one(cloud, list(sweep.instances)[:SAMPLE])
    finally:
        await cloud.close()
    bucket = (COUNT - DESCRIBE_RATE.capacity) / DESCRIBE_RATE.refill_per_second
    report("AWS: sweep of 10,000 instances", took, "s", beside=f"one describe a worker: {max(naive, bucket):,.0f} s")
    report("AWS: longest stall of the loop in it", watched.longest * 1000, "ms", aim="50")
    report("AWS: calls of it", sweep.calls, "calls", aim="10", beside=f"one describe a worker: {COUNT:,}")


async def one_by_one(cloud: AwsProvider, ids: list[str]) -> float:
    """The time for one describe call per instance, extrapolated from a sample and without AWS's limits."""
    began = time.perf_counter()
    for instance_id in ids:
        await cloud.describe(REGION, [instance_id])
    return (time.perf_counter() - began) / len(ids) * COUNT


def main() -> None:
    with dummy_credentials(), wire_server() as url:
        asyncio.run(measure(url))


if __name__ == "__main__":
    main()
