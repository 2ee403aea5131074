"""Scans that miss instances: on the whole platform, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.simulated.faults import FailPage, Outage
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
    async with a_fleet() as fleet:
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
    assert "none of the recorded instances is visible" in breaker["reason"]
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


async def test_ten_ghosts_among_thirteen_are_cleaned_at_the_second_agreeing_discovery(fleet: Fleet) -> None:
    """worker-lifecycle.md#hold: more than max(3, 20 %) at once: none, until a second complete scan agrees."""
    workers = await standing_workers(fleet, 13, ghosts=10)
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
    gone = [await fleet.worker(worker.id) for worker in workers[3:]]
    assert {(worker.status, worker.desired_status, worker.terminated_by) for worker in gone} == {
        ("TERMINATED", "RUNNING", "discovery-gc")
    }
    assert fleet.controllers["one"].stats()["orphans_terminated_count"] == 10


async def test_three_ghosts_among_thirteen_are_cleaned_at_the_first_discovery(fleet: Fleet) -> None:
    """discovery.md: orphans are marked TERMINATED; so few need no second scan."""
    workers = await standing_workers(fleet, 13, ghosts=3)
    await fleet.start()
    await until_scans(fleet, 1)
    assert await lost(fleet, workers) == [worker.id for worker in workers[10:]]
    assert await breakers(fleet) == []
    gone = [await fleet.worker(worker.id) for worker in workers[10:]]
    assert {(worker.status, worker.terminated_by) for worker in gone} == {("TERMINATED", "discovery-gc")}
    assert fleet.controllers["one"].stats()["orphans_terminated_count"] == 3


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
