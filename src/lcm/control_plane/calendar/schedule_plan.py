"""The part of the plan that schedules have: the next stops and starts, and the next boundaries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.lablets.planning import decode_records
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.store.port import Where
from lcm.model.calendar.schedule import next_scheduled_change
from lcm.model.calendar.schedule_preview import schedule_status
from lcm.model.fleet.plan import PlannedBoundary, PlannedScheduleChange
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store
    from lcm.model.calendar.schedule import Schedule

_LEFT_ALONE = Where(
    none_of={
        "status": [each.value for each in (WorkerStatus.TERMINATED, WorkerStatus.TERMINATING, WorkerStatus.FAILED)]
    }
)
_READS_PER_TURN = 50


async def plan_schedule_changes(
    store: Store, schedules: Sequence[Schedule], now: datetime
) -> list[PlannedScheduleChange]:
    """What schedules will do next with each worker, the earliest first. Without schedules no worker is read."""
    in_force = [each for each in schedules if each.enabled]
    found, number = list[PlannedScheduleChange](), 0
    if not in_force:
        return found
    async for stored in find_all(store, WORKERS, _LEFT_ALONE):
        number += 1
        if number % _READS_PER_TURN == 0:
            await asyncio.sleep(0)
        for worker in decode_records([stored], Worker, "worker", []):
            change = next_scheduled_change(worker, in_force, now)
            if change is not None:
                found.append(
                    PlannedScheduleChange(
                        worker_id=worker.id,
                        name=worker.name,
                        desired_status=change.desired,
                        at=change.at,
                        reason=change.reason,
                    )
                )
    return sorted(found, key=lambda each: (each.at, each.name))


def plan_boundaries(schedules: Sequence[Schedule], now: datetime) -> tuple[PlannedBoundary, ...]:
    """When the windows of each schedule open or close next, the earliest first."""
    statuses = [schedule_status(each, now) for each in schedules if each.enabled]
    found = [
        PlannedBoundary(
            schedule_id=each.schedule.id, name=each.schedule.name, opens=not each.is_open, at=each.next_boundary
        )
        for each in statuses
        if each.next_boundary is not None
    ]
    return tuple(sorted(found, key=lambda each: (each.at, each.name)))
