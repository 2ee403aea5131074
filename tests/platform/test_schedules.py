"""Schedules stop workers outside their windows and start them again: the whole platform, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.simulated.faults import ExternalAction
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig
from lcm.model.calendar.schedule import WorkerSelector
from lcm.model.calendar.schedule_requests import CreateScheduleRequest, EditScheduleRequest
from lcm.model.lablet.record import LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.virtual.fleet import a_fleet
from tests.support.virtual.full_platform import a_whole
from tests.support.virtual.time import START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.calendar.schedule import Schedule
    from lcm.model.worker.record import Worker
    from tests.support.virtual.fleet import Fleet
    from tests.support.virtual.time import VirtualClock

CYCLE = 60.0
ALPHA = WorkerSelector(names=("alpha",))
STOPPED, RUNNING = WorkerStatus.STOPPED, WorkerStatus.RUNNING


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0, config=ReconciliationConfig(interval_seconds=CYCLE)) as fleet:
        yield fleet


async def schedule(fleet: Fleet, *windows: str, name: str = "office", zone: str = "UTC", **more: Any) -> Schedule:
    fields: dict[str, Any] = {"name": name, "zone": zone, "windows": windows, "selector": ALPHA, **more}
    return await fleet.people.schedules.create(CreateScheduleRequest(**fields))


def set_nodes(fleet: Fleet, worker: Worker, running: int) -> None:
    server = fleet.cml_of(worker)
    server.stats = replace(server.stats, nodes=running, running_nodes=running)


async def unused(fleet: Fleet, name: str = "alpha") -> Worker:
    """A ready worker on which no node runs."""
    worker = await fleet.running(name)
    set_nodes(fleet, worker, 0)
    await asyncio.sleep(CYCLE)
    return worker


async def until(year: int, month: int, day: int, hour: int, minute: int = 0) -> None:
    """Sleep until this time, in UTC."""
    moment = datetime(year, month, day, hour, minute, tzinfo=UTC)
    await asyncio.sleep((moment - clock.now()).total_seconds())


async def state(fleet: Fleet, worker: Worker) -> tuple[WorkerStatus, DesiredStatus]:
    now = await fleet.worker(worker.id)
    return now.status, now.desired_status


async def test_office_hours(fleet: Fleet) -> None:
    """calendar.md#schedules: open until 12:00, closed until 14:00; plan and explanation say so before."""
    await fleet.start()
    worker = await unused(fleet)
    office = await schedule(fleet, "daily 08:00-12:00, 14:00-18:00")
    await asyncio.sleep(CYCLE)
    plan = await fleet.people.fleet.plan_overview()
    (change,) = plan.schedule_changes
    assert (change.worker_id, change.desired_status, change.at.hour) == (worker.id, DesiredStatus.STOPPED, 12)
    assert [(each.name, each.opens, each.at.hour) for each in plan.schedule_boundaries] == [("office", False, 12)]
    explained = (await fleet.people.workers.explain(worker.id)).summary
    assert "schedule office is open until 12:00 UTC (daily 08:00-12:00, 14:00-18:00, UTC)" in explained
    await until(2026, 1, 17, 11, 59)
    assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
    await asyncio.sleep(60 + CYCLE)
    stopped = await fleet.until_status(worker.id, STOPPED, within=300)
    assert (stopped.pause_reason, stopped.paused_by_policy) == (f"schedule:{office.id}", True)
    explained = (await fleet.people.workers.explain(worker.id)).summary
    assert "schedule office" in explained
    assert "opens at 14:00 UTC" in explained
    (change,) = (await fleet.people.fleet.plan_overview()).schedule_changes
    assert (change.desired_status, change.at.hour) == (DesiredStatus.RUNNING, 14)
    await until(2026, 1, 17, 14)
    ready = await fleet.until_ready(worker.id, within=300)
    assert (ready.pause_reason, ready.auto_resume_count) == (None, 1)
    audits = await fleet.audits(worker.id)
    assert (audits.count("schedule_stop"), audits.count("schedule_start")) == (1, 1)


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("begin", "stops", "starts"),
    [
        # Clocks are put forward at 01:00 UTC: 02:30 does not exist, and the window opens at the gap's end, 03:00.
        (utc(3, 28, 20), utc(3, 28, 22), utc(3, 29, 1)),
        # They are put back at 01:00 UTC: 02:30 occurs twice, and the window opens at the first.
        (utc(10, 24, 20), utc(10, 24, 21), utc(10, 25, 0, 30)),
    ],
)
async def test_the_nights_on_which_clocks_change(
    virtual_clock: VirtualClock, begin: datetime, stops: datetime, starts: datetime
) -> None:
    """calendar.md#time-zones."""
    virtual_clock.jumped = (begin - START).total_seconds()
    async with a_fleet(report_interval=600.0, config=ReconciliationConfig(interval_seconds=CYCLE)) as fleet:
        await fleet.start()
        worker = await unused(fleet)
        await schedule(fleet, "daily 02:30-23:00", zone="Europe/Brussels")
        await asyncio.sleep((stops - clock.now()).total_seconds() - 1)
        assert (await fleet.worker(worker.id)).desired_status is DesiredStatus.RUNNING
        await fleet.until_status(worker.id, STOPPED, within=CYCLE + 300)
        await asyncio.sleep((starts - clock.now()).total_seconds() - 1)
        assert await state(fleet, worker) == (STOPPED, DesiredStatus.STOPPED)
        await fleet.until_ready(worker.id, within=CYCLE + 300)


