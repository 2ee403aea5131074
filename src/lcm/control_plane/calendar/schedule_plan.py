"""The part of the plan that schedules have: the next stops and starts, and the next boundaries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.lablets.planning import decode_records
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.decisions import read_decisions
from lcm.model.calendar.schedule import next_scheduled_change
from lcm.model.calendar.schedule_preview import schedule_status
from lcm.model.fleet.plan import PlannedBoundary, PlannedScheduleChange
from lcm.model.worker.maintenance import lablet_block
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store
    from lcm.model.calendar.schedule import Schedule

_LEFT_ALONE = Where(
    none_of={
        "status": [each.value for each in (WorkerStatus.TERMINATED, WorkerStatus.TERMINATING, WorkerStatus.FAILED)]
    }
)
_READS_PER_TURN = 50
_WAITS_RULE = "schedule.waits"
"""By this rule the worker controller leaves a worker that is used as it is."""


async def plan_schedule_changes(
    store: Store, schedules: Sequence[Schedule], now: datetime
) -> list[PlannedScheduleChange]:
    """What schedules will do next with each worker, the earliest first. Without schedules no worker is read."""
    in_force = [each for each in schedules if each.enabled]
    found, number, due = list[PlannedScheduleChange](), 0, dict[str, Worker]()
    if not in_force:
        return found
    async for stored in find_all(store, WORKERS, _LEFT_ALONE):
        number += 1
        if number % _READS_PER_TURN == 0:
            await asyncio.sleep(0)
        for worker in decode_records([stored], Worker, "worker", []):
            change = next_scheduled_change(worker, in_force, now)
            if change is not None:
                if change.at <= now and change.desired is DesiredStatus.STOPPED:
                    due[worker.id] = worker
                found.append(
                    PlannedScheduleChange(
                        worker_id=worker.id,
                        name=worker.name,
                        desired_status=change.desired,
                        at=change.at,
                        reason=change.reason,
                    )
                )
    waits = await _find_waits(store, due)
    found = [each.model_copy(update=waits.get(each.worker_id, {})) for each in found]
    return sorted(found, key=lambda each: (each.at, each.name))


async def _find_waits(store: Store, due: Mapping[str, Worker]) -> dict[str, dict[str, object]]:
    """Those that are to be stopped now and are used. Whether nodes run on them, only the last decision says."""
    decisions = await read_decisions(store, list(due)) if due else {}
    found: dict[str, dict[str, object]] = {}
    for worker in due.values():
        decision, block = decisions.get(worker.id), lablet_block(worker)
        if decision is not None and decision.rule == _WAITS_RULE and decision.version == worker.version:
            found[worker.id] = {"waits": True, "reason": decision.reason}
        elif block is not None:
            found[worker.id] = {"waits": True, "reason": f"its schedule is closed; it is not stopped yet: {block}"}
    return found


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
