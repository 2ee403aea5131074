"""Maintenance that EC2 announces, and instances that fail their status checks: reported, or moved to another host."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.simulated.fault_injection import clear_faults
from lcm.cloud.simulated.faults import (
    AnnounceMaintenance,
    CancelMaintenance,
    FailStatusCheck,
    LackCapacity,
    Outage,
    RescheduleMaintenance,
)
from lcm.cloud.types import HealthKind, InstanceState
from lcm.control_plane.records.kinds import ALERT
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig
from lcm.model.lablet.record import CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.notification.alert import Alert
from lcm.model.worker.conditions import ConditionType, find_condition, is_condition_true
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from lcm.model.worker.urgency import worker_problem
from tests.support.virtual.fleet import a_fleet
from tests.support.virtual.full_platform import a_whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from lcm.cloud.simulated.machine import Machine
    from lcm.model.worker.record import Worker
    from tests.support.virtual.fleet import Fleet

WEEK = 7 * 86400.0
RETIREMENT = "The instance is running on degraded hardware"
SEAT = LabletRequirements(cpu_cores=1, memory_gb=1, storage_gb=5, nodes=1, license=False)


def a_quiet_fleet() -> AbstractAsyncContextManager[Fleet]:
    return a_fleet(report_interval=600.0, config=ReconciliationConfig(interval_seconds=120.0))


async def plan(fleet: Fleet, **settings: Any) -> None:
    await fleet.change_settings(
        maintenance={"maintenance_policy": "plan", **settings}, idle={"worker_auto_pause_enabled": False}
    )


def announce(fleet: Fleet, worker: Worker, seconds: float = WEEK, code: str = "instance-retirement") -> Machine:
    assert worker.instance_id is not None
    fleet.world.inject_fault(worker.aws_region, AnnounceMaintenance(RETIREMENT, seconds, worker.instance_id, code))
    return fleet.machine(worker)


def impair(fleet: Fleet, worker: Worker) -> None:
    assert worker.instance_id is not None
    fleet.world.inject_fault(worker.aws_region, FailStatusCheck(HealthKind.SYSTEM_IMPAIRED, worker.instance_id))


def set_nodes(fleet: Fleet, worker: Worker, running: int) -> None:
    server = fleet.cml_of(worker)
    server.stats = replace(server.stats, nodes=running, running_nodes=running)


async def unused(fleet: Fleet, name: str, **body: Any) -> Worker:
    """A ready worker on which no node runs."""
    worker = await fleet.running(name, **body)
    set_nodes(fleet, worker, 0)
    return worker


@asynccontextmanager
async def an_unused_worker(controller: str = "one", **settings: Any) -> AsyncIterator[tuple[Fleet, Worker]]:
    """A ready worker on which no node runs, in a fleet whose workers are moved to other hosts."""
    async with a_quiet_fleet() as fleet:
        await plan(fleet, **settings)
        await fleet.start(controller)
        yield fleet, await unused(fleet, "alpha")


async def until(fleet: Fleet, worker: Worker, what: str, *, within: float = 3600.0) -> Worker:
    """Wait until the worker's condition is True, or, with a minus, gone."""
    kind = ConditionType(what.removeprefix("-"))

    async def reached() -> bool:
        found = is_condition_true((await fleet.worker(worker.id)).conditions, kind)
        return found is not what.startswith("-")

    await fleet.until(reached, f"{worker.name}: {what}", within=within)
    return await fleet.worker(worker.id)


async def until_moved(fleet: Fleet, worker: Worker, *, within: float = 3 * 3600.0) -> Worker:
    """Wait until the worker was started again and is ready, and EC2 reports its instance as healthy."""

    async def moved() -> bool:
        now = await fleet.worker(worker.id)
        resumes = now.auto_resume_count + now.manual_resume_count
        if resumes == worker.auto_resume_count + worker.manual_resume_count:
            return False
        return now.ready and now.maintenance is None and not now.is_impaired and not now.maintenance_restarts

    await fleet.until(moved, f"{worker.name} has moved", within=within)
    return await fleet.worker(worker.id)


