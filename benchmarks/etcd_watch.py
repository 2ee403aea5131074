"""Delay from a single change in a real etcd to `reconcile`."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from benchmarks.support.output import percentile, report
from lcm.coordination.etcd import EtcdConfig, EtcdCoordination
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.core.controller.reconciliation import ReconciliationResult
from lcm.core.controller.watch import WatchTriggeredHostedService
from tests.support.servers.etcd import EtcdServer

CHANGES = 500
PAUSE = 0.01


class Stopwatch(WatchTriggeredHostedService[str]):
    """Records when the pass of each key began."""

    def __init__(self, coordination: EtcdCoordination) -> None:
        config = ReconciliationConfig(startup_sweep_delay=0.0, interval_seconds=1000.0)
        election = LeaderElectionConfig(service_name="bench")
        watch = WatchConfig(prefix="/bench/")
        super().__init__(coordination, election, watch, config, registry=CollectorRegistry())
        self.began: dict[str, float] = {}
        self.ready = asyncio.Event()
        self.all_seen = asyncio.Event()

    async def on_startup_sweep_done(self) -> None:
        self.ready.set()

    async def list_resources(self) -> list[str]:
        return []

    async def fetch_single_resource(self, resource_id: str) -> str | None:
        return resource_id

    async def reconcile_resource(self, resource: str) -> ReconciliationResult:
        self.began.setdefault(resource, time.perf_counter())
        if len(self.began) == CHANGES:
            self.all_seen.set()
        return ReconciliationResult.success()

    def get_resource_id(self, resource: str) -> str:
        return resource


async def measure(endpoint: str) -> list[float]:
    controller_side, user_side = (EtcdCoordination(EtcdConfig((endpoint,))) for _ in range(2))
    stopwatch = Stopwatch(controller_side)
    await stopwatch.start()
    await stopwatch.ready.wait()
    sent: dict[str, float] = {}
    for number in range(CHANGES):
        key = str(number)
        sent[key] = time.perf_counter()
        await user_side.put(f"/bench/{key}", b'{"generation": 1}')
        await asyncio.sleep(PAUSE)
    await stopwatch.all_seen.wait()
    await stopwatch.stop()
    for side in (controller_side, user_side):
        await side.close()
    return [1000 * (stopwatch.began[key] - at) for key, at in sent.items()]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = EtcdServer(Path(folder)).start()
        try:
            latencies = asyncio.run(measure(server.endpoint))
        finally:
            server.stop()
    report("etcd put to reconcile, median", percentile(latencies, 50), "ms", aim="10")
    report("etcd put to reconcile, p99", percentile(latencies, 99), "ms", aim="50")