async def test_an_outage_across_a_boundary(fleet: Fleet) -> None:
    """calendar.md#schedules: no controller runs at the end, nor at the opening; each time all is right in a cycle."""
    one = await fleet.start()
    worker = await unused(fleet)
    await schedule(fleet, "daily 08:00-12:00", "daily 16:00-18:00")
    await until(2026, 1, 17, 11, 50)
    await one.stop()
    await until(2026, 1, 17, 13)
    two = await fleet.start("two")
    await fleet.until_status(worker.id, WorkerStatus.STOPPING, within=2 * CYCLE)
    await fleet.until_status(worker.id, STOPPED, within=300)
    await two.stop()
    await until(2026, 1, 17, 17)
    await fleet.start("three")
    await fleet.until_status(worker.id, WorkerStatus.STARTING, within=2 * CYCLE)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_between_the_decision_and_the_stop(fleet: Fleet, when: str) -> None:
    await fleet.start("one")
    worker = await unused(fleet)
    await schedule(fleet, "daily 08:00-12:00")
    await until(2026, 1, 17, 11, 55)
    fleet.wires["one"].die(when, "/schedule")
    await fleet.start("two")
    await until(2026, 1, 17, 12)
    await fleet.until_status(worker.id, STOPPED, within=600)
    assert fleet.wires["one"].dead
    assert (await fleet.audits(worker.id)).count("schedule_stop") == 1
    assert fleet.calls("StopInstances") == 1


async def test_what_a_person_wants_lasts_until_the_next_boundary(fleet: Fleet) -> None:
    """calendar.md#overrides: a start while it is closed, and a stop while it is open."""
    await fleet.start()
    worker = await unused(fleet)
    await schedule(fleet, "daily 12:00-14:00")
    await fleet.until_status(worker.id, STOPPED, within=2 * CYCLE + 300)
    started = await fleet.people.workers.start(worker.id, "a demo")
    assert started.override is not None
    assert (started.override.until, started.override.by) == (datetime(2026, 1, 17, 12, tzinfo=UTC), "admin")
    await fleet.until_ready(worker.id, within=600)
    set_nodes(fleet, worker, 0)
    await until(2026, 1, 17, 11, 59)
    assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
    await until(2026, 1, 17, 12, 30)
    await fleet.people.workers.stop(worker.id, "not needed today")
    await until(2026, 1, 17, 13, 59)
    assert await state(fleet, worker) == (STOPPED, DesiredStatus.STOPPED)
    await until(2026, 1, 18, 12)
    await fleet.until_ready(worker.id, within=2 * CYCLE + 300)


async def test_the_plan_says_that_a_used_worker_is_stopped_later(fleet: Fleet) -> None:
    """calendar.md#schedules: whatever keeps it from being stopped now is in the plan, and gone when it is gone."""
    await fleet.start()
    worker = await unused(fleet)
    set_nodes(fleet, worker, 2)
    await asyncio.sleep(CYCLE)
    await schedule(fleet, "daily 12:00-14:00")
    await asyncio.sleep(2 * CYCLE)
    (change,) = (await fleet.people.fleet.plan_overview()).schedule_changes
    assert (change.waits, change.desired_status) == (True, DesiredStatus.STOPPED)
    assert change.reason.endswith("it is not stopped yet: 2 nodes run on it")
    assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
    set_nodes(fleet, worker, 0)
    await fleet.until_status(worker.id, STOPPED, within=2 * CYCLE + 300)
    (change,) = (await fleet.people.fleet.plan_overview()).schedule_changes
    assert (change.waits, change.desired_status) == (False, DesiredStatus.RUNNING)


async def test_a_deleted_schedule_leaves_its_workers_stopped(fleet: Fleet) -> None:
    await fleet.start()
    worker = await unused(fleet)
    office = await schedule(fleet, "daily 12:00-14:00")
    await fleet.until_status(worker.id, STOPPED, within=2 * CYCLE + 300)
    await fleet.people.schedules.delete(office.id)
    await until(2026, 1, 17, 13)
    left = await fleet.worker(worker.id)
    assert (left.status, left.paused_by_policy) == (STOPPED, True)


