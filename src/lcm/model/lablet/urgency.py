"""Sort order of lablets by urgency: problems first, then changes in progress, then healthy lablets."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lcm.model.formatting import as_clause
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

if TYPE_CHECKING:
    from lcm.model.lablet.record import Lablet

STUCK_PREFIX: Final = "Stuck: "
"""Prefix of the message of a lablet that makes no progress and needs a person."""

HELD_PREFIX: Final = "on hold by "
"""Prefix of the message of a lablet whose lab is unchanged because of a hold, which is not a problem."""

FAILED_SHOWN_FOR: Final = timedelta(hours=24)
"""How long a failed lablet is listed among the current ones."""

_NEVER, _ALWAYS = "0", "9999"  # sort before and after every timestamp


class LabletUrgency(IntEnum):
    """A lower number is more urgent. The numbers are stored: changing one requires a backfill of the stored fields."""

    FAILED = 0
    STUCK = 1
    DEGRADED = 2
    WAITING = 3
    IN_PROGRESS = 5
    HEALTHY = 6
    PLANNED = 7
    ENDED = 9


LAST_LABLET_PROBLEM = LabletUrgency.WAITING


def lablet_urgency(lablet: Lablet) -> LabletUrgency:
    """Return the urgency of a lablet. It depends on the record alone, so that the store can sort by it."""
    if lablet.status is LabletStatus.FAILED:
        return LabletUrgency.FAILED
    if lablet.status in FINAL_LABLET_STATUSES:
        return LabletUrgency.ENDED
    if lablet.message.startswith(STUCK_PREFIX):
        return LabletUrgency.STUCK
    if lablet.status is LabletStatus.RUNNING:
        degraded = lablet.message and not lablet.message.startswith(HELD_PREFIX)
        return LabletUrgency.DEGRADED if degraded else LabletUrgency.HEALTHY
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return _pending_urgency(lablet)
    return LabletUrgency.IN_PROGRESS


def lablet_problem(lablet: Lablet) -> str | None:
    """Return a short description of what is wrong with the lablet, or None."""
    urgency = lablet_urgency(lablet)
    return lablet_reason(lablet) or "failed" if urgency <= LAST_LABLET_PROBLEM else None


def lablet_reason(lablet: Lablet) -> str:
    """Return the reason for the current status, as last reported by a controller."""
    if lablet.status in FINAL_LABLET_STATUSES:
        return as_clause(lablet.ending_reason or lablet.message)
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return "" if lablet.placement is None else as_clause(lablet.placement.reason)
    return as_clause(lablet.message.removeprefix(STUCK_PREFIX))


def shown_until(lablet: Lablet) -> str:
    """Return until when it is listed as current, as a sortable text: a failed lablet is listed for a while."""
    if lablet.status is LabletStatus.FAILED:
        return (lablet.status_since + FAILED_SHOWN_FOR).isoformat()
    return _NEVER if lablet.status in FINAL_LABLET_STATUSES else _ALWAYS


def _pending_urgency(lablet: Lablet) -> LabletUrgency:
    placement = lablet.placement
    if lablet.starts_at is not None and (placement is None or placement.at < lablet.starts_at):
        return LabletUrgency.PLANNED
    if placement is None or placement.worker_id is not None or placement.scale_up_worker_id is not None:
        return LabletUrgency.IN_PROGRESS  # not evaluated yet, or a worker is being started for it
    return LabletUrgency.WAITING
