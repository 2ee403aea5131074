"""A controller dies at each step of its work, and another one takes over: nothing happens twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.simulated.faults import HideNewInstances, LoseResponses, RefuseCalls, ThrottleCalls
from lcm.core import clock
from lcm.model.worker.requests import HoldRequest, UpdateWorkerRequest
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LAUNCH_STEPS = [
    ("before", "/launch"),
    ("after", "/launch"),
    ("before", "/status"),
    ("after", "/status"),
]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet() as fleet:
        yield fleet


@pytest.mark.parametrize(("when", "request_"), LAUNCH_STEPS)
async def test_a_crash_in_the_launch_leaves_one_instance(fleet: Fleet, when: str, request_: str) -> None:
    """Never two instances for one worker, and none forgotten, whatever crashes in between.

    Reference: worker-lifecycle.md#launching.
    """
    await fleet.start("one")
    await fleet.start("two")
    await asyncio.sleep(30)
    fleet.wires["one"].die(when, request_)
    fleet.wires["two"].die(when, request_) if fleet.controllers["two"].is_leader else None
    worker = await fleet.create()
    worker = await fleet.until_ready(worker.id, within=900)
    assert fleet.world.live_instances() == [worker.instance_id]
    assert fleet.wires["one"].dead


async def test_a_stop_that_waits_too_long_for_the_rate_limit_is_decided_again(fleet: Fleet) -> None:
    """controllers.md#authorization: meanwhile a person wants it to run, and nothing is stopped."""
    await fleet.start()
    worker = await fleet.running()
    buckets = fleet.providers["one"]._buckets[worker.aws_region]
    others = [asyncio.create_task(buckets.take("StopInstances", 1)) for _ in range(45 + 50)]
    await asyncio.sleep(0)
    await fleet.people.workers.stop(worker.id)
    await asyncio.sleep(3)
    await fleet.people.workers.start(worker.id)
    await asyncio.gather(*others)
    await asyncio.sleep(60)
    assert fleet.calls("StopInstances") == 0
    assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING


async def test_a_lost_reply_to_the_launch_leaves_one_instance(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: a timeout never moves the attempt on; the replay has the same token."""
    await fleet.start()
    fleet.world.inject_fault("eu-west-1", LoseResponses(1))
    fleet.world.inject_fault("eu-west-1", HideNewInstances(120))
    worker = await fleet.running()
    assert fleet.world.live_instances() == [worker.instance_id]
    assert worker.launch_attempt == 1


async def test_an_instance_is_found_although_it_is_to_be_terminated_before_anybody_knew_of_it(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: PENDING with a stored intent settles it first, whatever is desired."""
    await fleet.start("one")
    await asyncio.sleep(30)
    fleet.world.inject_fault("eu-west-1", HideNewInstances(100))
    fleet.wires["one"].die("before", "/status")
    worker = await fleet.create()
    await fleet.until(lambda: len(fleet.world.live_instances()) == 1, "launched", within=60)
    await fleet.people.workers.terminate(worker.id)
    await fleet.start("two")
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=1200)
    assert fleet.world.live_instances() == []
    assert fleet.calls("RunInstances") == 1
    assert "PROVISIONING" in await fleet.steps(worker.id)


async def test_what_was_never_launched_ends_only_when_that_is_certain(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: absent until 5 minutes after the last call's deadline."""
    await fleet.start("one")
    await asyncio.sleep(30)
    fleet.wires["one"].die("after", "/launch")
    worker = await fleet.create()
    await fleet.until(lambda: fleet.wires["one"].dead, "dead", within=60)
    await fleet.people.workers.terminate(worker.id)
    await fleet.start("two")
    await asyncio.sleep(240)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.PENDING
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=300)
    assert fleet.calls("RunInstances") == 0


