"""News of CML servers wake their workers, and people do not wait behind them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.core.controller.reconciliation import ReconciliationConfig
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    import pytest

    from lcm.core.controller.reconciliation import ReconciliationResult
    from lcm.model.worker.record import Worker


async def test_what_somebody_asks_for_goes_before_news_of_all_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader hears from every CML server for the first time, within moments."""
    async with a_fleet(config=ReconciliationConfig(max_concurrent=1)) as fleet:
        controller = await fleet.start()
        heard = [await fleet.running(name) for name in ("alpha", "bravo", "charlie")]
        asked = await fleet.running("delta")
        passes: list[str] = []
        reconcile = controller.reconcile_resource

        async def noted(worker: Worker) -> ReconciliationResult:
            passes.append(worker.name)
            return await reconcile(worker)

        monkeypatch.setattr(controller, "reconcile_resource", noted)
        for worker in heard:
            controller._observing._on_news(worker.id)
        controller.trigger(asked.id)
        await asyncio.sleep(1)
        assert passes == ["delta", "alpha", "bravo", "charlie"]
