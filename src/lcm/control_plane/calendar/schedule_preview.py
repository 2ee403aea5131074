"""Reads what a preview of a schedule needs: the workers that it selects, and the other schedules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.calendar.schedule_reads import read_schedules
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.lablets.planning import decode_records
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.store.port import Where
from lcm.model.calendar.schedule_preview import make_preview
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.store.port import FieldValue, Store
    from lcm.model.calendar.schedule import Schedule, WorkerSelector
    from lcm.model.calendar.schedule_preview import SchedulePreview

_READS_PER_TURN = 50


async def preview_schedule(
    store: Store, schedule: Schedule, now: datetime, *, removed: bool = False
) -> SchedulePreview:
    """What the schedule does beside the others; one with its id is replaced by it, or left out if it is removed."""
    others = await read_schedules(store, await read_fleet_state(store))
    in_force = [each for each in others if each.id != schedule.id] + ([] if removed else [schedule])
    in_force.sort(key=lambda each: each.id)
    return make_preview(schedule, await select_workers(store, schedule.selector), in_force, now, removed=removed)


async def select_workers(store: Store, selector: WorkerSelector) -> list[Worker]:
    """The workers that match, by name. Records that cannot be read are left out."""
    if selector.is_empty:
        return []
    fields: dict[str, list[FieldValue]] = {}
    if selector.names:
        fields["name"] = list(selector.names)
    if selector.templates:
        fields["template_name"] = list(selector.templates)
    if selector.teams:
        fields["team"] = list(selector.teams)
    where = Where(any_of=fields, none_of={"status": [WorkerStatus.TERMINATED.value]})
    found, number = list[Worker](), 0
    async for stored in find_all(store, WORKERS, where):
        number += 1
        if number % _READS_PER_TURN == 0:
            await asyncio.sleep(0)
        found += [each for each in decode_records([stored], Worker, "worker", []) if selector.matches(each)]
    return sorted(found, key=lambda each: each.name)
