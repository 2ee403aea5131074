"""What a person wants for a time counts more than policies: the whole platform, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import a_fleet


async def test_a_worker_is_not_paused_before_the_end_that_a_person_gave() -> None:
    """calendar.md#overrides: it is idle all the time, and paused when the time is over."""
    async with a_fleet(report_interval=600.0) as fleet:
        await fleet.start()
        worker = await fleet.running()
        server = fleet.cml_of(worker)
        server.events = (CMLActivityEvent("start_lab", clock.now(), "somebody"),)
        await fleet.people.workers.start(worker.id, "demo", until=clock.now() + timedelta(hours=5))
        await asyncio.sleep(4.9 * 3600)
        kept = await fleet.worker(worker.id)
        assert (kept.ready, kept.auto_pause_count) == (True, 0)
        assert "requested RUNNING until" in (await fleet.people.workers.explain(worker.id)).summary
        (pause,) = (await fleet.people.fleet.plan_overview()).pauses
        assert kept.override is not None
        assert kept.override.until is not None
        assert pause.at >= kept.override.until
        paused = await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=1800)
        assert (paused.pause_reason, paused.override) == ("idle_timeout", None)
