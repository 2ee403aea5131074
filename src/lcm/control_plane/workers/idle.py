"""Idle detection: read the telemetry, update the last activity, evaluate, and pause if all checks pass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.calendar.schedule_reads import read_claims
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import pause_fields, updated_record
from lcm.control_plane.workers.scaling import (
    check_min_workers,
    check_not_held,
    check_not_outranked,
    count_running_workers,
)
from lcm.model.worker.idle import IdleDetectionResult, assess_idle, latest_activity

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import IdleDetectionRequest

AUTO_PAUSE, IDLE_TIMEOUT = "auto-pause", "idle_timeout"
NO_TELEMETRY = "no telemetry; a worker without telemetry is not considered idle"


async def detect_idle(
    tx: Transaction, worker_id: str, request: IdleDetectionRequest, settings: FleetSettings
) -> IdleDetectionResult:
    """Run the four steps. A failed fetch, or an empty list of events, ends after the first."""
    worker = await tx.worker(worker_id)
    result = IdleDetectionResult(worker_id=worker_id, checked_at=tx.now)
    if not request.events:
        return result.model_copy(update={"error": NO_TELEMETRY})
    result = result.model_copy(update={"telemetry_fetched": True})
    latest = latest_activity(request.events)
    updated = _with_activity(worker, latest)
    result = result.model_copy(update={"activity_updated": updated is not worker})
    if _checked_recently(worker, settings, tx.earliest_now):
        _save_activity(tx, updated)
        return result
    running = await count_running_workers(tx.store)
    # The worker is written in this transaction, so a lablet placed on it meanwhile makes the commit conflict.
    lablets = updated.allocation.lablets
    now = tx.earliest_now
    claims = await read_claims(tx, updated)
    verdict = assess_idle(
        updated, settings.idle, settings.scaling, now=now, running=running, lablets=lablets, claims=claims
    )
    result = result.model_copy(
        update={
            "idle_check_performed": True,
            "is_idle": verdict.is_idle,
            "idle_minutes": verdict.idle_minutes,
            "eligible_for_pause": verdict.eligible_for_pause,
            "eligible_for_drain": verdict.eligible_for_drain,
            "in_snooze_period": verdict.in_snooze_period,
        }
    )
    updated = updated.model_copy(update={"last_idle_check_at": tx.now})
    if not verdict.eligible_for_pause:
        _save_activity(tx, updated)
        return result
    try:
        await pause_idle_worker(tx, updated, settings)
    except ProblemError as problem:
        _save_activity(tx, updated)
        return result.model_copy(update={"error": problem.detail, "eligible_for_pause": False})
    return result.model_copy(update={"auto_pause_triggered": True})


async def pause_idle_worker(tx: Transaction, worker: Worker, settings: FleetSettings) -> Worker:
    """Auto-pause: set the desired status to STOPPED because the worker is idle."""
    await check_not_held(tx, worker)
    await check_not_outranked(tx, worker)
    await check_min_workers(tx, settings.scaling)
    fields = pause_fields(worker, tx.now, IDLE_TIMEOUT, by_policy=True)
    tx.attribute_to_policy(AUTO_PAUSE)
    return tx.save_worker(updated_record(worker, tx.now, bump_generation=True, **fields), "auto_paused", IDLE_TIMEOUT)


def _with_activity(worker: Worker, latest: datetime | None) -> Worker:
    if latest is None or (worker.last_activity_at is not None and latest <= worker.last_activity_at):
        return worker
    return worker.model_copy(update={"last_activity_at": latest})


def _checked_recently(worker: Worker, settings: FleetSettings, now: datetime) -> bool:
    last = worker.last_idle_check_at
    return last is not None and now - last < timedelta(seconds=settings.idle.idle_detection_interval)


def _save_activity(tx: Transaction, worker: Worker) -> None:
    """Save activity only: neither version nor generation changes, and no event is published."""
    tx.save_without_event(worker)
