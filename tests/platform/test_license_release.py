"""Licenses of workers that stop or end are deregistered once, whatever happens meanwhile: on the whole platform."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from lcm.cloud.simulated.faults import LackCapacity, RefuseCalls
from lcm.cloud.types import InstanceState
from lcm.model.worker.requests import HoldRequest, LicenseRequest
from lcm.model.worker.status import LicenseOperation, LicenseStatus, WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.worker.record import Worker

STOPPED, TERMINATING, TERMINATED = WorkerStatus.STOPPED, WorkerStatus.TERMINATING, WorkerStatus.TERMINATED
# The writes of the controller: TERMINATING, started_at, the new address, ready_at, license, TERMINATED.
ANOTHER_TOKEN = LicenseRequest(operation=LicenseOperation.REGISTER, token=SecretStr("better-token"))
STEPS = [(when, "/status", spare) for when in ("before", "after") for spare in range(5)] + [
    (when, "/license-status", 0) for when in ("before", "after")
]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as fleet:
        yield fleet


async def stopped_and_licensed(fleet: Fleet, name: str = "alpha") -> Worker:
    worker = await fleet.running(name, license_token="good-token")
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    await fleet.people.workers.stop(worker.id)
    worker = await fleet.until_status(worker.id, STOPPED, within=300)
    assert worker.license_status is LicenseStatus.REGISTERED
    return worker


async def until_license(fleet: Fleet, worker: Worker, status: LicenseStatus) -> None:
    async def reached() -> bool:
        return (await fleet.worker(worker.id)).license_status is status

    await fleet.until(reached, f"license {status}", within=300)


def starts(fleet: Fleet) -> int:
    return fleet.calls("StartInstances")


async def test_a_stopped_worker_is_started_once_more_to_give_its_license_back(fleet: Fleet) -> None:
    """worker-lifecycle.md#terminating: the status stays TERMINATING, and nothing is leaked."""
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    await fleet.people.workers.terminate(worker.id)
    await fleet.until(lambda: fleet.machine(worker).state is InstanceState.RUNNING, "started", within=300)
    meanwhile = await fleet.worker(worker.id)
    assert (meanwhile.status, meanwhile.ready) == (TERMINATING, False)
    assert meanwhile.license_release_started_at is not None
    ended = await fleet.until_status(worker.id, TERMINATED, within=900)
    assert ended.license_status is LicenseStatus.DEREGISTERED
    assert fleet.cml.licensed() == []
    assert (starts(fleet), fleet.calls("TerminateInstances"), fleet.cml_of(worker).calls["deregister"]) == (1, 1, 1)
    assert "license_leaked" not in await fleet.audits(worker.id)
    assert (await fleet.steps(worker.id))[-2:] == ["TERMINATING", "TERMINATED"]


@pytest.mark.parametrize(("when", "request_", "spare"), STEPS)
async def test_a_crash_at_any_step_gives_the_license_back_once_and_ends_the_instance_once(
    fleet: Fleet, when: str, request_: str, spare: int
) -> None:
    """worker-lifecycle.md#terminating: the next leader goes on from the record."""
    await fleet.start("one")
    worker = await stopped_and_licensed(fleet)
    await fleet.start("two")
    fleet.wires["one"].die(when, request_, spare=spare)
    await fleet.people.workers.terminate(worker.id)
    ended = await fleet.until_status(worker.id, TERMINATED, within=2400)
    assert fleet.wires["one"].dead
    assert fleet.cml.licensed() == []
    assert ended.license_status is LicenseStatus.DEREGISTERED
    assert "license_leaked" not in await fleet.audits(worker.id)
    assert fleet.world.live_instances() == []
    assert (await fleet.audits(worker.id)).count("license_reported") == 3, "registering, registered, deregistered"
    report_lost = (when, request_) == ("before", "/license-status")
    assert fleet.cml_of(worker).calls["deregister"] == (2 if report_lost else 1), "the second finds none to give back"
    assert fleet.calls("TerminateInstances") <= 2, "one more only if the answer to the first was lost"


async def test_termination_of_a_worker_that_is_stopping_waits_until_it_has_stopped(fleet: Fleet) -> None:
    await fleet.start()
    worker = await fleet.running(license_token="good-token")
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    await fleet.people.workers.stop(worker.id)
    await fleet.until(lambda: fleet.machine(worker).state is InstanceState.STOPPING, "stopping", within=60)
    await fleet.people.workers.terminate(worker.id)
    ended = await fleet.until_status(worker.id, TERMINATED, within=900)
    assert (ended.license_status, fleet.cml.licensed()) == (LicenseStatus.DEREGISTERED, [])


@pytest.mark.parametrize("later", [False, True])
async def test_a_license_that_is_not_to_be_given_back_is_leaked_and_reported(fleet: Fleet, later: bool) -> None:
    """worker-lifecycle.md#terminating: `release_license: false`, also sent later, and never back."""
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    if later:
        await fleet.people.workers.terminate(worker.id)
        await fleet.until(lambda: starts(fleet) == 1, "started", within=60)
    asked = await fleet.people.workers.terminate(worker.id, release_license=False)
    again = await fleet.people.workers.terminate(worker.id)
    assert (asked.release_license, again.release_license) == (False, False)
    await fleet.until_status(worker.id, TERMINATED, within=200)
    assert "license_leaked" in await fleet.audits(worker.id)
    assert starts(fleet) == later


async def test_a_delete_can_leak_the_license_too(fleet: Fleet) -> None:
    worker = await fleet.create()
    response = await fleet.plane.ask("DELETE", f"/api/workers/{worker.id}?release_license=false")
    assert (response.status_code, response.json()["release_license"]) == (202, False)


