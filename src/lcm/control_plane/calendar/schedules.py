"""Schedules: created, changed and deleted by people. What they do with workers is in `schedule_steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lcm.control_plane.calendar.schedule_preview import preview_schedule
from lcm.control_plane.calendar.schedule_reads import read_schedule, read_schedules
from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import SCHEDULES
from lcm.control_plane.store.port import Delete, Put
from lcm.control_plane.teams.selection import find_team_ids, read_team_names
from lcm.core import clock
from lcm.model.calendar.schedule import Schedule
from lcm.model.calendar.schedule_preview import ScheduleStatus, schedule_status
from lcm.model.calendar.zones import read_zone_rules
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.calendar.schedule import WorkerSelector
    from lcm.model.calendar.schedule_preview import SchedulePreview
    from lcm.model.calendar.schedule_requests import (
        CreateScheduleRequest,
        EditScheduleRequest,
        PreviewScheduleRequest,
    )
    from lcm.model.worker.record import Worker

MAX_SCHEDULES: Final = 200
PREVIEW_ID: Final = "preview"


class ScheduleService:
    """Reads and changes schedules on behalf of people."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._store = context.store

    async def statuses(self) -> tuple[ScheduleStatus, ...]:
        """All schedules by name, and what they are now."""
        found = await read_schedules(self._store, await read_fleet_state(self._store))
        now = clock.now()
        statuses = [schedule_status(each, now) for each in sorted(found, key=lambda each: each.name)]
        return tuple([await self._with_names(each) for each in statuses])

    async def status(self, schedule_id: str) -> ScheduleStatus:
        """One schedule, and what it is now."""
        return await self._with_names(schedule_status((await read_schedule(self._store, schedule_id))[0], clock.now()))

    async def statuses_of(self, worker: Worker) -> list[ScheduleStatus]:
        """The schedules that are in force for a worker, by name."""
        return [each for each in await self.statuses() if each.schedule.applies_to(worker)]

    async def create(
        self, caller: Caller, request: CreateScheduleRequest, key: IdempotencyKey | None = None
    ) -> Schedule:
        """Create a schedule. Workers follow it from the next cycle on."""
        schedule_id = clock.new_id("s")

        async def attempt(tx: Transaction) -> Schedule:
            if sum(count for _, count, _ in await tx.store.count_by(SCHEDULES, ["name"])) >= MAX_SCHEDULES:
                detail = f"there are {MAX_SCHEDULES} schedules, which is the limit; delete one"
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
            fields = {**dict(request), "selector": await _with_team_ids(tx.store, request.selector)}
            schedule = Schedule(
                id=schedule_id,
                **fields,
                zone_rules=read_zone_rules(request.zone, tx.now),
                created_at=tx.now,
                updated_at=tx.now,
            )
            return await _save(tx, schedule, None, "schedule_created", **_described(schedule))

        return await self._run(caller, attempt, key)

    async def edit(
        self,
        caller: Caller,
        schedule_id: str,
        request: EditScheduleRequest,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> Schedule:
        """Change the fields that are given. A change to what is there already writes nothing."""

        async def attempt(tx: Transaction) -> Schedule:
            before, revision = await read_schedule(tx.store, schedule_id)
            _check_match(before, if_match)
            after = request.apply_to(before)
            if request.selector is not None:
                after = after.model_copy(update={"selector": await _with_team_ids(tx.store, request.selector)})
            if after == before:
                return before
            fields = {"version": before.version + 1, "updated_at": tx.now}
            if after.zone != before.zone:
                fields["zone_rules"] = read_zone_rules(after.zone, tx.now)
            after = after.model_copy(update=fields)
            return await _save(tx, after, revision, _edit_action(before, after), **_described(after))

        return await self._run(caller, attempt, key)

    async def delete(
        self, caller: Caller, schedule_id: str, if_match: int | None = None, key: IdempotencyKey | None = None
    ) -> Schedule:
        """Delete a schedule. Workers that it stopped stay stopped, by policy."""

        async def attempt(tx: Transaction) -> Schedule:
            before, revision = await read_schedule(tx.store, schedule_id)
            _check_match(before, if_match)
            tx.stage(Delete(SCHEDULES, schedule_id, revision))
            await _note_change(tx)
            tx.audit("schedule_deleted", schedule_id, name=before.name)
            return before

        return await self._run(caller, attempt, key)

    async def preview(self, request: PreviewScheduleRequest) -> SchedulePreview:
        """Which workers it selects, what it would do now, and in the coming week. Nothing is written."""
        now = clock.now()
        fields = {name: value for name, value in dict(request).items() if name != "schedule_id"}
        fields["selector"] = await _with_team_ids(self._store, request.selector)
        replaced = request.schedule_id or PREVIEW_ID
        schedule = Schedule(id=replaced, **fields, created_at=now, updated_at=now)
        return await self._named(await preview_schedule(self._store, schedule, now))

    async def preview_saved(self, schedule_id: str, *, removed: bool = False) -> SchedulePreview:
        """What a schedule does, or what changes when it is deleted."""
        schedule = (await read_schedule(self._store, schedule_id))[0]
        return await self._named(await preview_schedule(self._store, schedule, clock.now(), removed=removed))

    async def preview_switch(self, schedule_id: str, *, enabled: bool) -> str:
        """What happens when a schedule is enabled or disabled, as sentences."""
        schedule = (await read_schedule(self._store, schedule_id))[0].model_copy(update={"enabled": enabled})
        preview = await preview_schedule(self._store, schedule, clock.now(), removed=not enabled)
        return preview.effect if enabled else f"It will do nothing until it is enabled again. {preview.effect}"

    async def _named(self, preview: SchedulePreview) -> SchedulePreview:
        return preview.model_copy(update={"status": await self._with_names(preview.status)})

    async def _with_names(self, status: ScheduleStatus) -> ScheduleStatus:
        names = await read_team_names(self._store, status.schedule.selector.teams)
        return status.model_copy(update={"team_names": names}) if names else status

    async def _run(
        self, caller: Caller, attempt: Callable[[Transaction], Awaitable[Schedule]], key: IdempotencyKey | None
    ) -> Schedule:
        body = await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)
        return Schedule.model_validate_json(body)


