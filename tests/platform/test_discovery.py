"""Scans that miss instances: on the whole platform, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.simulated.faults import DropFromReads, ExternalAction, ExternalChange, FailPage, HideInstances, Outage
from lcm.control_plane.records.kinds import ALERT
from lcm.model.notification.alert import Alert, AlertType
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition, is_condition_true
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.running_workers import standing_workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.worker.record import Worker

REGION = "eu-west-1"
OTHER_ACCOUNT = "999999999999"
INTERVAL = 300.0  # DISCOVERY_INTERVAL; the first scan is 5 s after leadership
LONG = 4 * INTERVAL
NEVER = 1e12


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as fleet:
        fleet.cml.boot = 0.0
        yield fleet


def hide_all(fleet: Fleet) -> None:
    """EC2 responds with an empty list."""
    for machine in fleet.world.regions[REGION].machines.values():
        machine.visible_at = NEVER


def scans(fleet: Fleet) -> int:
    discovery = fleet.controllers["one"].discovery
    return 0 if discovery is None else discovery.scans_count


async def until_scans(fleet: Fleet, count: int) -> None:
    await fleet.until(lambda: scans(fleet) >= count, f"{count} scans", within=count * INTERVAL + 60)
    await asyncio.sleep(30)  # virtual: the results of the scan are processed


async def lost(fleet: Fleet, workers: list[Worker]) -> list[str]:
    """The workers that are marked as lost, in whichever way."""
    now = [await fleet.worker(worker.id) for worker in workers]
    return [worker.id for worker in now if worker.status is not WorkerStatus.RUNNING]


async def breakers(fleet: Fleet) -> list[dict[str, Any]]:
    """The breaker as the API shows it."""
    answer = await fleet.plane.ask("GET", "/api/fleet")
    assert answer.status_code == 200, answer.text
    shown: list[dict[str, Any]] = answer.json()["breakers"]
    return shown


async def test_an_empty_scan_of_fifty_marks_none_and_opens_the_breaker(fleet: Fleet) -> None:
    """A scan without any recorded instance never counts as agreement; only a person closes the breaker.

    Reference: worker-lifecycle.md#breaker.
    """
    workers = await standing_workers(fleet, 50)
    hide_all(fleet)
    await fleet.start()
    await until_scans(fleet, 1)
    [breaker] = await breakers(fleet)
    assert (breaker["region"], breaker["open"], breaker["affected"]) == (REGION, True, 50)
    assert breaker["only_a_person_closes"]
    assert "none of 50 recorded instances is visible" in breaker["reason"]
    assert "breaker_opened" in await fleet.audits("fleet")
    await until_scans(fleet, 3)
    assert await lost(fleet, workers) == []
    assert len(await breakers(fleet)) == 1
    assert fleet.calls("TerminateInstances") == fleet.calls("RunInstances") == 0


async def test_a_partial_scan_of_fifty_marks_none(fleet: Fleet) -> None:
    """discovery.md: a failed or partial scan marks no worker, not even a lost one."""
    workers = await standing_workers(fleet, 50, ghosts=2)
    fleet.world.regions[REGION].page_size = 20
    fleet.world.inject_fault(REGION, FailPage(2, times=100_000))
    await fleet.start()
    await until_scans(fleet, 4)
    assert await lost(fleet, workers) == []
    assert await breakers(fleet) == []
    discovery = fleet.controllers["one"].discovery
    assert discovery is not None
    assert "incomplete" in discovery.errors[REGION]


async def test_a_failing_scan_of_fifty_marks_none(fleet: Fleet) -> None:
    """discovery.md: AWS does not respond; no worker is lost, and all recover afterwards."""
    workers = await standing_workers(fleet, 50)
    await fleet.start()
    await until_scans(fleet, 1)
    fleet.world.inject_fault(REGION, Outage(LONG))
    await asyncio.sleep(LONG)
    assert await lost(fleet, workers) == []
    assert await breakers(fleet) == []
    await until_scans(fleet, scans(fleet) + 1)
    assert await lost(fleet, workers) == []
    discovery = fleet.controllers["one"].discovery
    assert discovery is not None
    assert discovery.errors == {}


async def test_ten_ghosts_among_thirteen_are_cleaned_after_a_person_has_confirmed_it(fleet: Fleet) -> None:
    """worker-lifecycle.md#breaker: more than max(1, 20 %): none, and absence is confirmed only by a person."""
    workers = await standing_workers(fleet, 13, ghosts=10)
    await fleet.start()
    await until_scans(fleet, 4)
    assert await lost(fleet, workers) == []
    [breaker] = await breakers(fleet)
    assert (breaker["affected"], breaker["only_a_person_closes"]) == (10, True)
    await fleet.people.fleet.reset_breakers()
    await until_scans(fleet, scans(fleet) + 1)
    assert await lost(fleet, workers) == [worker.id for worker in workers[3:]]
    assert await breakers(fleet) == []
    gone = [await fleet.worker(worker.id) for worker in workers[3:]]
    assert {(worker.status, worker.desired_status, worker.terminated_by) for worker in gone} == {
        ("TERMINATED", "RUNNING", "discovery-gc")
    }
    assert fleet.controllers["one"].stats()["orphans_terminated_count"] == 10