async def test_an_announced_retirement_is_reported_and_nothing_else() -> None:
    """cloud-and-cml.md#maintenance: report is the default."""
    async with a_quiet_fleet() as fleet:
        await fleet.change_settings(idle={"worker_auto_pause_enabled": False})
        await fleet.start()
        worker = await fleet.running("alpha")
        announce(fleet, worker)
        told = await until(fleet, worker, "Maintenance")
        assert told.maintenance is not None
        assert (told.maintenance.code, told.maintenance.detail) == ("instance-retirement", RETIREMENT)
        explanation = await fleet.people.workers.explain(worker.id)
        assert "EC2 has announced the retirement of its host for" in explanation.summary
        assert "MAINTENANCE_POLICY=report" in explanation.summary
        assert (worker_problem(told) or "").startswith("EC2 has announced the retirement of its host")
        await asyncio.sleep(6 * 3600)
        assert fleet.calls("StopInstances") == 0
        assert fleet.machine(worker).state is InstanceState.RUNNING


async def test_an_event_that_is_brought_forward_and_canceled_is_followed() -> None:
    async with a_quiet_fleet() as fleet:
        await fleet.change_settings(idle={"worker_auto_pause_enabled": False})
        await fleet.start()
        worker = await fleet.running("alpha")
        announce(fleet, worker)
        first = await until(fleet, worker, "Maintenance")
        assert worker.instance_id is not None
        assert first.maintenance is not None
        assert first.maintenance.not_before is not None
        earlier = first.maintenance.not_before - timedelta(days=3)
        fleet.world.inject_fault(worker.aws_region, RescheduleMaintenance(worker.instance_id, WEEK - 3 * 86400.0))

        async def moved() -> bool:
            now = await fleet.worker(worker.id)
            assert now.maintenance is not None
            assert now.maintenance.not_before is not None
            condition = find_condition(now.conditions, ConditionType.MAINTENANCE)
            assert condition is not None
            told = f"{now.maintenance.not_before:%Y-%m-%d %H:%M} UTC" in condition.message
            return now.maintenance.not_before < earlier + timedelta(hours=1) and told

        await fleet.until(moved, "the new date is on the record and in the condition")
        fleet.world.inject_fault(worker.aws_region, CancelMaintenance(worker.instance_id))
        over = await until(fleet, worker, "-Maintenance")
        assert over.maintenance is None
        entries = await fleet.plane.services.context.store.read_journal(topics=[ALERT], limit=100)
        alerts = [Alert.model_validate_json(entry.body) for entry in entries]
        assert [alert.state for alert in alerts] == ["raised", "raised", "resolved"]
        was, will_be = (f"{alert.detail.split(' for ')[1]:.10}" for alert in alerts[:2])
        assert will_be < was
        assert alerts[1].detail.startswith(f"brought forward from {was} ")


async def test_unreadable_health_changes_nothing_and_stops_no_other_region() -> None:
    """Unknown is not healthy: what was announced stays announced."""
    async with a_quiet_fleet() as fleet:
        await fleet.change_settings(idle={"worker_auto_pause_enabled": False})
        await fleet.start()
        sick = await fleet.running("alpha", aws_region="eu-west-1")
        well = await fleet.running("beta", aws_region="us-east-1")
        announce(fleet, sick)
        await until(fleet, sick, "Maintenance")
        fleet.world.inject_fault("eu-west-1", Outage(3600.0, silent=True))
        fleet.machine(sick).events.clear()
        announce(fleet, well)
        await until(fleet, well, "Maintenance", within=900.0)
        await asyncio.sleep(2400)
        assert (await fleet.worker(sick.id)).maintenance is not None
        clear_faults(fleet.world.regions["eu-west-1"])
        await until(fleet, sick, "-Maintenance")