async def test_missing_capacity_is_waited_for_until_the_bound(fleet: Fleet) -> None:
    """worker-lifecycle.md#terminating: capacity comes back, and the license is deregistered."""
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    fleet.world.inject_fault(worker.aws_region, LackCapacity(600))
    await fleet.people.workers.terminate(worker.id)
    ended = await fleet.until_status(worker.id, TERMINATED, within=2400)
    assert ended.license_status is LicenseStatus.DEREGISTERED


async def test_capacity_that_stays_away_ends_with_a_leak(fleet: Fleet) -> None:
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    fleet.world.inject_fault(worker.aws_region, LackCapacity(1e6))
    await fleet.people.workers.terminate(worker.id)
    await asyncio.sleep(890)
    assert (await fleet.worker(worker.id)).status is TERMINATING
    await fleet.until_status(worker.id, TERMINATED, within=300)
    assert "license_leaked" in await fleet.audits(worker.id)


async def test_a_start_that_ec2_refuses_ends_with_a_leak_at_once(fleet: Fleet) -> None:
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    fleet.world.inject_fault(worker.aws_region, RefuseCalls("StartInstances", "UnauthorizedOperation", times=100))
    await fleet.people.workers.terminate(worker.id)
    await fleet.until_status(worker.id, TERMINATED, within=300)
    assert "license_leaked" in await fleet.audits(worker.id)


async def test_a_cml_that_never_responds_ends_with_a_leak_after_its_bounds(fleet: Fleet) -> None:
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    fleet.cml.boot = 1e6
    await fleet.people.workers.terminate(worker.id)
    await asyncio.sleep(2650)
    assert (await fleet.worker(worker.id)).status is TERMINATING
    await fleet.until_status(worker.id, TERMINATED, within=300)
    assert "license_leaked" in await fleet.audits(worker.id)


async def test_a_hold_stops_the_clock(fleet: Fleet) -> None:
    """worker-lifecycle.md#terminating: its bounds are without time on hold."""
    await fleet.start()
    worker = await stopped_and_licensed(fleet)
    fleet.cml.boot = 600
    await fleet.people.workers.terminate(worker.id)
    await fleet.until(lambda: fleet.machine(worker).state is InstanceState.RUNNING, "started", within=300)
    await fleet.people.workers.hold(worker.id, HoldRequest(reason="look first"))
    await asyncio.sleep(4 * 3600)
    assert (await fleet.worker(worker.id)).status is TERMINATING
    assert fleet.machine(worker).state is InstanceState.RUNNING
    await fleet.people.workers.release(worker.id)
    ended = await fleet.until_status(worker.id, TERMINATED, within=900)
    assert ended.license_status is LicenseStatus.DEREGISTERED


async def test_at_most_three_instances_of_a_region_are_started_at_once(fleet: Fleet) -> None:
    await fleet.start()
    workers = [await stopped_and_licensed(fleet, f"w{number}") for number in range(5)]
    most = 0
    for worker in workers:
        await fleet.people.workers.terminate(worker.id)

    async def all_ended() -> bool:
        nonlocal most
        up = [fleet.machine(worker).state for worker in workers]
        most = max(most, sum(state in (InstanceState.PENDING, InstanceState.RUNNING) for state in up))
        return all([(await fleet.worker(worker.id)).status is TERMINATED for worker in workers])

    await fleet.until(all_ended, "all are terminated", within=3600)
    assert most == 3
    assert fleet.cml.licensed() == []


async def test_another_token_is_really_registered(fleet: Fleet) -> None:
    """licenses.md: an explicit registration with another token deregisters and registers at CML."""
    await fleet.start()
    worker = await fleet.running(license_token="good-token")
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    server = fleet.cml_of(worker)
    server.good_token = "better-token"
    await fleet.people.workers.license(worker.id, ANOTHER_TOKEN)

    async def done() -> bool:
        now = await fleet.worker(worker.id)
        return now.pending_license_operation is None and now.license_status is LicenseStatus.REGISTERED

    await fleet.until(done, "registered anew", within=300)
    assert (server.calls["deregister"], server.calls["register"]) == (1, 2)
    await fleet.people.workers.license(worker.id, ANOTHER_TOKEN)
    await asyncio.sleep(120)
    assert (server.calls["deregister"], server.calls["register"]) == (1, 2), "the same token needs no call"


async def test_with_license_on_stop_a_license_is_free_while_its_worker_is_stopped(fleet: Fleet) -> None:
    """worker-lifecycle.md#stopping: LICENSE_ON_STOP=release; the token stays, and it is registered again on start."""
    await fleet.start()
    await fleet.change_settings(idle={"license_on_stop": "release"})
    await asyncio.sleep(60)
    worker = await fleet.running(license_token="good-token")
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    await fleet.people.workers.stop(worker.id)
    stopped = await fleet.until_status(worker.id, STOPPED, within=300)
    assert (stopped.license_status, stopped.has_license_token) == (LicenseStatus.UNREGISTERED, True)
    assert fleet.cml.licensed() == []
    await fleet.people.workers.start(worker.id)
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    server = fleet.cml_of(worker)
    server.hanging.add("deregister")
    await fleet.people.workers.stop(worker.id)
    await fleet.until_status(worker.id, STOPPED, within=300)
    kept = await fleet.worker(worker.id)
    assert kept.license_status is LicenseStatus.REGISTERED
    assert "license_leaked" not in await fleet.audits(worker.id)
