"""How a lablet comes to its end: because somebody wants it, because its time is over, or because it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import Nature
from lcm.controllers.lablet.decide.decision import Release, WriteStatus, end, then
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.lablet.decide.decision import Decision
    from lcm.model.lablet.record import Lablet


def ending_of(lablet: Lablet, now: datetime) -> tuple[LabletStatus, str] | None:
    """What it is to become and why, if it is to end."""
    if lablet.ending is not None:
        return lablet.ending, lablet.ending_reason or "it is to end"
    if not lablet.wanted:
        return LabletStatus.TERMINATED, "it is not wanted any more"
    over = lablet.over_at
    if over is not None and over <= now:
        return LabletStatus.EXPIRED, f"its time was over at {over:%Y-%m-%d %H:%M:%S} UTC"
    return None


def seconds_left(lablet: Lablet, now: datetime) -> float | None:
    """Until its time is over; None: it has no end."""
    over = lablet.over_at
    return None if over is None else (over - now).total_seconds()


def begin_end(lablet: Lablet, becomes: LabletStatus, reason: str) -> Decision:
    """Nothing was asked of CML for one that is SCHEDULED; any other may have a lab, which goes first."""
    if lablet.status is LabletStatus.SCHEDULED:
        return end("scheduled.end", reason, Release(becomes, reason))
    write = WriteStatus(LabletStatus.STOPPING, reason, Nature.INTENT, {"ending": becomes})
    return then(f"{lablet.status.value.lower()}.end", reason, write)


def fail(rule: str, reason: str) -> Decision:
    """It does not come up: what there is of it is removed, then it has failed."""
    write = WriteStatus(LabletStatus.STOPPING, reason, Nature.INTENT, {"ending": LabletStatus.FAILED})
    return then(rule, reason, write, message=reason)