async def test_health_costs_three_calls_a_region_every_five_minutes() -> None:
    async with a_quiet_fleet() as fleet:
        await fleet.change_settings(idle={"worker_auto_pause_enabled": False})
        await fleet.start()
        await fleet.running("alpha")
        before = fleet.calls("DescribeInstanceStatus")
        await asyncio.sleep(3600)
        assert fleet.calls("DescribeInstanceStatus") - before == 2 * 3 * 12


async def test_a_stopped_worker_keeps_its_event_and_leaves_the_host_with_its_next_start() -> None:
    async with a_quiet_fleet() as fleet:
        await plan(fleet)
        await fleet.start()
        worker = await fleet.running("alpha")
        await fleet.people.workers.stop(worker.id)
        await fleet.until_status(worker.id, WorkerStatus.STOPPED)
        announce(fleet, worker)
        told = await until(fleet, worker, "Maintenance")
        assert (told.status, fleet.calls("StartInstances")) == (WorkerStatus.STOPPED, 0)
        assert "The next start moves it" in (await fleet.people.workers.explain(worker.id)).summary
        assert worker_problem(told) is None
        await fleet.people.workers.start(worker.id)
        await until_moved(fleet, worker)
        assert fleet.calls("StopInstances") == 1


async def test_with_plan_an_idle_worker_is_moved_and_verified() -> None:
    async with an_unused_worker() as (fleet, worker):
        machine = announce(fleet, worker)
        moved = await until_moved(fleet, worker)
        assert (fleet.calls("StopInstances"), fleet.calls("StartInstances")) == (1, 1)
        assert machine.events[0].left_host_at is not None
        assert (moved.auto_pause_count, moved.auto_resume_count) == (1, 1)
        assert (await fleet.steps(worker.id))[-5:] == ["RUNNING", "STOPPING", "STOPPED", "STARTING", "RUNNING"]
        audit = await fleet.audits(worker.id)
        assert [each for each in audit if each.startswith("maintenance")] == ["maintenance_stop", "maintenance_start"]
        await asyncio.sleep(2 * 3600)
        assert fleet.calls("StopInstances") == 1, "it is moved once"


async def test_running_nodes_keep_a_worker_where_it_is() -> None:
    async with an_unused_worker() as (fleet, worker):
        set_nodes(fleet, worker, 2)
        await asyncio.sleep(120)
        announce(fleet, worker)
        await until(fleet, worker, "Maintenance")
        await asyncio.sleep(3600)
        assert fleet.calls("StopInstances") == 0
        explanation = await fleet.people.workers.explain(worker.id)
        assert explanation.decision is not None
        assert explanation.decision.rule == "maintenance.waits"
        assert "2 nodes run on it" in explanation.decision.reason
        set_nodes(fleet, worker, 0)
        await until_moved(fleet, worker)


async def test_min_workers_keeps_the_last_worker_and_others_move_one_by_one() -> None:
    async with a_quiet_fleet() as fleet:
        await plan(fleet)
        await fleet.change_settings(scaling={"min_workers": 2})
        await fleet.start()
        workers = [await unused(fleet, name) for name in ("alpha", "beta")]
        for worker in workers:
            announce(fleet, worker)
            await until(fleet, worker, "Maintenance")
        await asyncio.sleep(3600)
        assert fleet.calls("StopInstances") == 0
        reason = (await fleet.people.workers.explain(workers[0].id)).decision
        assert reason is not None
        assert "MIN_WORKERS is 2" in reason.reason
        await fleet.change_settings(scaling={"min_workers": 1})
        both = False

        async def moved() -> bool:
            nonlocal both
            now = [await fleet.worker(each.id) for each in workers]
            both = both or sum(each.status is not WorkerStatus.RUNNING for each in now) > 1
            return all(each.maintenance is None and each.ready for each in now)

        await fleet.until(moved, "both have moved", within=2 * 3600)
        assert not both
        assert (fleet.calls("StopInstances"), fleet.calls("StartInstances")) == (2, 2)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("request_", "spare"), [("/maintenance", 0), ("/maintenance", 1), ("/status", 0), ("/status", 1)]
)
async def test_a_crash_at_any_step_leaves_nothing_stopped(when: str, request_: str, spare: int) -> None:
    """The next leader goes on from the pause reason on the record."""
    async with an_unused_worker() as (fleet, worker):
        wire = fleet.wires["one"]
        wire.die(when, f"{worker.id}{request_}", spare=spare)
        announce(fleet, worker)
        await fleet.until(lambda: wire.dead, "it dies", within=2 * 3600)
        await fleet.start("two")
        moved = await until_moved(fleet, worker)
        assert moved.pause_reason is None
        assert (fleet.calls("StopInstances"), fleet.calls("StartInstances")) == (1, 1)