async def test_ten_terminated_among_thirteen_are_cleaned_at_the_second_agreeing_scan(fleet: Fleet) -> None:
    """worker-lifecycle.md#breaker: EC2 shows them as terminated, so a second scan is enough."""
    workers = await standing_workers(fleet, 13)
    for worker in workers[3:]:
        fleet.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, worker.instance_id))
    await asyncio.sleep(120)
    await fleet.start()
    await until_scans(fleet, 1)
    assert await lost(fleet, workers) == []
    [breaker] = await breakers(fleet)
    assert (breaker["affected"], breaker["only_a_person_closes"]) == (10, False)
    await asyncio.sleep(INTERVAL - 60)  # sweeps in between do not count as scans
    assert scans(fleet) == 1
    assert await lost(fleet, workers) == []
    await until_scans(fleet, 2)
    assert await lost(fleet, workers) == [worker.id for worker in workers[3:]]
    assert await breakers(fleet) == []


async def test_two_ghosts_among_thirteen_are_cleaned_once_they_are_certainly_gone(fleet: Fleet) -> None:
    """worker-lifecycle.md#gone: three complete sweeps over five minutes; so few need no confirmation."""
    workers = await standing_workers(fleet, 13, ghosts=2)
    await fleet.start()
    await asyncio.sleep(290)
    assert await lost(fleet, workers) == []
    for worker in workers[11:]:
        condition = find_condition((await fleet.worker(worker.id)).conditions, ConditionType.INSTANCE_READY)
        assert condition is not None
        assert (condition.status, condition.reason) == (ConditionStatus.UNKNOWN, "NotVisible")
        explained = (await fleet.plane.ask("GET", f"/api/workers/{worker.id}/explain")).json()["summary"]
        assert "Its instance has not been visible for" in explained
    await until_scans(fleet, 3)
    assert await lost(fleet, workers) == [worker.id for worker in workers[11:]]
    assert await breakers(fleet) == []
    gone = [await fleet.worker(worker.id) for worker in workers[11:]]
    assert {(worker.status, worker.terminated_by) for worker in gone} == {("TERMINATED", "discovery-gc")}
    assert fleet.controllers["one"].stats()["orphans_terminated_count"] == 2


