"""Whether a worker is idle, and whether it may be paused for it: pure, from what is known at a moment."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import LenientModel, UtcDatetime
from lcm.model.fleet.settings import IdleAction
from lcm.model.formatting import count_with_verb
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.model.fleet.settings import IdleSettings, ScalingSettings
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
"""Events that show a person's intent; the rest is the server talking to itself."""


_AT_MINIMUM_WORKERS = "no more than the minimum number of workers is running"


class ActivityEvent(LenientModel):
    """Something that happened on a worker, as CML tells it."""

    category: Annotated[str, Field(max_length=64)]
    at: UtcDatetime
    user_id: Annotated[str, Field(max_length=128)] | None = None


class IdleDetectionResult(LenientModel):
    """What an idle check found and did."""

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
    """How idle a worker is, and what keeps it from being paused."""

    is_idle: bool
    idle_minutes: float
    in_snooze_period: bool
    obstacles: tuple[str, ...]  # why it may not be paused, in words; empty when it may
    obstacles_to_drain: tuple[str, ...]  # the same, leaving out the auto-pause switch and the floor, a guard of its own

    @property
    def eligible_for_pause(self) -> bool:
        """Idle, and nothing speaks against pausing it."""
        return self.is_idle and not self.obstacles

    @property
    def eligible_for_drain(self) -> bool:
        """Idle, and nothing but perhaps the auto-pause switch speaks against stopping it."""
        return self.is_idle and not self.obstacles_to_drain


def latest_activity(events: Iterable[ActivityEvent]) -> datetime | None:
    """When a person last did something."""
    return max((event.at for event in events if event.category in ACTIVITY_CATEGORIES), default=None)


def assess_idle(
    worker: Worker, idle: IdleSettings, scaling: ScalingSettings, *, now: datetime, running: int, lablets: int
) -> IdleAssessment:
    """How idle a worker is and whether it may be stopped; `running` counts the whole fleet, this one included."""
    since = worker.last_activity_at or worker.last_resumed_at or worker.created_at
    idle_for = max(timedelta(0), now - since)
    is_idle = idle_for > timedelta(minutes=idle.worker_idle_timeout_minutes)
    snooze = timedelta(minutes=idle.worker_auto_pause_snooze_minutes)
    snoozing = worker.last_resumed_at is not None and now - worker.last_resumed_at < snooze
    to_drain = _obstacles(worker, snoozing=snoozing, lablets=lablets, now=now)
    to_pause = () if idle.worker_auto_pause_enabled else ("auto-pause is switched off",)
    if idle.worker_auto_pause_enabled and scaling.scale_down_enabled and idle.idle_action is IdleAction.DRAIN:
        to_pause = ("idle workers are drained by scale-down",)
    return IdleAssessment(
        is_idle=is_idle,
        idle_minutes=idle_for.total_seconds() / 60,
        in_snooze_period=snoozing,
        obstacles=(*to_pause, *to_drain, *(() if running > scaling.min_workers else (_AT_MINIMUM_WORKERS,))),
        obstacles_to_drain=to_drain,
    )


def _obstacles(worker: Worker, *, snoozing: bool, lablets: int, now: datetime) -> tuple[str, ...]:
    found = (
        (worker.status is not WorkerStatus.RUNNING, f"it is {worker.status}"),
        (not worker.idle_detection_enabled, "idle detection is switched off for this worker"),
        (snoozing, "it was resumed a short while ago"),
        (lablets > 0, f"{count_with_verb(lablets, 'lablet')} assigned to it"),
        (worker.hold is not None and worker.hold.active(now), "it is on hold"),
    )
    return tuple(text for applies, text in found if applies)
