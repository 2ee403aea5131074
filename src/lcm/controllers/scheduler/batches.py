"""Reservations as they are sent: in batches, those of one worker together, because each worker is one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.scheduler.placement_status import placement_of
from lcm.model.lablet.record import MOST_PLACEMENTS, ScheduleBatch, ScheduleWrite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.controllers.scheduler.plan import Placed


def in_batches(placed: Sequence[Placed], size: int) -> list[list[Placed]]:
    """Batches of about this size, first come first served among workers.

    Batches that are under way at once would else change the same worker, and one of them would have to begin anew.
    """
    by_worker: dict[str, list[Placed]] = {}
    for each in placed:
        by_worker.setdefault(each.worker_id, []).append(each)
    batches: list[list[Placed]] = []
    for group in by_worker.values():
        for start in range(0, len(group), MOST_PLACEMENTS):
            part = group[start : start + MOST_PLACEMENTS]
            if batches and len(batches[-1]) + len(part) <= size:
                batches[-1].extend(part)
            else:
                batches.append(part)
    return batches


def schedule_batch(part: Sequence[Placed], now: datetime) -> ScheduleBatch:
    """What is asked of the control plane. It is checked there, so it is not checked here too."""
    items = tuple(
        ScheduleWrite.model_construct(
            lablet_id=each.lablet.id,
            version=each.lablet.version,
            worker_id=each.worker_id,
            placement=placement_of(each, now),
        )
        for each in part
    )
    return ScheduleBatch.model_construct(items=items)