async def test_ten_workers_hidden_three_more_with_each_sweep_for_four_minutes_are_kept(fleet: Fleet) -> None:
    """worker-lifecycle.md#gone: EC2's index loses all workers of a region step by step, and finds them again."""
    workers = await standing_workers(fleet, 10)
    await fleet.start()
    await until_scans(fleet, 1)
    for first in range(0, 10, 3):
        hidden = tuple(worker.instance_id or "" for worker in workers[first : first + 3])
        fleet.world.inject_fault(REGION, HideInstances(240, hidden))
        await asyncio.sleep(60)
    assert await lost(fleet, workers) == []
    [breaker] = await breakers(fleet)
    assert breaker["only_a_person_closes"]
    await asyncio.sleep(600)
    assert await lost(fleet, workers) == []
    for worker in workers:
        seen = await fleet.worker(worker.id)
        assert seen.ready
        assert seen.instance_id == worker.instance_id
        assert is_condition_true(seen.conditions, ConditionType.INSTANCE_READY)
    await fleet.people.fleet.reset_breakers()
    await asyncio.sleep(2400)
    assert await lost(fleet, workers) == []
    assert await breakers(fleet) == []
    assert fleet.calls("TerminateInstances") == fleet.calls("RunInstances") == fleet.calls("StopInstances") == 0


async def test_reads_that_each_miss_a_third_end_nothing(fleet: Fleet) -> None:
    """worker-lifecycle.md#gone: also look-ups by id miss them, each time other ones."""
    workers = await standing_workers(fleet, 60)
    await fleet.start()
    await until_scans(fleet, 1)
    fleet.world.inject_fault(REGION, DropFromReads(0.3, 280.0))
    await asyncio.sleep(900)
    assert await lost(fleet, workers) == []
    assert fleet.calls("TerminateInstances") == fleet.calls("RunInstances") == 0


async def test_a_wrong_aws_account_never_marks_a_worker(fleet: Fleet) -> None:
    """A scan as another account than the records' never counts as agreement, also not after a reset.

    Reference: worker-lifecycle.md#hold.
    """
    workers = await standing_workers(fleet, 13)
    hide_all(fleet)
    fleet.world.regions[REGION].account_id = OTHER_ACCOUNT
    await fleet.start()
    await until_scans(fleet, 4)
    assert await lost(fleet, workers) == []
    [breaker] = await breakers(fleet)
    assert breaker["only_a_person_closes"]
    assert "another AWS account" in breaker["reason"]
    await fleet.people.fleet.reset_breakers()
    await until_scans(fleet, 8)
    assert await lost(fleet, workers) == []
    assert fleet.controllers["one"].stats()["orphans_terminated_count"] == 0


async def test_a_change_of_leader_neither_ends_nor_begins_a_leak() -> None:
    """The first report of a leader comes before its first scan."""
    async with a_fleet() as fleet:
        worker = await create_running(fleet)
        region, machine = fleet.world.regions[REGION], fleet.machine(worker)
        tags = {**machine.tags, "lcm:worker_id": "w-gone"}
        region.add(replace(machine, id="i-leak", serial=machine.serial + 100, tags=tags, _shown=None))
        await asyncio.sleep(2 * INTERVAL)
        assert await leak_alerts(fleet) == ["raised"]
        await fleet.start("two")
        assert fleet.controllers["one"].resign()
        await fleet.until(lambda: fleet.controllers["two"].is_leader, "handed over", within=60)
        await asyncio.sleep(INTERVAL)
        assert await leak_alerts(fleet) == ["raised"]
        fleet.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, "i-leak"))
        await asyncio.sleep(2 * INTERVAL)
        assert await leak_alerts(fleet) == ["raised", "resolved"]


async def create_running(fleet: Fleet) -> Worker:
    fleet.cml.boot = 0.0
    await fleet.start()
    return await fleet.running()


async def leak_alerts(fleet: Fleet) -> list[str]:
    entries = await fleet.plane.services.context.store.read_journal(topics=[ALERT], limit=1000)
    alerts = [Alert.model_validate_json(entry.body) for entry in entries]
    return [alert.state.value for alert in alerts if alert.type is AlertType.INSTANCE_LEAKED]
