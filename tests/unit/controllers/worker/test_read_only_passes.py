"""A pass says whether it changed anything: what a list shows of a worker is good for as long as none did."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.core.controller.config import ReconciliationConfig
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    import pytest

    from lcm.core.controller.reconciliation import ReconciliationResult
    from lcm.model.worker.record import Worker

DETECTION = 300.0


async def test_only_passes_without_writes_and_calls_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_fleet(config=ReconciliationConfig(interval_seconds=30)) as fleet:
        await fleet.change_settings(idle={"idle_detection_interval": DETECTION})
        controller = await fleet.start()
        worker = await fleet.running("alpha")
        await asyncio.sleep(DETECTION)
        passes: list[tuple[bool, bool]] = []
        wire, reconcile = fleet.wires["one"], controller.reconcile_resource

        async def noted(worker: Worker) -> ReconciliationResult:
            sent, calls = len(wire.sent), _changing(fleet.world.calls())
            result = await reconcile(worker)
            wrote = any(line.startswith("POST") and worker.id in line for line in wire.sent[sent:])
            passes.append((wrote or _changing(fleet.world.calls()) != calls, result.read_only))
            return result

        monkeypatch.setattr(controller, "reconcile_resource", noted)
        await asyncio.sleep(2 * DETECTION)
        assert passes.count((False, True)) >= 10
        assert passes.count((True, False)) >= 2  # idle checks are sent from time to time
        await fleet.people.workers.stop(worker.id)
        await asyncio.sleep(DETECTION)
        assert (await fleet.worker(worker.id)).status == "STOPPED"
    assert set(passes) == {(False, True), (True, False)}


def _changing(calls: dict[str, int]) -> int:
    return sum(count for name, count in calls.items() if not name.startswith(("Describe", "Get")))
