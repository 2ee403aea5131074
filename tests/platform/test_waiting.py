"""Workers that wait for something outside LCM: for minutes, for days, and never without saying so.

Reference: worker-lifecycle.md#launch-errors and worker-lifecycle.md#waiting.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.simulated.faults import LackCapacity, OmitInstanceType, RefuseCalls, RejectCredentials
from lcm.model.access import Role
from lcm.model.system import SystemHealth
from lcm.model.worker.conditions import ConditionType, find_condition, is_condition_true
from lcm.model.worker.requests import LicenseRequest
from lcm.model.worker.status import LicenseOperation, LicenseStatus, WorkerStatus
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM, worker_urgency
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.system import ControllerHealth
    from lcm.model.worker.record import Worker

HERE = "eu-west-1"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
LIMIT = 30 * MINUTE
CODES = ["RequestExpired", "ExpiredToken", "AuthFailure", "SignatureDoesNotMatch", "InvalidClientTokenId"]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as platform:
        await platform.start()
        yield platform


def why(worker: Worker, kind: ConditionType) -> str:
    """The reason of a condition, if it is true."""
    found = find_condition(worker.conditions, kind)
    return found.reason if found is not None and is_condition_true(worker.conditions, kind) else ""


async def stopped_worker(fleet: Fleet) -> Worker:
    worker = await fleet.running()
    await fleet.people.workers.stop(worker.id)
    return await fleet.until_status(worker.id, WorkerStatus.STOPPED)


# Credentials and clocks


@pytest.mark.parametrize("code", CODES)
async def test_a_launch_whose_caller_is_not_known_is_repeated(fleet: Fleet, code: str) -> None:
    fleet.world.inject_fault(HERE, RefuseCalls("RunInstances", code, 3))
    worker = await fleet.create()
    await fleet.until(lambda: fleet.calls("RunInstances") == 1, "the first call is refused", within=60)
    await asyncio.sleep(0.5)
    assert why(await fleet.worker(worker.id), ConditionType.WAITING) == "NotAuthenticated"
    worker = await fleet.until_ready(worker.id)
    assert worker.launch_attempt == 1, "nobody has judged it, so it is the same attempt"
    assert not why(worker, ConditionType.WAITING)
    assert await fleet.steps(worker.id) == ["PENDING", "PROVISIONING", "STARTING", "RUNNING"]


@pytest.mark.parametrize("code", CODES)
async def test_a_start_whose_caller_is_not_known_is_repeated(fleet: Fleet, code: str) -> None:
    worker = await stopped_worker(fleet)
    before = await fleet.steps(worker.id)
    fleet.world.inject_fault(HERE, RefuseCalls("StartInstances", code, 5))
    await fleet.people.workers.start(worker.id)
    await fleet.until(lambda: fleet.calls("StartInstances") == 3, "it is tried again", within=300)
    await asyncio.sleep(0.5)
    waiting = await fleet.worker(worker.id)
    assert (waiting.status, why(waiting, ConditionType.WAITING)) == (WorkerStatus.STOPPED, "NotAuthenticated")
    worker = await fleet.until_ready(worker.id)
    assert (await fleet.steps(worker.id))[len(before) :] == ["STARTING", "STOPPED", "STARTING", "RUNNING"]


@pytest.mark.parametrize("operation", ["StopInstances", "TerminateInstances"])
async def test_an_end_whose_caller_is_not_known_is_repeated(fleet: Fleet, operation: str) -> None:
    worker = await fleet.running()
    fleet.world.inject_fault(HERE, RefuseCalls(operation, "ExpiredToken", 3))
    if operation == "StopInstances":
        await fleet.people.workers.stop(worker.id)
    else:
        await fleet.people.workers.terminate(worker.id)
    await fleet.until(lambda: fleet.calls(operation) == 2, "it is tried again", within=60)
    await asyncio.sleep(0.2)
    assert why(await fleet.worker(worker.id), ConditionType.WAITING) == "NotAuthenticated"
    end = WorkerStatus.STOPPED if operation == "StopInstances" else WorkerStatus.TERMINATED
    ended = await fleet.until_status(worker.id, end)
    assert end is WorkerStatus.TERMINATED or not why(ended, ConditionType.WAITING)


async def test_a_morning_without_credentials_fails_nobody(fleet: Fleet) -> None:
    """All calls are rejected for half an hour, while workers are launched, started and stopped."""
    stopped = await stopped_worker(fleet)
    running = await fleet.running("bravo")
    fleet.world.inject_fault(HERE, RejectCredentials("RequestExpired", 2 * LIMIT))
    await fleet.people.workers.start(stopped.id)
    await fleet.people.workers.stop(running.id)
    created = await fleet.create("charlie")
    await asyncio.sleep(LIMIT + 5 * MINUTE)
    for each in (stopped, created):
        worker = await fleet.worker(each.id)
        assert why(worker, ConditionType.WAITING), worker.name
        assert why(worker, ConditionType.STUCK) == "StillWaiting", worker.name
        assert worker_urgency(worker) <= LAST_WORKER_PROBLEM
    await asyncio.sleep(LIMIT)
    await fleet.until_ready(stopped.id, within=HOUR)
    await fleet.until_ready(created.id, within=HOUR)
    await fleet.until_status(running.id, WorkerStatus.STOPPED, within=HOUR)
    for each in (stopped, running, created):
        assert "FAILED" not in await fleet.steps(each.id)
        after = await fleet.worker(each.id)
        assert not why(after, ConditionType.STUCK) + why(after, ConditionType.WAITING)


async def test_a_start_that_nobody_could_follow_is_made_again(fleet: Fleet) -> None:
    """The call was lost and then EC2 could not be read for longer than STARTING_TIMEOUT: that is no failed start."""
    worker = await stopped_worker(fleet)
    fleet.world.inject_fault(HERE, RefuseCalls("StartInstances", "InternalError", 1))
    await fleet.people.workers.start(worker.id)
    await fleet.until(lambda: fleet.calls("StartInstances") == 1, "the first call fails", within=60)
    fleet.world.inject_fault(HERE, RejectCredentials("ExpiredToken", 20 * MINUTE))
    await fleet.until_ready(worker.id)
    assert "FAILED" not in await fleet.steps(worker.id)


async def test_a_permission_that_is_missing_is_still_a_refusal(fleet: Fleet) -> None:
    worker = await stopped_worker(fleet)
    fleet.world.inject_fault(HERE, RefuseCalls("StartInstances", "UnauthorizedOperation", 1))
    await fleet.people.workers.start(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.FAILED, within=60)


# Capacity


async def test_hours_without_capacity_to_start_do_not_flap(fleet: Fleet) -> None:
    worker = await stopped_worker(fleet)
    before = await fleet.steps(worker.id)
    fleet.world.inject_fault(HERE, LackCapacity(6 * HOUR))
    await fleet.people.workers.start(worker.id)
    await asyncio.sleep(5 * MINUTE)
    waiting = await fleet.worker(worker.id)
    assert waiting.status is WorkerStatus.STOPPED
    assert why(waiting, ConditionType.WAITING) == "CapacityLacking"
    assert not why(waiting, ConditionType.STUCK)
    await asyncio.sleep(LIMIT)
    waiting = await fleet.worker(worker.id)
    assert why(waiting, ConditionType.STUCK) == "StillWaiting"
    assert "no capacity" in (find_condition(waiting.conditions, ConditionType.STUCK) or waiting.conditions[0]).message
    await asyncio.sleep(5 * HOUR)
    steps = (await fleet.steps(worker.id))[len(before) :]
    assert steps == ["STARTING", "STOPPED"], f"{len(steps)} transitions"
    assert 30 < fleet.calls("StartInstances") < 80, "every ten minutes, at first more often"
    worker = await fleet.until_ready(worker.id, within=HOUR)
    assert (await fleet.steps(worker.id))[len(before) :] == ["STARTING", "STOPPED", "STARTING", "RUNNING"]
    assert not why(worker, ConditionType.STUCK) + why(worker, ConditionType.WAITING)


async def test_a_person_who_asks_again_does_not_wait_for_the_next_try(fleet: Fleet) -> None:
    worker = await stopped_worker(fleet)
    fleet.world.inject_fault(HERE, LackCapacity(HOUR))
    await fleet.people.workers.start(worker.id)
    await asyncio.sleep(HOUR + 1)
    await fleet.people.workers.stop(worker.id)
    await asyncio.sleep(5)
    assert not why(await fleet.worker(worker.id), ConditionType.STUCK), "it is as desired"
    calls = fleet.calls("StartInstances")
    await fleet.people.workers.start(worker.id)
    await fleet.until(lambda: fleet.calls("StartInstances") == calls + 1, "at once", within=5)


async def test_a_launch_that_waits_for_capacity_is_stuck_after_the_limit(fleet: Fleet) -> None:
    fleet.world.inject_fault(HERE, LackCapacity(HOUR))
    worker = await fleet.create()
    await asyncio.sleep(LIMIT - MINUTE)
    waiting = await fleet.worker(worker.id)
    assert (why(waiting, ConditionType.WAITING), why(waiting, ConditionType.STUCK)) == ("CapacityLacking", "")
    await asyncio.sleep(3 * MINUTE)
    waiting = await fleet.worker(worker.id)
    assert why(waiting, ConditionType.STUCK) == "StillWaiting"
    assert waiting.status is WorkerStatus.PENDING
    await fleet.until_ready(worker.id, within=4 * HOUR)
    assert not why(await fleet.worker(worker.id), ConditionType.STUCK)


async def test_a_new_leader_knows_how_long_a_worker_has_waited(fleet: Fleet) -> None:
    fleet.world.inject_fault(HERE, LackCapacity(3 * HOUR))
    worker = await fleet.create()
    await asyncio.sleep(LIMIT - 5 * MINUTE)
    fleet.wires["one"].kill()
    await fleet.start("two")
    await asyncio.sleep(8 * MINUTE)
    assert why(await fleet.worker(worker.id), ConditionType.STUCK) == "StillWaiting"


async def test_a_zone_without_the_type_is_left_for_the_next_subnet(fleet: Fleet) -> None:
    fleet.world.inject_fault(HERE, OmitInstanceType("t3.small", "subnet-a"))
    worker = await fleet.until_ready((await fleet.create()).id, within=10 * MINUTE)
    assert fleet.machine(worker).subnet_id == "subnet-b"
    assert worker.launch_attempt == 2
    assert await fleet.steps(worker.id) == ["PENDING", "PROVISIONING", "STARTING", "RUNNING"]


async def test_a_zone_without_the_type_is_not_tried_again_while_the_other_has_no_capacity(fleet: Fleet) -> None:
    fleet.world.inject_fault(HERE, OmitInstanceType("t3.small", "subnet-a"))
    fleet.world.inject_fault(HERE, LackCapacity(10 * MINUTE))
    worker = await fleet.until_ready((await fleet.create()).id)
    assert fleet.machine(worker).subnet_id == "subnet-b"
    assert "FAILED" not in await fleet.steps(worker.id)


async def test_no_zone_with_the_type_is_a_failure_that_lists_them(fleet: Fleet) -> None:
    fleet.world.inject_fault(HERE, OmitInstanceType("t3.small"))
    worker = await fleet.until_status((await fleet.create()).id, WorkerStatus.FAILED, within=10 * MINUTE)
    reason = [entry.reason async for entry in fleet.people.workers.history(worker.id)][-1]
    assert "t3.small" in reason
    assert "subnet-a" in reason
    assert "subnet-b" in reason
    assert not why(worker, ConditionType.WAITING)
    calls = fleet.calls("RunInstances")
    fleet.world.regions[HERE].faults.omitted_types.clear()
    await fleet.people.workers.retry(worker.id)
    await fleet.until_ready(worker.id, within=10 * MINUTE)
    assert fleet.calls("RunInstances") == calls + 1


# Licenses


async def test_a_license_that_is_pending_for_a_week_is_stuck(fleet: Fleet) -> None:
    """CML retries for ever when it cannot reach the license server, and says neither yes nor no."""
    worker = await fleet.create(license_token="good-token")
    await fleet.until(lambda: bool(fleet.cml.by_machine), "CML is up", within=HOUR)
    (server,) = fleet.cml.by_machine.values()
    server.registers_in = 7 * DAY
    await fleet.until_ready(worker.id)
    await asyncio.sleep(20 * MINUTE)
    waiting = await fleet.worker(worker.id)
    assert waiting.license_status is LicenseStatus.REGISTERING
    assert (why(waiting, ConditionType.WAITING), why(waiting, ConditionType.STUCK)) == ("LicensePending", "")
    await asyncio.sleep(15 * MINUTE)
    waiting = await fleet.worker(worker.id)
    assert why(waiting, ConditionType.STUCK) == "StillWaiting"
    assert worker_urgency(waiting) <= LAST_WORKER_PROBLEM
    assert waiting.ready, "lablets that need no license may still use it"
    await asyncio.sleep(3 * HOUR)
    assert why(await fleet.worker(worker.id), ConditionType.STUCK) == "StillWaiting"
    fleet.cml._settle(server, "COMPLETED", "")
    await asyncio.sleep(5 * MINUTE)
    done = await fleet.worker(worker.id)
    assert done.license_status is LicenseStatus.REGISTERED
    assert not why(done, ConditionType.STUCK) + why(done, ConditionType.WAITING)


async def test_a_license_that_cannot_be_given_back_is_stuck(fleet: Fleet) -> None:
    """CML still tries to register it, and deregisters nothing until that has ended."""
    worker = await fleet.create(license_token="good-token")
    await fleet.until(lambda: bool(fleet.cml.by_machine), "CML is up", within=HOUR)
    (server,) = fleet.cml.by_machine.values()
    server.registers_in = 7 * DAY
    await fleet.until_ready(worker.id)
    await asyncio.sleep(5 * MINUTE)
    await fleet.people.workers.license(worker.id, LicenseRequest(operation=LicenseOperation.DEREGISTER))
    await asyncio.sleep(LIMIT + 5 * MINUTE)
    waiting = await fleet.worker(worker.id)
    assert waiting.pending_license_operation is not None
    assert (why(waiting, ConditionType.WAITING), why(waiting, ConditionType.STUCK)) == (
        "LicensePending",
        "StillWaiting",
    )
    fleet.cml._settle(server, "COMPLETED", "")
    await asyncio.sleep(5 * MINUTE)
    done = await fleet.worker(worker.id)
    assert done.license_status is LicenseStatus.DEREGISTERED
    assert not why(done, ConditionType.STUCK) + why(done, ConditionType.WAITING)


# Sight


async def reported(fleet: Fleet) -> ControllerHealth:
    response = await fleet.plane.ask("GET", "/api/system", role=Role.VIEWER)
    (known,) = SystemHealth.model_validate(response.json()).controllers
    return known


@pytest.fixture
async def reporting() -> AsyncIterator[Fleet]:
    """A fleet whose controller reports as often as in production."""
    async with a_fleet() as platform:
        await platform.start()
        yield platform


async def test_a_controller_without_credentials_is_not_shown_as_fine(reporting: Fleet) -> None:
    """controllers.md#admin-routes: `/ready`, health, System and a metric say that it is blind."""
    fleet = reporting
    controller = fleet.controllers["one"]
    await asyncio.sleep(2 * MINUTE)
    assert controller.readiness() == []
    assert "blind_regions" not in controller.health()
    fleet.world.inject_fault(HERE, RejectCredentials("ExpiredToken", HOUR))
    await asyncio.sleep(3 * MINUTE)
    blind = controller.health()["blind_regions"]
    assert isinstance(blind, dict)
    assert list(blind) == [HERE]
    assert "ExpiredToken" in blind[HERE]
    assert controller.readiness() == [], "it works in the other region"
    known = await reported(fleet)
    assert known.verdict == "degraded"
    assert f"it has not been able to read EC2 in {HERE}" in known.said
    fleet.world.inject_fault("us-east-1", RejectCredentials("ExpiredToken", HOUR))
    await asyncio.sleep(3 * MINUTE)
    assert [reason for reason in controller.readiness() if "EC2 cannot be read" in reason]
    await asyncio.sleep(HOUR)
    assert controller.readiness() == []
    assert "blind_regions" not in controller.health()
    known = await reported(fleet)
    assert known.verdict == "healthy"
