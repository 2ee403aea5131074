"""What is written to the control plane about placements: batched reservations, and reasons for waiting or ending."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.core.text import single_line
from lcm.model.lablet.record import MAX_PLACEMENTS, LabletStatusUpdate, Placement, PlacementBatch, PlacementRequest
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.lablet.record import Rejection
    from lcm.model.lablet.scheduling.planner import PlannedPlacement, UnplaceableLablet, WaitingLablet


_MAX_REASON, _MAX_PLACEMENT_REASON = 500, 1000
_REFRESH_INTERVAL = timedelta(minutes=5)
"""While the reason stays the same, the rejections are refreshed at most this often."""


def placement_record(placed: PlannedPlacement, now: datetime) -> Placement:
    """How the worker was selected."""
    before = placed.lablet.placement
    return Placement(
        at=now,
        worker_id=placed.worker_id,
        score=placed.score,
        reason=single_line(placed.reason, _MAX_PLACEMENT_REASON),
        rejections=tuple(placed.rejections),
        rejected=placed.rejected,
        scale_up_worker_id=None if before is None else before.scale_up_worker_id,
    )


def waiting_write(waiting: WaitingLablet, now: datetime) -> LabletStatusUpdate | None:
    """The status write for a waiting lablet; None if the record already says the same."""
    before = waiting.lablet.placement
    own = waiting.worker_id
    if own is None and before is not None:
        own = before.scale_up_worker_id  # it is part of the key of the need until a worker has been launched for it
    reason = single_line(waiting.reason, _MAX_PLACEMENT_REASON)
    if before is not None and before.worker_id is None and (before.reason, before.scale_up_worker_id) == (reason, own):
        old = now - before.at >= _REFRESH_INTERVAL
        if not old or _same_rejections(before.rejections, waiting.rejections):
            return None
    placement = Placement(
        at=now,
        reason=reason,
        rejections=tuple(waiting.rejections),
        rejected=waiting.rejected,
        scale_up_worker_id=own,
    )
    return LabletStatusUpdate(
        status=LabletStatus.PENDING_SCHEDULING,
        version=waiting.lablet.version,
        reason=single_line(waiting.reason, _MAX_REASON),
        placement=placement,
    )


def ending_write(ended: UnplaceableLablet, status: LabletStatus, now: datetime) -> LabletStatusUpdate:
    """The status write for a lablet that cannot be placed."""
    reason = single_line(ended.reason, _MAX_REASON)
    if status is LabletStatus.EXPIRED:  # the last reason for waiting stays in the record
        return LabletStatusUpdate(status=status, version=ended.lablet.version, reason=reason)
    placement = Placement(at=now, reason=reason)
    return LabletStatusUpdate(status=status, version=ended.lablet.version, reason=reason, placement=placement)


def _same_rejections(one: Sequence[Rejection], other: Sequence[Rejection]) -> bool:
    return {(each.worker_id, each.reason) for each in one} == {(each.worker_id, each.reason) for each in other}


def reservation_batches(placed: Sequence[PlannedPlacement], size: int) -> list[list[PlannedPlacement]]:
    """Batches of about this size, with all placements on one worker in the same batch.

    Otherwise concurrent batches would change the same worker, and one of them would have to be repeated.
    """
    by_worker: dict[str, list[PlannedPlacement]] = {}
    for each in placed:
        by_worker.setdefault(each.worker_id, []).append(each)
    batches: list[list[PlannedPlacement]] = []
    for group in by_worker.values():
        for start in range(0, len(group), MAX_PLACEMENTS):
            part = group[start : start + MAX_PLACEMENTS]
            if batches and len(batches[-1]) + len(part) <= size:
                batches[-1].extend(part)
            else:
                batches.append(part)
    return batches


def make_schedule_batch(part: Sequence[PlannedPlacement], now: datetime) -> PlacementBatch:
    """The request to the control plane. It is validated there, so it is not validated here."""
    items = tuple(
        PlacementRequest.model_construct(
            lablet_id=each.lablet.id,
            version=each.lablet.version,
            worker_id=each.worker_id,
            placement=placement_record(each, now),
        )
        for each in part
    )
    return PlacementBatch.model_construct(items=items)