async def test_a_definite_refusal_fails_and_a_retry_is_another_attempt(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: bad parameters, no permission, quota: FAILED; retry: the next attempt."""
    await fleet.start()
    fleet.world.inject_fault("eu-west-1", RefuseCalls("RunInstances", "VcpuLimitExceeded"))
    worker = await fleet.create()
    worker = await fleet.until_status(worker.id, WorkerStatus.FAILED, within=120)
    assert worker.launch_intent is None
    await fleet.people.workers.retry(worker.id)
    worker = await fleet.until_ready(worker.id, within=300)
    assert worker.launch_attempt == 2


async def test_a_refusal_after_an_unknown_end_waits_until_it_is_certain(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: the first call may have launched; FAILED would forget its instance."""
    await fleet.start()
    fleet.world.inject_fault("eu-west-1", LoseResponses(1))
    fleet.world.inject_fault("eu-west-1", HideNewInstances(200))
    worker = await fleet.create()
    await fleet.until(lambda: len(fleet.world.live_instances()) == 1, "launched, but not recorded", within=60)
    fleet.world.inject_fault("eu-west-1", RefuseCalls("RunInstances", "UnauthorizedOperation", 100))
    worker = await fleet.until_ready(worker.id, within=1200)
    assert fleet.world.live_instances() == [worker.instance_id]
    assert "FAILED" not in await fleet.steps(worker.id)


async def test_no_capacity_tries_the_next_subnet(fleet: Fleet) -> None:
    """Capacity: RETRY, stay PENDING, a condition says so; only a new attempt may change the subnet.

    Reference: worker-lifecycle.md#launching.
    """
    await fleet.start()
    fleet.world.inject_fault("eu-west-1", RefuseCalls("RunInstances", "InsufficientInstanceCapacity", 3))
    worker = await fleet.running()
    assert worker.launch_attempt == 4
    assert fleet.machine(worker).subnet_id == "subnet-b"
    assert await fleet.steps(worker.id) == ["PENDING", "PROVISIONING", "STARTING", "RUNNING"]


async def test_throttling_is_waited_out_in_the_same_attempt(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: throttling: RETRY."""
    await fleet.start()
    fleet.world.inject_fault("eu-west-1", ThrottleCalls("RunInstances", 3))
    assert (await fleet.running()).launch_attempt == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("request_", ["/status", "/license-status"])
async def test_after_a_crash_in_the_termination_the_license_is_deregistered(
    fleet: Fleet, when: str, request_: str
) -> None:
    """worker-lifecycle.md#terminating: a registered license is deregistered first, by whichever leader."""
    await fleet.start("one")
    worker = await fleet.running(license_token="good-token")

    async def registered() -> bool:
        return (await fleet.worker(worker.id)).license_status is LicenseStatus.REGISTERED

    await fleet.until(registered, "registered", within=300)
    await fleet.start("two")
    fleet.wires["one"].die(when, request_)
    await fleet.people.workers.terminate(worker.id)
    ended = await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=900)
    assert fleet.wires["one"].dead
    assert fleet.world.live_instances() == []
    assert fleet.cml.licensed() == []
    assert "license_leaked" not in await fleet.audits(ended.id)


async def test_a_license_that_cannot_be_deregistered_is_reported(fleet: Fleet) -> None:
    """A license is leaked whenever its instance ends without a confirmed deregistration; never silent.

    Reference: worker-lifecycle.md#terminating.
    """
    await fleet.start()
    worker = await fleet.running(license_token="good-token")
    await fleet.until(lambda: fleet.cml.licensed() == [worker.instance_id], "registered", within=300)
    await asyncio.sleep(120)
    fleet.cml_of(worker).hanging.update({"deregister"})
    began = asyncio.get_running_loop().time()
    await fleet.people.workers.terminate(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=900)
    assert asyncio.get_running_loop().time() - began >= 120
    assert (await fleet.audits(worker.id)).count("license_leaked") == 1


async def test_a_hold_stops_what_is_about_to_happen_and_a_release_lets_it_go_on(fleet: Fleet) -> None:
    """worker-lifecycle.md#hold: hold stops cloud and CML changes; observing and explaining go on."""
    await fleet.start()
    worker = await fleet.running()
    await fleet.people.workers.hold(worker.id, HoldRequest(reason="an exam runs on it"))
    await fleet.people.workers.stop(worker.id)
    await asyncio.sleep(600)
    held = await fleet.worker(worker.id)
    assert (held.status, fleet.calls("StopInstances")) == (WorkerStatus.RUNNING, 0)
    explained = await fleet.people.workers.explain(worker.id)
    assert explained.decision is not None
    assert explained.decision.rule == "held"
    await fleet.people.workers.release(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=300)


async def test_a_fleet_hold_counts_before_the_next_list(fleet: Fleet) -> None:
    """worker-lifecycle.md#hold: a hold is checked before each action."""
    await fleet.start()
    await asyncio.sleep(40)
    await fleet.people.fleet.hold(HoldRequest(reason="stop!"))
    worker = await fleet.create()
    await asyncio.sleep(600)
    held = await fleet.worker(worker.id)
    assert (held.status, held.launch_intent) == (WorkerStatus.PENDING, None)
    assert fleet.calls("RunInstances") == 0
    assert sum(line.startswith("GET /api/internal/workers/") for line in fleet.wires["one"].sent) < 60
    await fleet.people.fleet.release()
    await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=300)


