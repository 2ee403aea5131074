"""How much a lablet needs somebody's attention: problems first, then what moves, then what is as it should be."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lcm.model.formatting import as_clause
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

if TYPE_CHECKING:
    from lcm.model.lablet.record import Lablet

STUCK_PREFIX: Final = "Stuck: "
"""How the message of a lablet begins that does not come on, and about which somebody has to do something."""

HELD_PREFIX: Final = "on hold by "
"""How the message of a lablet begins whose lab is left as it is because somebody wants it so: no problem."""

FAILED_SHOWN_FOR: Final = timedelta(hours=24)
"""For how long a lablet that failed is shown among the present ones."""

_NEVER, _ALWAYS = "0", "9999"  # before and after every moment of ours


class LabletUrgency(IntEnum):
    """The smaller, the more urgent. The numbers stand in stores: whoever changes one has all fields filled in anew."""

    FAILED = 0
    STUCK = 1
    TROUBLED = 2
    WAITING = 3
    MOVING = 5
    FINE = 6
    PLANNED = 7
    ENDED = 9


LAST_LABLET_PROBLEM = LabletUrgency.WAITING


def lablet_urgency(lablet: Lablet) -> LabletUrgency:
    """Where it stands in the order of attention. From the record alone, so that a store can sort by it."""
    if lablet.status is LabletStatus.FAILED:
        return LabletUrgency.FAILED
    if lablet.status in FINAL_LABLET_STATUSES:
        return LabletUrgency.ENDED
    if lablet.message.startswith(STUCK_PREFIX):
        return LabletUrgency.STUCK
    if lablet.status is LabletStatus.RUNNING:
        troubled = lablet.message and not lablet.message.startswith(HELD_PREFIX)
        return LabletUrgency.TROUBLED if troubled else LabletUrgency.FINE
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return _pending_urgency(lablet)
    return LabletUrgency.MOVING


def lablet_problem(lablet: Lablet) -> str | None:
    """What is wrong with it, in a few words; None: nothing is."""
    urgency = lablet_urgency(lablet)
    return lablet_reason(lablet) or "it failed" if urgency <= LAST_LABLET_PROBLEM else None


def lablet_reason(lablet: Lablet) -> str:
    """Why it is as it is, as a controller told it last."""
    if lablet.status in FINAL_LABLET_STATUSES:
        return as_clause(lablet.ending_reason or lablet.message)
    if lablet.status is LabletStatus.PENDING_SCHEDULING:
        return "" if lablet.placement is None else as_clause(lablet.placement.reason)
    return as_clause(lablet.message.removeprefix(STUCK_PREFIX))


def shown_until(lablet: Lablet) -> str:
    """Until when it belongs to the present, as a text that sorts: one that failed is remembered for a while."""
    if lablet.status is LabletStatus.FAILED:
        return (lablet.status_since + FAILED_SHOWN_FOR).isoformat()
    return _NEVER if lablet.status in FINAL_LABLET_STATUSES else _ALWAYS


def _pending_urgency(lablet: Lablet) -> LabletUrgency:
    looked = lablet.placement
    if lablet.starts_at is not None and (looked is None or looked.at < lablet.starts_at):
        return LabletUrgency.PLANNED
    if looked is None or looked.worker_id is not None or looked.scale_up_worker_id is not None:
        return LabletUrgency.MOVING  # nobody has looked yet, or a worker is on its way
    return LabletUrgency.WAITING
