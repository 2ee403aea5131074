"""News of CML servers wake their workers, and people do not wait behind them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.core.controller.config import ReconciliationConfig
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    import pytest

    from lcm.core.controller.reconciliation import ReconciliationResult
    from lcm.model.worker.record import Worker


async def test_user_requests_go_before_changes_of_all_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader hears from every CML server for the first time, within moments."""
    async with a_fleet(config=ReconciliationConfig(max_concurrent=1)) as fleet:
        controller = await fleet.start()
        changed = [await fleet.running(name) for name in ("alpha", "bravo", "charlie")]
        requested = await fleet.running("delta")
        await asyncio.sleep(10)  # its first CML query is over, which wakes it too
        passes: list[str] = []
        reconcile = controller.reconcile_resource

        async def noted(worker: Worker) -> ReconciliationResult:
            passes.append(worker.name)
            return await reconcile(worker)

        monkeypatch.setattr(controller, "reconcile_resource", noted)
        for worker in changed:
            controller._observer._on_cml_changed(worker.id)
        controller.trigger(requested.id)
        await asyncio.sleep(1)
        assert passes == ["delta", "alpha", "bravo", "charlie"]