async def test_two_schedules_that_overlap(fleet: Fleet) -> None:
    """calendar.md#schedules: any open window keeps a worker up; it starts with the schedule that stopped it."""
    await fleet.start()
    worker = await unused(fleet)
    await schedule(fleet, "daily 08:00-12:00", name="morning")
    await schedule(fleet, "daily 11:00-13:00", name="lunch")
    await until(2026, 1, 17, 12, 55)
    assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
    await until(2026, 1, 17, 13)
    stopped = await fleet.until_status(worker.id, STOPPED, within=CYCLE + 300)
    assert stopped.pause_reason is not None
    await until(2026, 1, 18, 8)
    await fleet.until_ready(worker.id, within=CYCLE + 300)


async def test_nothing_is_stopped_on_hold_and_the_plan_says_so(fleet: Fleet) -> None:
    await fleet.start()
    worker = await unused(fleet)
    await schedule(fleet, "daily 08:00-12:00")
    until_two = datetime(2026, 1, 17, 14, tzinfo=UTC)
    await fleet.people.workers.hold(worker.id, HoldRequest(reason="exam", until=until_two))
    await until(2026, 1, 17, 13)
    assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
    (planned,) = [each async for each in fleet.people.fleet.plan()]
    assert planned.on_hold
    assert "stopped by schedule" in planned.summary
    await until(2026, 1, 17, 14)
    await fleet.until_status(worker.id, STOPPED, within=CYCLE + 300)


async def test_running_nodes_are_waited_for_and_so_is_what_is_not_known(fleet: Fleet) -> None:
    await fleet.start()
    worker = await unused(fleet)
    set_nodes(fleet, worker, 2)
    await asyncio.sleep(CYCLE)
    await schedule(fleet, "daily 08:00-12:00")
    await until(2026, 1, 17, 16)
    assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
    assert "2 nodes run on it" in (await fleet.people.workers.explain(worker.id)).summary
    set_nodes(fleet, worker, 0)
    await fleet.until_status(worker.id, STOPPED, within=3 * CYCLE + 300)


async def test_drift_serves_the_schedule(fleet: Fleet) -> None:
    """Outside its windows a worker that was started outside LCM is stopped again, and one that was stopped is left."""
    await fleet.start()
    worker = await unused(fleet)
    await schedule(fleet, "daily 12:00-14:00")
    await fleet.until_status(worker.id, STOPPED, within=2 * CYCLE + 300)
    fleet.disturb(ExternalAction.START, worker)
    await fleet.until_status(worker.id, WorkerStatus.STOPPING, within=900)
    await fleet.until_status(worker.id, STOPPED, within=900)
    await until(2026, 1, 17, 12)
    await fleet.until_ready(worker.id, within=600)


async def test_an_accepted_stop_counts_until_the_next_boundary(fleet: Fleet) -> None:
    await fleet.change_settings(discovery={"drift_policy": "accept"})
    await fleet.start()
    worker = await unused(fleet)
    await schedule(fleet, "daily 10:00-12:00", "daily 14:00-15:00")
    await asyncio.sleep(CYCLE)
    fleet.disturb(ExternalAction.STOP, worker)
    await fleet.until_status(worker.id, STOPPED, within=900)
    await asyncio.sleep(CYCLE)
    accepted = await fleet.worker(worker.id)
    assert accepted.override is not None
    assert accepted.override.until == datetime(2026, 1, 17, 12, tzinfo=UTC)
    await until(2026, 1, 17, 11, 55)
    assert await state(fleet, worker) == (STOPPED, DesiredStatus.STOPPED)
    await until(2026, 1, 17, 14)
    await fleet.until_ready(worker.id, within=CYCLE + 300)


async def test_a_lablet_outlasts_the_window_and_no_other_is_placed() -> None:
    """calendar.md#schedules: the worker stays up until the last lablet has ended, and takes no new ones."""
    async with a_whole(report_interval=600.0) as whole:
        fleet = whole.fleet
        await whole.define("bgp", LabletRequirements(cpu_cores=1, memory_gb=1, storage_gb=5, nodes=1, license=False))
        first = await whole.running("bgp")
        worker = await whole.worker_of(first)
        every = tuple([template.name async for template in fleet.people.templates.list()])
        office = await schedule(fleet, "daily 08:00-12:00", selector=WorkerSelector(templates=every))
        await until(2026, 1, 17, 13)
        assert await state(fleet, worker) == (RUNNING, DesiredStatus.RUNNING)
        second = await whole.make("bgp")
        await asyncio.sleep(600)
        waits = await whole.lablet(second.id)
        assert waits.status is LabletStatus.PENDING_SCHEDULING
        assert waits.placement is not None
        assert "schedule office is closed" in waits.placement.rejections[0].reason
        assert f"template {worker.template_name}: schedule office is closed" in waits.placement.reason
        assert len(await whole.workers()) == 1, "no new one is launched either"
        await fleet.people.lablets.terminate(first.id)
        await fleet.until_status(worker.id, STOPPED, within=3600)
        await fleet.people.schedules.edit(office.id, EditScheduleRequest(windows=("daily 00:00-24:00",)))
        placed = await whole.until_status(second, LabletStatus.RUNNING)
        assert placed.worker_id == worker.id
