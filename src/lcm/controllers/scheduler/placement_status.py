"""What is kept with a lablet about the search for its worker. What is there already is not written again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.core.text import one_line
from lcm.model.lablet.record import LabletStatusWrite, Placement
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.controllers.scheduler.plan import Ended, Placed, Waiting
    from lcm.model.lablet.record import Rejection

_REASON, _LONG = 500, 1000
_REFRESH = timedelta(minutes=5)
"""While the reason stays, the rejections behind it are brought up to date no more often than this."""


def placement_of(placed: Placed, now: datetime) -> Placement:
    """How a worker was found."""
    before = placed.lablet.placement
    return Placement(
        at=now,
        worker_id=placed.worker_id,
        score=placed.score,
        reason=one_line(placed.reason, _LONG),
        rejections=tuple(placed.rejections),
        rejected=placed.rejected,
        scale_up_worker_id=None if before is None else before.scale_up_worker_id,
    )


def wait_of(waiting: Waiting, now: datetime) -> LabletStatusWrite | None:
    """What to write of a lablet that waits; None: it is written already."""
    before = waiting.lablet.placement
    own = waiting.worker_id
    if own is None and before is not None:
        own = before.scale_up_worker_id  # it names the need, until a worker has come of it
    reason = one_line(waiting.reason, _LONG)
    if before is not None and before.worker_id is None and (before.reason, before.scale_up_worker_id) == (reason, own):
        old = now - before.at >= _REFRESH
        if not old or _same(before.rejections, waiting.rejections):
            return None
    placement = Placement(
        at=now,
        reason=reason,
        rejections=tuple(waiting.rejections),
        rejected=waiting.rejected,
        scale_up_worker_id=own,
    )
    return LabletStatusWrite(
        status=LabletStatus.PENDING_SCHEDULING,
        version=waiting.lablet.version,
        reason=one_line(waiting.reason, _REASON),
        placement=placement,
    )


def end_of(ended: Ended, status: LabletStatus, now: datetime) -> LabletStatusWrite:
    """What to write of a lablet that no worker will have."""
    reason = one_line(ended.reason, _REASON)
    if status is LabletStatus.EXPIRED:  # what it waited for last stays with it
        return LabletStatusWrite(status=status, version=ended.lablet.version, reason=reason)
    placement = Placement(at=now, reason=reason)
    return LabletStatusWrite(status=status, version=ended.lablet.version, reason=reason, placement=placement)


def _same(one: Sequence[Rejection], other: Sequence[Rejection]) -> bool:
    return {(each.worker_id, each.reason) for each in one} == {(each.worker_id, each.reason) for each in other}