async def test_nothing_is_stopped_after_the_request_was_withdrawn(fleet: Fleet) -> None:
    """No handler stops an instance unless STOPPED is desired, up to the moment of the call.

    Reference: worker-lifecycle.md#decisions.
    """
    await fleet.start()
    worker = await fleet.running()
    fleet.world.inject_fault("eu-west-1", ThrottleCalls("StopInstances", 1))
    await fleet.people.workers.stop(worker.id)
    await fleet.until(lambda: fleet.calls("StopInstances") == 1, "the first call is refused", within=60)
    # The next pass reads the worker; the second read is the one before the call.
    fleet.wires["one"].meanwhile("/context", lambda: fleet.people.workers.start(worker.id), spare=1)
    await fleet.until_ready(worker.id, within=300)
    assert fleet.calls("StopInstances") == 1
    assert fleet.machine(await fleet.worker(worker.id)).id == worker.instance_id


async def test_a_change_during_the_launch_does_not_lose_its_instance(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: on a version conflict re-read and write the same id again."""
    await fleet.start()
    await asyncio.sleep(30)
    worker = await fleet.create(desired_status="STOPPED")
    renamed = UpdateWorkerRequest(name="renamed")
    fleet.wires["one"].meanwhile("/status", lambda: fleet.people.workers.patch(worker.id, renamed))
    await fleet.people.workers.start(worker.id)
    worker = await fleet.until_ready(worker.id, within=300)
    assert (worker.name, worker.launch_attempt, fleet.calls("RunInstances")) == ("renamed", 1, 1)
    assert fleet.world.live_instances() == [worker.instance_id]


async def test_what_was_seen_before_our_own_write_decides_nothing(fleet: Fleet) -> None:
    """An observation whose call began before the worker's last status write decides nothing.

    Reference: worker-lifecycle.md#decisions.
    """
    reconciler = await fleet.start()
    worker = await fleet.running()
    region = reconciler.regions[worker.aws_region]
    memory = reconciler._memories.get(worker)
    age = (clock.now() - worker.status_since).total_seconds()
    assert memory.changed_at >= clock.boottime() - age - 0.5
    assert region.last_observation(worker, memory.changed_at) is not None


async def test_under_a_fleet_hold_a_start_is_not_even_begun(fleet: Fleet) -> None:
    """worker-lifecycle.md#hold: nothing new is started, and the record does not change."""
    await fleet.start()
    worker = await fleet.running()
    await fleet.people.workers.stop(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=300)
    await asyncio.sleep(40)
    await fleet.people.fleet.hold(HoldRequest(reason="stop!"))
    await fleet.people.workers.start(worker.id)
    await asyncio.sleep(120)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.STOPPED
    assert fleet.calls("StartInstances") == 0


async def test_a_new_request_between_the_write_and_the_call_is_respected(fleet: Fleet) -> None:
    """No handler stops an instance unless STOPPED is desired, also after STOPPING was written.

    Reference: worker-lifecycle.md#decisions.
    """
    await fleet.start()
    worker = await fleet.running()
    wire = fleet.wires["one"]

    async def written() -> None:
        wire.meanwhile("/context", lambda: fleet.people.workers.start(worker.id))

    wire.meanwhile("/status", written)
    await fleet.people.workers.stop(worker.id)
    await asyncio.sleep(5)
    await fleet.until_ready(worker.id, within=300)
    assert "STOPPING" in await fleet.steps(worker.id)
    assert fleet.calls("StopInstances") == 0
