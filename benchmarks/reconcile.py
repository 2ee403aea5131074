"""Reconciles per second with a controller that does nothing."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from benchmarks.support.output import report
from lcm.core.controller.config import ReconciliationConfig
from lcm.core.controller.reconciliation import ReconciliationHostedService, ReconciliationResult

RESOURCES = 50_000


class Idle(ReconciliationHostedService[int]):
    """Finds every resource in its desired state."""

    def __init__(self) -> None:
        config = ReconciliationConfig(initial_delay=0.0, interval_seconds=1000.0)
        super().__init__("idle", config, registry=CollectorRegistry())
        self.left = RESOURCES
        self.all_done = asyncio.Event()

    async def list_resources(self) -> range:
        return range(RESOURCES)

    async def fetch_single_resource(self, resource_id: str) -> int | None:
        return int(resource_id)

    async def reconcile_resource(self, resource: int) -> ReconciliationResult:
        self.left -= 1
        if not self.left:
            self.all_done.set()
        return ReconciliationResult.success()

    def get_resource_id(self, resource: int) -> str:
        return str(resource)


async def one_resync() -> float:
    service = Idle()
    began = time.perf_counter()
    await service.start()
    await service.all_done.wait()
    rate = RESOURCES / (time.perf_counter() - began)
    await service.stop()
    return rate


def main() -> None:
    rate = max(asyncio.run(one_resync()) for _ in range(3))
    report(f"no-op reconciles, resync of {RESOURCES:,}, metrics on", rate, "/s")
