"""Idle detection in four steps, and what ends it early."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import WORKER_CHANGED
from lcm.control_plane.workers.idle import detect_idle
from lcm.control_plane.workers.lifecycle import updated_record
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


def events(*categories: tuple[str, float]) -> list[dict[str, Any]]:
    """Events by category and age in minutes."""
    return [{"category": name, "at": clock.now() - timedelta(minutes=minutes)} for name, minutes in categories]


async def detect(desk: Desk, telemetry: list[dict[str, Any]] | None, **overrides: Any) -> IdleDetectionResult:
    settings = FleetSettings.model_validate(overrides)
    request = IdleDetectionRequest.model_validate({"events": telemetry, "observed_at": clock.now()})

    async def attempt(tx: Transaction) -> IdleDetectionResult:
        return await detect_idle(tx, "w-1", request, settings)

    return await desk.unit_of_work.run(CONTROLLER, attempt)


async def assign(desk: Desk, lablets: int) -> None:
    """Put this many lablets on the worker."""

    async def attempt(tx: Transaction) -> None:
        worker = await tx.worker("w-1")
        tx.save_worker(updated_record(worker, tx.now, allocation=Allocation(lablets=lablets)), "assigned")

    await desk.unit_of_work.run(CONTROLLER, attempt)


@pytest.fixture
async def idle_desk(desk: Desk) -> Desk:
    """A running worker that has been idle for three hours."""
    long_ago = clock.now() - timedelta(hours=3)
    await desk.add(a_worker(status="RUNNING", instance_id="i-1", created_at=long_ago, last_resumed_at=long_ago))
    return desk


@pytest.mark.parametrize("telemetry", [None, []])
async def test_no_telemetry_is_not_idleness(idle_desk: Desk, telemetry: list[dict[str, Any]] | None) -> None:
    result = await detect(idle_desk, telemetry)
    assert (result.telemetry_fetched, result.idle_check_performed, result.auto_pause_triggered) == (False, False, False)
    assert result.error is not None
    assert (await idle_desk.worker()).desired_status is DesiredStatus.RUNNING


async def test_hours_without_telemetry_pause_no_worker(idle_desk: Desk) -> None:
    for _ in range(48):
        await detect(idle_desk, None)
        await asyncio.sleep(300)
    assert (await idle_desk.worker()).desired_status is DesiredStatus.RUNNING


async def test_an_idle_worker_is_paused(idle_desk: Desk) -> None:
    """worker-lifecycle.md#running: the four stages."""
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


async def test_activity_changes_neither_version_nor_generation_and_publishes_no_event(idle_desk: Desk) -> None:
    before = len(await idle_desk.entries(WORKER_CHANGED))
    result = await detect(idle_desk, events(("start_lab", 10)))
    assert (result.activity_updated, result.is_idle) == (True, False)
    worker = await idle_desk.worker()
    assert worker.last_activity_at == clock.now() - timedelta(minutes=10)
    assert (worker.version, worker.generation) == (1, 1)
    assert len(await idle_desk.entries(WORKER_CHANGED)) == before


async def test_noise_is_telemetry_but_no_activity(idle_desk: Desk) -> None:
    result = await detect(idle_desk, events((NOISE, 1)))
    assert (result.telemetry_fetched, result.activity_updated) == (True, False)
    assert result.idle_minutes == 180


async def test_older_events_do_not_move_activity_back(idle_desk: Desk) -> None:
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


async def test_an_assigned_lablet_or_the_minimum_keep_it_running(idle_desk: Desk) -> None:
    await assign(idle_desk, 1)
    result = await detect(idle_desk, events((NOISE, 1)))
    assert (result.is_idle, result.eligible_for_pause, result.auto_pause_triggered) == (True, False, False)
    assert not result.eligible_for_drain
    await assign(idle_desk, 0)
    await asyncio.sleep(300)
    result = await detect(idle_desk, events((NOISE, 1)), scaling={"min_workers": 1})
    assert (result.is_idle, result.eligible_for_pause, result.auto_pause_triggered) == (True, False, False)
