"""A person's start or stop for a time: calendar.md#overrides."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.idle import detect_idle, pause_idle_worker
from lcm.control_plane.workers.lifecycle import make_override, resume_fields, start, stop, terminate, updated_record
from lcm.control_plane.workers.scaling import scale_down
from lcm.core import clock
from lcm.model.fleet.settings import FleetSettings
from lcm.model.problems import ProblemCode
from lcm.model.worker.idle import next_idle_action
from lcm.model.worker.record import Override
from lcm.model.worker.requests import IdleDetectionRequest
from lcm.model.worker.status import DesiredStatus
from tests.support.records.worker_records import ANNA, CONTROLLER, Desk
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.idle import IdleDetectionResult
    from lcm.model.worker.record import Worker

HOUR = timedelta(hours=1)
RUNNING, STOPPED = DesiredStatus.RUNNING, DesiredStatus.STOPPED


def override(desired: DesiredStatus = RUNNING, hours: float = 2) -> Override:
    return make_override(desired, NOW + timedelta(hours=hours), "anna", NOW, "demo")


def test_a_start_until_a_time_is_kept_with_the_record() -> None:
    started = start(a_worker(status="STOPPED", desired_status=STOPPED), NOW, override=override())
    assert started.desired_status is RUNNING
    assert started.override is not None
    assert (started.override.by, started.override.until, started.override.reason) == ("anna", NOW + 2 * HOUR, "demo")


def test_an_end_that_is_over_is_rejected() -> None:
    with pytest.raises(ProblemError) as rejected:
        make_override(RUNNING, NOW, "anna", NOW)
    assert rejected.value.code is ProblemCode.INVALID
    assert rejected.value.detail == f"until: {NOW.isoformat()} is not in the future"


def test_a_repeated_command_changes_nothing_and_another_end_replaces_the_first() -> None:
    started = start(a_worker(status="RUNNING"), NOW, override=override())
    again = make_override(RUNNING, NOW + 2 * HOUR, "bob", NOW + HOUR)
    assert start(started, NOW + HOUR, override=again) == started
    assert start(started, NOW + HOUR) == started
    longer = start(started, NOW + HOUR, override=make_override(RUNNING, NOW + 5 * HOUR, "bob", NOW + HOUR))
    assert longer.override is not None
    assert (longer.override.by, longer.override.until) == ("bob", NOW + 5 * HOUR)


def test_the_opposite_command_ends_an_override() -> None:
    stopped = stop(start(a_worker(status="RUNNING"), NOW, override=override()), NOW)
    assert (stopped.desired_status, stopped.override) == (STOPPED, None)


def test_a_policy_that_acts_removes_an_override_that_is_over() -> None:
    stopped = stop(a_worker(status="RUNNING"), NOW, override=override(STOPPED))
    resumed = updated_record(stopped, NOW + 3 * HOUR, **resume_fields(stopped, by_policy=True))
    assert resumed.override is None


# Policies


@pytest.fixture
async def idle_desk(desk: Desk) -> Desk:
    """A running worker that has been idle for three hours, beside another."""
    long_ago = clock.now() - 3 * HOUR
    for number in (1, 2):
        fields = {"id": f"w-{number}", "name": f"worker-{number}", "instance_id": f"i-{number}"}
        await desk.add(a_worker(status="RUNNING", created_at=long_ago, last_resumed_at=long_ago, **fields))
    return desk


async def change(desk: Desk, **fields: Any) -> Worker:
    async def attempt(tx: Transaction) -> Worker:
        worker = await tx.worker("w-1")
        return tx.save_worker(updated_record(worker, tx.now, **fields), "changed")

    return await desk.unit_of_work.run(ANNA, attempt)


async def check_idle(desk: Desk) -> IdleDetectionResult:
    events = [{"category": "system_stats", "at": clock.now()}]
    request = IdleDetectionRequest.model_validate({"events": events, "observed_at": clock.now()})

    async def attempt(tx: Transaction) -> IdleDetectionResult:
        return await detect_idle(tx, "w-1", request, FleetSettings())

    return await desk.unit_of_work.run(CONTROLLER, attempt)


async def test_an_idle_worker_is_not_paused_before_the_end_that_a_person_gave(idle_desk: Desk) -> None:
    wish = make_override(RUNNING, clock.now() + HOUR, "anna", clock.now())
    await change(idle_desk, override=wish)
    result = await check_idle(idle_desk)
    assert (result.is_idle, result.eligible_for_pause, result.eligible_for_drain) == (True, False, False)
    assert (await idle_desk.worker()).desired_status is RUNNING


async def test_an_idle_worker_is_paused_after_that_end(idle_desk: Desk) -> None:
    await change(idle_desk, override=Override(desired=RUNNING, until=clock.now(), by="anna", since=clock.now()))
    assert (await check_idle(idle_desk)).auto_pause_triggered
    paused = await idle_desk.worker()
    assert (paused.desired_status, paused.override) == (STOPPED, None)


async def test_scale_down_and_auto_pause_check_it_in_their_commit(idle_desk: Desk) -> None:
    """What a person wants may change between the check and the commit."""
    await change(idle_desk, override=make_override(RUNNING, clock.now() + HOUR, "anna", clock.now()))

    async def drain(tx: Transaction) -> Worker:
        return await scale_down(tx, "w-1", FleetSettings(), "idle")

    async def pause(tx: Transaction) -> Worker:
        return await pause_idle_worker(tx, await tx.worker("w-1"), FleetSettings())

    for attempt in (drain, pause):
        with pytest.raises(ProblemError, match="anna requested RUNNING until"):
            await idle_desk.unit_of_work.run(CONTROLLER, attempt)


async def test_an_idle_check_never_undoes_a_termination(idle_desk: Desk) -> None:
    """It may arrive after the request to terminate: TERMINATED is final."""
    before = await idle_desk.worker()
    await change(idle_desk, desired_status=terminate(before, clock.now()).desired_status)
    await check_idle(idle_desk)
    assert (await idle_desk.worker()).desired_status is DesiredStatus.TERMINATED


def test_the_plan_shows_the_pause_that_follows_the_end() -> None:
    ready = {"type": "CmlReady", "status": "True", "since": NOW}
    worker = a_worker(status="RUNNING", conditions=[ready], override=override(), created_at=NOW - 5 * HOUR)
    assert next_idle_action(worker, FleetSettings(), NOW) == NOW + 2 * HOUR
    endless = worker.model_copy(update={"override": Override(desired=RUNNING, by="anna", since=NOW)})
    assert next_idle_action(endless, FleetSettings(), NOW) is None
