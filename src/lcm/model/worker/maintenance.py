"""Maintenance that EC2 announces, failed status checks, and when a worker is restarted because of them. Pure rules.

A stop and a start move an instance to another host. That ends what EC2 has announced for the old one, and most failures
of its status checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from lcm.model.base import Record, SingleLineText, UtcDatetime
from lcm.model.formatting import as_clause, count_minutes, count_with_verb
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lcm.model.fleet.settings import MaintenanceSettings
    from lcm.model.worker.record import Worker

MAINTENANCE: Final = "maintenance"
"""The pause reason of a worker that is stopped only to be started again on another host."""
MAX_RESTARTS: Final = 2
"""How often a worker is restarted before a person has to look."""
EVENT_LISTED_FOR: Final = timedelta(minutes=30)
"""How long EC2 may go on listing an event of a host that the instance has left."""

MOVING_STATUSES: Final = (WorkerStatus.STOPPING, WorkerStatus.STOPPED, WorkerStatus.STARTING)

_LABELS: Final = {
    "instance-retirement": "the retirement of its host",
    "instance-stop": "a stop",
    "instance-reboot": "a reboot",
    "system-reboot": "a reboot of its host",
    "system-maintenance": "maintenance of its host",
}


class AnnouncedMaintenance(Record):
    """What EC2 has announced for an instance: the earliest of its scheduled events."""

    code: Annotated[SingleLineText, Field(max_length=64)] = Field(
        description="EC2's word, such as instance-retirement."
    )
    detail: Annotated[SingleLineText, Field(max_length=500)] = ""
    not_before: UtcDatetime | None = Field(default=None, description="When it begins at the earliest; null if unknown.")

    @property
    def text(self) -> str:
        """What is announced, and for when."""
        label = _LABELS.get(self.code, f"an event ({self.code})")
        when = "" if self.not_before is None else f" for {self.not_before:%Y-%m-%d %H:%M} UTC"
        detail = f" ({as_clause(self.detail)})" if self.detail else ""
        return f"EC2 has announced {label}{when}{detail}"


@dataclass(frozen=True, slots=True)
class RestartNeed:
    """Why a worker is to be restarted on another host, and from when on."""

    reason: str
    due: datetime
    stuck_reason: str  # of the condition Stuck once it was restarted as often as is allowed, in vain
    restarts: int

    @property
    def is_exhausted(self) -> bool:
        """Whether it was restarted as often as is allowed."""
        return self.restarts >= MAX_RESTARTS


def restart_need(worker: Worker, settings: MaintenanceSettings, now: datetime) -> RestartNeed | None:
    """Why a RUNNING worker needs another host; None if it does not, or should not run."""
    if worker.status is not WorkerStatus.RUNNING or worker.desired_status is not DesiredStatus.RUNNING:
        return None
    return min(_needs(worker, settings, now), key=lambda need: need.due, default=None)


def _needs(worker: Worker, settings: MaintenanceSettings, now: datetime) -> Iterator[RestartNeed]:
    done = len(worker.maintenance_restarts)
    impaired = find_condition(worker.conditions, ConditionType.IMPAIRED)
    if impaired is not None and impaired.status is ConditionStatus.TRUE:
        since = max(impaired.since, worker.last_resumed_at or impaired.since)
        lasting = count_minutes(max(0.0, (now - since).total_seconds()))
        reason = f"EC2 has reported its instance as impaired for {lasting} ({as_clause(impaired.message)})"
        yield RestartNeed(reason, since + timedelta(seconds=settings.impaired_after), "StillImpaired", done)
    if worker.maintenance is not None:
        due = worker.maintenance_restarts[-1] + EVENT_LISTED_FOR if done else worker.status_since
        yield RestartNeed(worker.maintenance.text, due, "MaintenanceNotDone", done)


def lablet_block(worker: Worker) -> str | None:
    """What on the record keeps a worker from being restarted: its lablets."""
    lablets = worker.allocation.lablets
    return f"{count_with_verb(lablets, 'lablet')} assigned to it" if lablets else None


def is_moving(worker: Worker) -> bool:
    """Whether a worker is on its way to another host. One that does not start again keeps others from being stopped."""
    if worker.is_in_maintenance:
        return worker.status not in (WorkerStatus.FAILED, WorkerStatus.TERMINATED)
    starts = worker.desired_status is DesiredStatus.RUNNING and worker.status in MOVING_STATUSES
    return starts and bool(worker.maintenance_restarts)
