"""A thousand running workers: what a cycle of a steady fleet costs the cloud, the control plane and coordination."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lcm.core.controller.config import ReconciliationConfig
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.running_workers import standing_workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WORKERS = 1000
CYCLE = 30.0


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(config=ReconciliationConfig(interval_seconds=CYCLE)) as fleet:
        fleet.cml.boot = 0.0
        await standing_workers(fleet, WORKERS)
        await fleet.change_settings(discovery={"discovery_interval": 2 * CYCLE})  # so that some cycles have one
        await fleet.start()
        yield fleet


@pytest.mark.timeout(600)
async def test_a_cycle_of_a_steady_fleet(fleet: Fleet) -> None:
    """At most 18 calls at N = 1,000 in the fullest cycle; the next writes metrics and its own status.

    Reference: cloud-and-cml.md.
    """
    await asyncio.sleep(100)
    wire, server = fleet.wires["one"], fleet.server
    most = 0
    for _ in range(2):  # discovery runs in every other one
        calls, written, revision = Counter(fleet.world.calls()), len(wire.sent), server.revision
        await asyncio.sleep(CYCLE)
        made = Counter(fleet.world.calls()) - calls
        most = max(most, sum(made.values()))
        writes = Counter(line.rpartition("/")[2] for line in wire.sent[written:] if line.startswith("POST"))
        assert set(writes) <= {"metrics", "detect-idle", "report"}, writes
        assert server.revision == revision, "a steady fleet causes no event"
    assert most <= 18
    stats = fleet.controllers["one"].stats()
    assert stats["running_worker_count"] == WORKERS
