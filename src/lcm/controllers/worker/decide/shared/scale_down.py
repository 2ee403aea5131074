"""Decides whether an idle worker is drained: five guards in order, each with an audit label for its skip."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.controllers.worker.decision import Drain, WriteAuditEntry, success
from lcm.model.fleet.settings import IdleAction
from lcm.model.formatting import count_minutes, format_instant

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.idle import IdleDetectionResult


def decide_scale_down(
    result: IdleDetectionResult,
    settings: FleetSettings,
    *,
    running: int,
    last_scale_down_at: datetime | None,
    now: datetime,
) -> Decision | None:
    """What follows from an idle check; None if scale-down is disabled or nothing was checked."""
    if not settings.scaling.scale_down_enabled or not result.idle_check_performed:
        return None
    label, reason = _skip_reason(result, settings, running, last_scale_down_at, now)
    if label:
        return success(f"scale_down.{label}", reason, WriteAuditEntry(label, reason))
    idle = "some minutes" if result.idle_minutes is None else count_minutes(60 * result.idle_minutes)
    return success("scale_down.drain", f"idle for {idle}", Drain(f"idle for {idle}"))


def _skip_reason(
    result: IdleDetectionResult,
    settings: FleetSettings,
    running: int,
    last_scale_down_at: datetime | None,
    now: datetime,
) -> tuple[str, str]:
    pauses = settings.idle.worker_auto_pause_enabled and settings.idle.idle_action is IdleAction.PAUSE
    if result.auto_pause_triggered or pauses:
        return "skipped_auto_pause", "idle workers are paused, not drained (IDLE_ACTION=pause)"
    if not result.is_idle:
        return "skipped_not_idle", "the worker is not idle"
    if not result.eligible_for_drain:
        return "skipped_not_eligible", result.error or "the worker must not be stopped now"
    if running <= settings.scaling.min_workers:
        return "skipped_min_workers", f"{running} workers run and MIN_WORKERS is {settings.scaling.min_workers}"
    cooldown = timedelta(seconds=settings.scaling.scale_down_cooldown_seconds)
    if last_scale_down_at is not None and now - last_scale_down_at < cooldown:
        return "skipped_cooldown", f"the last scale-down was at {format_instant(last_scale_down_at)}"
    return "", ""