async def _with_team_ids(store: Store, selector: WorkerSelector) -> WorkerSelector:
    """The selector with the ids of its teams, whose names may change."""
    return selector.model_copy(update={"teams": await find_team_ids(store, selector.teams, "selector.teams")})


async def _save(tx: Transaction, schedule: Schedule, revision: int | None, action: str, **details: Any) -> Schedule:
    tx.stage(schedule_put(schedule, revision))
    await _note_change(tx)
    tx.audit(action, schedule.id, **details)
    return schedule


async def _note_change(tx: Transaction) -> None:
    """Every commit that was decided with the schedules as they were conflicts with this one."""
    tx.save_fleet((await tx.fleet()).model_copy(update={"schedules_version": clock.new_id("sv")}))


def schedule_put(schedule: Schedule, revision: int | None) -> Put:
    """The write of a schedule."""
    unique = {"name": schedule.name}
    return Put(SCHEDULES, schedule.id, schedule.model_dump_json().encode(), revision, dict(unique), unique)


def _check_match(schedule: Schedule, if_match: int | None) -> None:
    if if_match is not None and if_match != schedule.version:
        raise PreconditionFailedError("schedule", schedule.version, if_match)


def _edit_action(before: Schedule, after: Schedule) -> str:
    if before.enabled == after.enabled:
        return "schedule_edited"
    return "schedule_enabled" if after.enabled else "schedule_disabled"


def _described(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "zone": schedule.zone,
        "windows": list(schedule.windows),
        "exceptions": len(schedule.exceptions),
        "selector": str(schedule.selector),
        "outside": schedule.outside.value,
        "enabled": schedule.enabled,
    }
