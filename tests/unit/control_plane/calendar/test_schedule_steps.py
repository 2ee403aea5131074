"""Stops and starts by schedules: what must hold is checked in the commit (calendar.md#schedules)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from lcm.control_plane.calendar.schedule_steps import apply_schedule_step
from lcm.control_plane.calendar.schedules import schedule_put
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.idle import pause_idle_worker
from lcm.control_plane.workers.scaling import scale_down
from lcm.model.calendar.schedule import Schedule, WorkerSelector
from lcm.model.fleet.settings import FleetSettings, ScalingSettings
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold, Override
from lcm.model.worker.requests import ScheduleStepRequest
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import Allocation
from tests.support.records.worker_records import CONTROLLER, Desk
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker

RUNNING, STOPPED = DesiredStatus.RUNNING, DesiredStatus.STOPPED
CLOSED, OPEN = "sun 08:00-18:00", "daily 00:00-24:00"  # it is a Saturday
BY_OFFICE = {
    "status": "STOPPED",
    "desired_status": STOPPED,
    "pause_reason": "schedule:s-1",
    "paused_by_policy": True,
}
NO_MINIMUM = FleetSettings(scaling=ScalingSettings(min_workers=0))


async def save(desk: Desk, *windows: str, **changes: Any) -> None:
    facts: dict[str, Any] = {
        "id": "s-1",
        "name": "office",
        "zone": "UTC",
        "windows": windows,
        "selector": WorkerSelector(names=("alpha",)),
        "created_at": NOW,
        "updated_at": NOW,
    }

    async def attempt(tx: Transaction) -> None:
        tx.stage(schedule_put(Schedule(**{**facts, **changes}), None))
        tx.save_fleet((await tx.fleet()).model_copy(update={"schedules_version": f"sv-{facts | changes}"}))

    await desk.unit_of_work.run(CONTROLLER, attempt)


async def add(desk: Desk, **facts: Any) -> Worker:
    worker = a_worker(**{"status": "RUNNING", "desired_status": RUNNING, **facts})
    await desk.add(worker)
    return worker


async def take(desk: Desk, worker: Worker, step: Literal["stop", "start"]) -> Worker:
    request = ScheduleStepRequest(step=step, version=worker.version, reason="a schedule")
    return await desk.unit_of_work.run(CONTROLLER, lambda tx: apply_schedule_step(tx, worker.id, request))


async def test_a_worker_is_stopped_by_its_schedule_and_started_by_it(desk: Desk) -> None:
    await save(desk, CLOSED)
    stopped = await take(desk, await add(desk), "stop")
    assert (stopped.desired_status, stopped.pause_reason) == (STOPPED, "schedule:s-1")
    assert (stopped.paused_by_policy, stopped.generation) == (True, 2)


async def test_an_opening_starts_it_again(desk: Desk) -> None:
    await save(desk, OPEN)
    started = await take(desk, await add(desk, **BY_OFFICE), "start")
    assert (started.desired_status, started.pause_reason, started.auto_resume_count) == (RUNNING, None, 1)


@pytest.mark.parametrize(
    ("window", "step", "facts", "changes", "code", "reason"),
    [
        (OPEN, "stop", {}, {}, ProblemCode.NOT_POSSIBLE_NOW, "no longer stop it"),
        (CLOSED, "start", BY_OFFICE, {}, ProblemCode.NOT_POSSIBLE_NOW, "no longer start it"),
        (
            OPEN,
            "start",
            {**BY_OFFICE, "pause_reason": "idle_timeout"},
            {},
            ProblemCode.NOT_POSSIBLE_NOW,
            "no longer",
        ),
        (CLOSED, "stop", {}, {"enabled": False}, ProblemCode.NOT_POSSIBLE_NOW, "no longer"),
        (CLOSED, "stop", {}, {"outside": "nothing"}, ProblemCode.NOT_POSSIBLE_NOW, "no longer"),
        (CLOSED, "stop", {"allocation": Allocation(lablets=1)}, {}, ProblemCode.NOT_POSSIBLE_NOW, "1 lablet is"),
        (CLOSED, "stop", {"hold": Hold(reason="exam", by="anna", since=NOW)}, {}, ProblemCode.HELD, "exam"),
        (
            CLOSED,
            "stop",
            {"override": Override(desired=RUNNING, by="anna", since=NOW)},
            {},
            ProblemCode.NOT_POSSIBLE_NOW,
            "no longer",
        ),
        (CLOSED, "stop", {"status": "STARTING"}, {}, ProblemCode.NOT_POSSIBLE_NOW, "a STARTING worker is left"),
        (CLOSED, "stop", {"desired_status": "TERMINATED"}, {}, ProblemCode.NOT_POSSIBLE_NOW, "no longer"),
    ],
)
async def test_a_step_that_does_not_hold_any_more_changes_nothing(
    desk: Desk,
    window: str,
    step: Literal["stop", "start"],
    facts: Any,
    changes: Any,
    code: ProblemCode,
    reason: str,
) -> None:
    await save(desk, window, **changes)
    worker = await add(desk, **facts)
    with pytest.raises(ProblemError, match=reason) as refused:
        await take(desk, worker, step)
    assert refused.value.code is code


async def test_an_open_window_keeps_policies_away(desk: Desk) -> None:
    await save(desk, OPEN)
    worker = await add(desk)

    async def pause(tx: Transaction) -> Worker:
        return await pause_idle_worker(tx, await tx.worker(worker.id), NO_MINIMUM)

    for attempt in (pause, lambda tx: scale_down(tx, worker.id, NO_MINIMUM, "idle")):
        with pytest.raises(ProblemError, match="schedule office is open"):
            await desk.unit_of_work.run(CONTROLLER, attempt)


async def test_a_schedule_that_changes_while_a_stop_is_decided_wins(desk: Desk) -> None:
    """The commit conflicts, and the step is decided anew with the schedule as it is now."""
    await save(desk, CLOSED)
    worker, attempts = await add(desk), 0

    async def attempt(tx: Transaction) -> Worker:
        nonlocal attempts
        attempts += 1
        request = ScheduleStepRequest(step="stop", version=worker.version, reason="a schedule")
        result = await apply_schedule_step(tx, worker.id, request)
        await save(desk, OPEN, id="s-2", name="extra")
        return result

    with pytest.raises(ProblemError, match="no longer stop it"):
        await desk.unit_of_work.run(CONTROLLER, attempt)
    assert attempts == 2
