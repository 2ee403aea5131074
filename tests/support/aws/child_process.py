"""A separate process that uses the adapter and can be killed.

`launch PARAMETERS-AS-JSON URL` launches; `sweep REGION URL` sweeps with the poller process, prints its id, and stays.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from lcm.cloud.aws import AwsConfig, AwsProvider, RegionConfig, Tuning
from lcm.cloud.types import InstanceSelection, LaunchParameters

_ROOT = Path(__file__).parents[3]


def start(*arguments: str) -> subprocess.Popen[str]:
    """Run this module in a process with the environment of the test."""
    command = [sys.executable, "-m", "tests.support.aws.child_process", *arguments]
    return subprocess.Popen(command, cwd=_ROOT, env=dict(os.environ), stdout=subprocess.PIPE, text=True)


def _provider(region: str, url: str) -> AwsProvider:
    tuning = Tuning(thread_page=5, process_page=5, poller_above=0)
    return AwsProvider(AwsConfig({region: RegionConfig(region=region, endpoint_url=url)}, tuning))


async def _launch(text: str, url: str) -> None:
    parameters = LaunchParameters.from_json(json.loads(text))
    cloud = _provider(parameters.region, url)
    instance = await cloud.launch_instance(parameters)
    print(instance.id, flush=True)
    await cloud.close()


async def _sweep(region: str, url: str) -> None:
    cloud = _provider(region, url)
    # The first sweep counts the instances, the second uses the process.
    for _ in range(2):
        assert (await cloud.sweep(region, InstanceSelection())).complete
    print(cloud.poller_pid(region), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"launch": _launch, "sweep": _sweep}[sys.argv[1]](*sys.argv[2:]))
