"""Detection of idleness in four steps, and what ends it early."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import WORKER_CHANGED
from lcm.control_plane.workers.idle import detect_idle
from lcm.control_plane.workers.lifecycle import updated_worker
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings
from lcm.model.worker.requests import IdleDetectionRequest
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import Allocation
from tests.support.records.worker_records import CONTROLLER, Desk
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.idle import IdleDetectionResult

NOISE = "system_stats"


def events(*told: tuple[str, float]) -> list[dict[str, Any]]:
    """Events of a category, so many minutes ago."""
    return [{"category": name, "at": clock.now() - timedelta(minutes=minutes)} for name, minutes in told]


async def detect(desk: Desk, telemetry: list[dict[str, Any]] | None, **told: Any) -> IdleDetectionResult:
    settings = FleetSettings.model_validate(told)
    request = IdleDetectionRequest.model_validate({"events": telemetry, "observed_at": clock.now()})

    async def attempt(change: Transaction) -> IdleDetectionResult:
        return await detect_idle(change, "w-1", request, settings)

    return await desk.records.change(CONTROLLER, attempt)


async def assign(desk: Desk, lablets: int) -> None:
    """Have so many lablets on the worker."""

    async def attempt(change: Transaction) -> None:
        worker = await change.worker("w-1")
        change.save(updated_worker(worker, change.now, allocation=Allocation(lablets=lablets)), "assigned")

    await desk.records.change(CONTROLLER, attempt)


@pytest.fixture
async def idle_desk(desk: Desk) -> Desk:
    """A running worker that nobody has used for three hours."""
    long_ago = clock.now() - timedelta(hours=3)
    await desk.add(a_worker(status="RUNNING", instance_id="i-1", created_at=long_ago, last_resumed_at=long_ago))
    return desk


@pytest.mark.parametrize("telemetry", [None, []])
async def test_no_telemetry_is_not_idleness(idle_desk: Desk, telemetry: list[dict[str, Any]] | None) -> None:
    result = await detect(idle_desk, telemetry)
    assert (result.telemetry_fetched, result.idle_check_performed, result.auto_pause_triggered) == (False, False, False)
    assert result.error is not None
    assert (await idle_desk.worker()).desired_status is DesiredStatus.RUNNING


async def test_hours_without_telemetry_pause_nobody(idle_desk: Desk) -> None:
    for _ in range(48):
        await detect(idle_desk, None)
        await asyncio.sleep(300)
    assert (await idle_desk.worker()).desired_status is DesiredStatus.RUNNING


async def test_an_idle_worker_is_paused(idle_desk: Desk) -> None:
    """Seed 000 §5, step 5: the four stages."""
    result = await detect(idle_desk, events((NOISE, 1), ("start_lab", 90)))
    assert result.model_dump(exclude={"checked_at", "worker_id"}) == {
        "telemetry_fetched": True,
        "activity_updated": True,
        "idle_check_performed": True,
        "auto_pause_triggered": True,
        "is_idle": True,
        "idle_minutes": 90,
        "eligible_for_pause": True,
        "eligible_for_drain": True,
        "in_snooze_period": False,
        "error": None,
    }
    worker = await idle_desk.worker()
    assert (worker.desired_status, worker.pause_reason, worker.auto_pause_count) == ("STOPPED", "idle_timeout", 1)
    assert (worker.version, worker.generation) == (2, 2)


async def test_activity_moves_neither_version_nor_generation_and_nobody_is_told(idle_desk: Desk) -> None:
    told = len(await idle_desk.told(WORKER_CHANGED))
    result = await detect(idle_desk, events(("start_lab", 10)))
    assert (result.activity_updated, result.is_idle) == (True, False)
    worker = await idle_desk.worker()
    assert worker.last_activity_at == clock.now() - timedelta(minutes=10)
    assert (worker.version, worker.generation) == (1, 1)
    assert len(await idle_desk.told(WORKER_CHANGED)) == told


async def test_noise_is_telemetry_but_no_activity(idle_desk: Desk) -> None:
    result = await detect(idle_desk, events((NOISE, 1)))
    assert (result.telemetry_fetched, result.activity_updated) == (True, False)
    assert result.idle_minutes == 180


async def test_older_events_do_not_take_activity_back(idle_desk: Desk) -> None:
    await detect(idle_desk, events(("start_lab", 10)))
    result = await detect(idle_desk, events(("start_lab", 50)))
    assert not result.activity_updated
    assert (await idle_desk.worker()).last_activity_at == clock.now() - timedelta(minutes=10)


async def test_a_worker_is_checked_at_most_once_per_interval(idle_desk: Desk) -> None:
    assert (await detect(idle_desk, events(("start_lab", 10)))).idle_check_performed
    await asyncio.sleep(299)
    assert not (await detect(idle_desk, events(("start_lab", 1)))).idle_check_performed
    await asyncio.sleep(1)
    assert (await detect(idle_desk, events((NOISE, 1)))).idle_check_performed


async def test_an_assigned_lablet_or_the_floor_keep_it_running(idle_desk: Desk) -> None:
    await assign(idle_desk, 1)
    result = await detect(idle_desk, events((NOISE, 1)))
    assert (result.is_idle, result.eligible_for_pause, result.auto_pause_triggered) == (True, False, False)
    assert not result.eligible_for_drain
    await assign(idle_desk, 0)
    await asyncio.sleep(300)
    result = await detect(idle_desk, events((NOISE, 1)), scaling={"min_workers": 1})
    assert (result.is_idle, result.eligible_for_pause, result.auto_pause_triggered) == (True, False, False)