async def test_a_hold_in_the_middle_is_respected_and_shown() -> None:
    async with a_fleet() as fleet:
        await plan(fleet)
        await fleet.start()
        worker = await unused(fleet, "alpha")
        announce(fleet, worker)
        await fleet.until_status(worker.id, WorkerStatus.STOPPING)
        await fleet.people.workers.hold(worker.id, HoldRequest(reason="look at its disk"))
        await fleet.until_status(worker.id, WorkerStatus.STOPPED)
        await asyncio.sleep(1800)
        held = await fleet.worker(worker.id)
        assert (held.status, held.is_in_maintenance) == (WorkerStatus.STOPPED, True)
        planned = (await fleet.people.fleet.plan_overview()).items
        assert [(each.name, each.on_hold) for each in planned] == [("alpha", True)]
        assert [action.type for action in planned[0].actions] == ["change_host"]
        await fleet.people.workers.release(worker.id)
        await until_moved(fleet, worker)


async def test_an_event_that_is_canceled_in_the_middle_and_a_switched_off_policy_still_end_in_a_start() -> None:
    async with an_unused_worker() as (fleet, worker):
        announce(fleet, worker)
        await fleet.until_status(worker.id, WorkerStatus.STOPPING)
        assert worker.instance_id is not None
        fleet.world.inject_fault(worker.aws_region, CancelMaintenance(worker.instance_id))
        await fleet.change_settings(maintenance={"maintenance_policy": "report"})
        await until_moved(fleet, worker)
        assert (fleet.calls("StopInstances"), fleet.calls("StartInstances")) == (1, 1)


async def test_a_persons_stop_in_the_middle_lasts() -> None:
    async with an_unused_worker() as (fleet, worker):
        announce(fleet, worker)
        await fleet.until_status(worker.id, WorkerStatus.STOPPING)
        await fleet.people.workers.stop(worker.id)
        await fleet.until_status(worker.id, WorkerStatus.STOPPED)
        await asyncio.sleep(3600)
        assert (await fleet.worker(worker.id)).status is WorkerStatus.STOPPED
        assert fleet.calls("StartInstances") == 0


async def test_a_stop_of_ten_minutes_and_a_start_without_capacity_end_well() -> None:
    async with an_unused_worker() as (fleet, worker):
        announce(fleet, worker)
        await fleet.until_status(worker.id, WorkerStatus.STOPPING)
        faults = fleet.world.regions[worker.aws_region].faults
        faults.hold_transitions = True
        await asyncio.sleep(600)
        assert (await fleet.worker(worker.id)).status is WorkerStatus.STOPPING
        faults.hold_transitions = False
        fleet.world.inject_fault(worker.aws_region, LackCapacity(1500.0))

        async def waits() -> bool:
            return is_condition_true((await fleet.worker(worker.id)).conditions, ConditionType.WAITING)

        await fleet.until(waits, "it waits for capacity")
        explanation = await fleet.people.workers.explain(worker.id)
        assert "capacity" in explanation.summary
        await until_moved(fleet, worker)


