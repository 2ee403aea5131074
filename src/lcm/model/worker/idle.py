"""Whether a worker is idle, and whether it may be paused or drained: pure rules."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import LenientModel, UtcDatetime
from lcm.model.calendar.precedence import NO_OTHER_CLAIMS, Authority, outranking_claim
from lcm.model.fleet.settings import IdleAction
from lcm.model.formatting import count_with_verb
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.model.calendar.precedence import OtherClaims
    from lcm.model.fleet.settings import FleetSettings, IdleSettings, ScalingSettings
    from lcm.model.worker.record import Worker

ACTIVITY_CATEGORIES = frozenset(
    {
        "start_lab",
        "stop_lab",
        "import_lab",
        "export_lab",
        "create_lab",
        "wipe_lab",
        "delete_lab",
        "queue_node",
        "start_node",
        "stop_node",
        "wipe_node",
        "packet_capture",
    }
)
"""Events caused by a user. All other events come from the CML server itself."""


_AT_MINIMUM_WORKERS = "the number of running workers is at the minimum"


class ActivityEvent(LenientModel):
    """An event on a worker, as reported by CML."""

    category: Annotated[str, Field(max_length=64)]
    at: UtcDatetime
    user_id: Annotated[str, Field(max_length=128)] | None = None


class IdleDetectionResult(LenientModel):
    """The result of an idle check."""

    worker_id: str
    checked_at: UtcDatetime
    telemetry_fetched: bool = False
    activity_updated: bool = False
    idle_check_performed: bool = False
    auto_pause_triggered: bool = False
    is_idle: bool = False
    idle_minutes: float | None = None
    eligible_for_pause: bool = False
    eligible_for_drain: bool = False
    in_snooze_period: bool = False
    error: str | None = None


class IdleAssessment(LenientModel):
    """Whether a worker is idle, and what prevents it from being paused or drained."""

    is_idle: bool
    idle_minutes: float
    in_snooze_period: bool
    obstacles: tuple[str, ...]  # why it may not be paused; empty if it may
    obstacles_to_drain: tuple[
        str, ...
    ]  # the same without the auto-pause setting and the minimum number of workers, which scale-down checks itself

    @property
    def eligible_for_pause(self) -> bool:
        """Whether it is idle and may be paused."""
        return self.is_idle and not self.obstacles

    @property
    def eligible_for_drain(self) -> bool:
        """Whether it is idle and may be drained; the auto-pause setting does not matter for that."""
        return self.is_idle and not self.obstacles_to_drain


def latest_activity(events: Iterable[ActivityEvent]) -> datetime | None:
    """Return the time of the last event caused by a user."""
    return max((event.at for event in events if event.category in ACTIVITY_CATEGORIES), default=None)


def assess_idle(
    worker: Worker,
    idle: IdleSettings,
    scaling: ScalingSettings,
    *,
    now: datetime,
    running: int,
    lablets: int,
    claims: OtherClaims = NO_OTHER_CLAIMS,
) -> IdleAssessment:
    """Assess whether a worker is idle and may be stopped; `running` counts the whole fleet, including this worker.

    `claims` are those of others on the worker, which count more than that it is idle.
    """
    idle_for = max(timedelta(0), now - idle_since(worker))
    is_idle = idle_for > timedelta(minutes=idle.worker_idle_timeout_minutes)
    snooze = timedelta(minutes=idle.worker_auto_pause_snooze_minutes)
    snoozing = worker.last_resumed_at is not None and now - worker.last_resumed_at < snooze
    to_drain = _obstacles(worker, claims, snoozing=snoozing, lablets=lablets, now=now)
    to_pause = () if idle.worker_auto_pause_enabled else ("auto-pause is disabled",)
    if idle.worker_auto_pause_enabled and scaling.scale_down_enabled and idle.idle_action is IdleAction.DRAIN:
        to_pause = ("idle workers are drained by scale-down",)
    return IdleAssessment(
        is_idle=is_idle,
        idle_minutes=idle_for.total_seconds() / 60,
        in_snooze_period=snoozing,
        obstacles=(*to_pause, *to_drain, *(() if running > scaling.min_workers else (_AT_MINIMUM_WORKERS,))),
        obstacles_to_drain=to_drain,
    )


def idle_since(worker: Worker) -> datetime:
    """Since when the worker has not been used, as far as known."""
    return worker.last_activity_at or worker.last_resumed_at or worker.created_at


def idle_action_due(worker: Worker, idle: IdleSettings) -> datetime:
    """From when on an idle check pauses or drains the worker, if it is not used until then."""
    due = idle_since(worker) + timedelta(minutes=idle.worker_idle_timeout_minutes)
    if worker.last_resumed_at is not None:
        due = max(due, worker.last_resumed_at + timedelta(minutes=idle.worker_auto_pause_snooze_minutes))
    return due


def idle_policy_action(settings: FleetSettings) -> IdleAction | None:
    """What happens to an idle worker; None if it keeps running."""
    idle, scaling = settings.idle, settings.scaling
    if scaling.scale_down_enabled and (idle.idle_action is IdleAction.DRAIN or not idle.worker_auto_pause_enabled):
        return IdleAction.DRAIN
    return IdleAction.PAUSE if idle.worker_auto_pause_enabled else None


def next_idle_action(
    worker: Worker, settings: FleetSettings, now: datetime, claims: OtherClaims = NO_OTHER_CLAIMS
) -> datetime | None:
    """When the worker will be paused or drained if it is not used until then; None if it will not be.

    Whether MIN_WORKERS or a cooldown prevents it depends on the other workers.
    """
    if (
        not worker.ready
        or not worker.idle_detection_enabled
        or worker.allocation.lablets
        or idle_policy_action(settings) is None
        or is_condition_true(worker.conditions, ConditionType.TELEMETRY_MISSING)
    ):
        return None
    claim = outranking_claim(Authority.POLICY, worker, now, claims)
    if claim is not None and (claim.until is None or claim.authority is Authority.HOLD):
        return None
    due = max(now, idle_action_due(worker, settings.idle), now if claim is None or claim.until is None else claim.until)
    last = worker.last_idle_check_at
    if last is None:
        return due
    interval = timedelta(seconds=settings.idle.idle_detection_interval)
    checks = max(1, math.ceil((due - last) / interval)) if interval else 1
    return max(due, last + checks * interval)


def _obstacles(worker: Worker, claims: OtherClaims, *, snoozing: bool, lablets: int, now: datetime) -> tuple[str, ...]:
    claim = outranking_claim(Authority.POLICY, worker, now, claims)
    held = claim is not None and claim.authority is Authority.HOLD
    found = (
        (worker.status is not WorkerStatus.RUNNING, f"it is {worker.status}"),
        (not worker.idle_detection_enabled, "idle detection is disabled for this worker"),
        (snoozing, "it was resumed recently"),
        (lablets > 0, f"{count_with_verb(lablets, 'lablet')} assigned to it"),
        (held, "it is on hold"),
        (claim is not None and not held, "" if claim is None else claim.reason),
    )
    return tuple(text for applies, text in found if applies)
