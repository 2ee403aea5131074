"""Reads schedules, for decisions about workers. An installation that never had one reads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.records.kinds import SCHEDULES, find_all
from lcm.model.calendar.precedence import OtherClaims
from lcm.model.calendar.schedule import Schedule, next_boundary, schedule_claim
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Override

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Worker
    from lcm.model.worker.status import DesiredStatus

log = structlog.get_logger(__name__)


async def read_schedules(store: Store, fleet: FleetState) -> tuple[Schedule, ...]:
    """All schedules by id. `fleet` was read before them: it says whether there are any."""
    if not fleet.schedules_version:
        return ()
    found: list[Schedule] = []
    async for stored in find_all(store, SCHEDULES):
        try:
            found.append(Schedule.model_validate_json(stored.body))
        except ValidationError as error:  # one record that cannot be read stops no other
            log.error("record skipped", kind="schedule", id=stored.id, reason=str(error.errors()[0]["msg"])[:300])
    return tuple(sorted(found, key=lambda each: each.id))


async def read_schedules_in(tx: Transaction) -> tuple[Schedule, ...]:
    """All schedules. The commit conflicts if any of them changes meanwhile."""
    return await read_schedules(tx.store, await tx.fleet())


async def read_claims(tx: Transaction, worker: Worker) -> OtherClaims:
    """What others than the worker's own record want it to be. The commit conflicts if that changes meanwhile."""
    fleet = await tx.fleet()
    schedules = await read_schedules(tx.store, fleet)
    return OtherClaims(fleet_hold=fleet.hold, schedule=schedule_claim(worker, schedules, tx.earliest_now))


async def boundary_override(
    store: Store, worker: Worker, desired: DesiredStatus, by: str, now: datetime, reason: str | None = None
) -> Override | None:
    """What a person's command counts for if no time was given: until the next boundary of the worker's schedules.

    None without a schedule, or if the same override is in force already.
    """
    present = worker.override
    if present is not None and present.desired is desired and present.active(now):
        return None
    schedules = await read_schedules(store, await read_fleet_state(store))
    if not any(each.applies_to(worker) for each in schedules):
        return None
    until = next_boundary(worker, schedules, now)
    return Override(desired=desired, until=until, by=by, since=now, reason=reason or "")


async def read_schedule(store: Store, schedule_id: str) -> tuple[Schedule, int]:
    """One schedule, and its revision."""
    stored = await store.get(SCHEDULES, schedule_id)
    if stored is None:
        raise ProblemError(ProblemCode.NOT_FOUND, f"there is no schedule {schedule_id}")
    return Schedule.model_validate_json(stored.body), stored.revision