async def test_a_license_is_given_back_before_the_stop_where_that_is_the_rule() -> None:
    async with a_quiet_fleet() as fleet:
        await plan(fleet)
        await fleet.change_settings(idle={"license_on_stop": "release", "worker_auto_pause_enabled": False})
        await fleet.start()
        worker = await unused(fleet, "alpha", license_token="good-token")

        async def licensed() -> bool:
            return (await fleet.worker(worker.id)).license_status is LicenseStatus.REGISTERED

        await fleet.until(licensed, "it is registered")
        announce(fleet, worker)
        await fleet.until(lambda: fleet.calls("StopInstances") == 1, "it is stopped")
        assert fleet.cml.licensed() == [], "the license was given back before"
        await until_moved(fleet, worker)
        await fleet.until(licensed, "it is registered again")


async def test_an_impaired_worker_is_restarted_after_a_while() -> None:
    async with an_unused_worker(impaired_after=1200.0) as (fleet, worker):
        impair(fleet, worker)
        told = await until(fleet, worker, "Impaired")
        condition = find_condition(told.conditions, ConditionType.IMPAIRED)
        assert condition is not None
        assert "the system status check fails" in condition.message
        explanation = await fleet.people.workers.explain(worker.id)
        assert "It will be stopped and started again on another host from" in explanation.summary
        await until_moved(fleet, worker)
        stopped_at = fleet.machine(worker).launched_at
        assert stopped_at - condition.since.timestamp() >= 1200.0
        assert fleet.calls("StopInstances") == 1


async def test_two_restarts_do_not_help_and_a_person_is_asked() -> None:
    async with an_unused_worker() as (fleet, worker):

        async def fails_always() -> None:
            while True:
                if (
                    fleet.world.regions[worker.aws_region].settle(fleet.machine(worker), fleet.world.time()).state
                    is InstanceState.RUNNING
                ):
                    impair(fleet, worker)
                await asyncio.sleep(20)

        ill = asyncio.create_task(fails_always())
        try:
            stuck = await until(fleet, worker, "Stuck", within=4 * 3600)
            condition = find_condition(stuck.conditions, ConditionType.STUCK)
            assert condition is not None
            assert condition.reason == "StillImpaired"
            assert "after 2 restarts on other hosts" in condition.message
            await asyncio.sleep(4 * 3600)
            assert fleet.calls("StopInstances") == 2
        finally:
            ill.cancel()
        await fleet.people.workers.stop(worker.id)
        await fleet.until_status(worker.id, WorkerStatus.STOPPED)
        await fleet.people.workers.start(worker.id)
        await until_moved(fleet, worker)


async def test_a_retirement_next_week_is_dealt_with_in_an_idle_gap_and_nobody_notices() -> None:
    """Two workers, and one lab of an hour after the other: the worker of the first is retired in a week."""
    async with a_whole() as whole:
        fleet = whole.fleet
        await plan(fleet)
        await whole.define("seat", SEAT)
        for name in ("alpha", "beta"):
            await fleet.running(name, template_name="large")
        first = await whole.running("seat", time_to_live_minutes=60)
        used = await whole.worker_of(first)
        announce(fleet, used, 7 * 86400.0)
        told = await until(fleet, used, "Maintenance")
        explanation = await fleet.people.workers.explain(used.id)
        assert "as soon as it is not in use; at present, 1 lablet is assigned to it" in explanation.summary
        preview = await fleet.people.lablets.preview(CreateLabletRequest(definition="seat@1"))
        assert preview.outcome.value == "place"
        assert preview.worker_id != used.id
        assert any("and the lablet has no end" in each.reason for each in preview.rejections)

        lablets = [first]
        for _ in range(2):
            lablets.append(await whole.running("seat", time_to_live_minutes=60, lost_worker_policy="fail"))
            await asyncio.sleep(5400)
        await until_moved(fleet, used, within=3600.0)
        assert told.maintenance is not None
        assert told.maintenance.not_before is not None
        assert clock.now() < told.maintenance.not_before
        for lablet in lablets:
            ended = await whole.lablet(lablet.id)
            assert ended.status is LabletStatus.EXPIRED
            assert ended.placement_attempt == 1, "it was never placed anew"
        assert fleet.calls("StopInstances") == 1
        history = [entry.reason async for entry in fleet.people.workers.history(used.id)]
        assert any("maintenance" in reason for reason in history)
