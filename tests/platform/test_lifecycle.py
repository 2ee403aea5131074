"""The lifecycle of a worker, on the real control plane, the simulated cloud and virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.simulated.faults import ExternalAction
from lcm.model.worker.requests import LicenseRequest
from lcm.model.worker.status import LicenseOperation, LicenseStatus, WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet(report_interval=600.0) as fleet:
        await fleet.start()
        yield fleet


async def test_a_worker_is_launched_and_becomes_ready(fleet: Fleet) -> None:
    """Launched, followed until it runs; worker-lifecycle.md#statuses: ready when CML responds.

    Reference: worker-lifecycle.md#launching, worker-lifecycle.md#deadlines, worker-lifecycle.md#decisions,
    worker-lifecycle.md#running.
    """
    worker = await fleet.create()
    worker = await fleet.until_ready(worker.id, within=300)
    assert await fleet.steps(worker.id) == ["PENDING", "PROVISIONING", "STARTING", "RUNNING"]
    assert fleet.calls("RunInstances") == 1
    assert worker.instance_id in fleet.world.live_instances()
    assert worker.public_ip == fleet.machine(worker).public_ip
    assert "provisioned" in await fleet.audits(worker.id)


async def test_the_first_cloud_call_follows_at_once(fleet: Fleet) -> None:
    """controllers.md#watch, controllers.md: a user's change overtakes a resync and waits for nothing."""
    await asyncio.sleep(60)
    await fleet.create()
    waited = await fleet.until(lambda: fleet.calls("RunInstances") == 1, "launched", within=30)
    assert waited <= 2


async def test_stop_start_and_terminate(fleet: Fleet) -> None:
    """worker-lifecycle.md#running, worker-lifecycle.md#stopping, worker-lifecycle.md#terminating."""
    worker = await fleet.running()
    await fleet.people.workers.stop(worker.id)
    worker = await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=300)
    assert worker.public_ip is None
    await fleet.people.workers.start(worker.id)
    worker = await fleet.until_ready(worker.id, within=300)
    await fleet.people.workers.terminate(worker.id)
    worker = await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=300)
    assert fleet.world.live_instances() == []
    assert await fleet.steps(worker.id) == [
        "PENDING", "PROVISIONING", "STARTING", "RUNNING", "STOPPING", "STOPPED", "STARTING", "RUNNING",
        "TERMINATING", "TERMINATED",
    ]  # fmt: skip
    stats = fleet.controllers["one"].stats()
    assert (stats["provisioned_count"], stats["started_count"], stats["stopped_count"]) == (1, 2, 1)
    assert stats["terminated_count"] == 1


async def test_a_license_is_registered_and_deregistered(fleet: Fleet) -> None:
    """worker-lifecycle.md#running, worker-lifecycle.md#licenses, worker-lifecycle.md#terminating."""
    worker = await fleet.running(license_token="good-token")
    await fleet.until(lambda: fleet.cml.licensed() == [worker.instance_id], "registered", within=300)

    async def known() -> bool:
        return (await fleet.worker(worker.id)).license_status is LicenseStatus.REGISTERED

    await fleet.until(known, "the record is updated", within=300)
    await fleet.people.workers.terminate(worker.id)
    worker = await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=600)
    assert fleet.cml.licensed() == []
    assert worker.license_status is LicenseStatus.DEREGISTERED
    assert "license_leaked" not in await fleet.audits(worker.id)


async def test_a_bad_token_fails_once_and_is_not_tried_again(fleet: Fleet) -> None:
    """CML accepts a bad token and reports the failure later; it is not repeated without a new request.

    Reference: worker-lifecycle.md#running.
    """
    worker = await fleet.running(license_token="bad-token")

    async def failed() -> bool:
        return (await fleet.worker(worker.id)).license_status is LicenseStatus.FAILED

    await fleet.until(failed, "failed", within=600)
    asked = fleet.cml_of(worker).calls["register"]
    await asyncio.sleep(1800)
    assert fleet.cml_of(worker).calls["register"] == asked == 1
    token = LicenseRequest(operation=LicenseOperation.REGISTER, token="good-token")  # type: ignore[arg-type]
    await fleet.people.workers.license(worker.id, token)
    await fleet.until(lambda: fleet.cml.licensed() == [worker.instance_id], "registered", within=300)


async def test_a_deregistration_is_executed_and_withdraws_the_token(fleet: Fleet) -> None:
    """worker-lifecycle.md#licenses."""
    worker = await fleet.running(license_token="good-token")
    await fleet.until(lambda: fleet.cml.licensed() == [worker.instance_id], "registered", within=300)
    await fleet.people.workers.license(worker.id, LicenseRequest(operation=LicenseOperation.DEREGISTER))

    async def deregistered() -> bool:
        return (await fleet.worker(worker.id)).license_status is LicenseStatus.DEREGISTERED

    await fleet.until(deregistered, "deregistered", within=300)
    assert fleet.cml.licensed() == []
    await asyncio.sleep(900)
    assert fleet.cml.licensed() == []
    assert not (await fleet.worker(worker.id)).has_license_token


async def test_an_instance_that_is_stopped_from_outside_is_started_again(fleet: Fleet) -> None:
    """worker-lifecycle.md#running: drift to STOPPED with desired RUNNING is restored."""
    worker = await fleet.running()
    fleet.disturb(ExternalAction.STOP, worker)
    await asyncio.sleep(300)
    assert (await fleet.worker(worker.id)).ready
    assert (await fleet.steps(worker.id))[-3:] == ["STOPPED", "STARTING", "RUNNING"]
    assert fleet.calls("StartInstances") == 1


async def test_the_fourth_stop_from_outside_within_an_hour_is_left_alone(fleet: Fleet) -> None:
    """worker-lifecycle.md#running: three times an hour, then Stuck."""
    worker = await fleet.running()
    for _ in range(4):
        fleet.disturb(ExternalAction.STOP, worker)
        await asyncio.sleep(400)
        worker = await fleet.worker(worker.id)
    assert worker.status is WorkerStatus.STOPPED
    assert [str(condition.type) for condition in worker.conditions if condition.status == "True"] == ["NoKvm", "Stuck"]
    await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=3600)


async def test_a_stop_from_outside_is_accepted_where_that_is_the_policy(fleet: Fleet) -> None:
    """worker-lifecycle.md#running: DRIFT_POLICY=accept lets the desired status follow."""
    await fleet.change_settings(discovery={"drift_policy": "accept"})
    worker = await fleet.running()
    fleet.disturb(ExternalAction.STOP, worker)
    worker = await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=300)
    await asyncio.sleep(120)
    worker = await fleet.worker(worker.id)
    assert (worker.status, worker.desired_status) == ("STOPPED", "STOPPED")
    assert fleet.calls("StartInstances") == 0


async def test_a_termination_from_outside_is_recorded(fleet: Fleet) -> None:
    """discovery.md#orphans, worker-lifecycle.md#running: EC2 reports terminated; policy terminate."""
    worker = await fleet.running()
    fleet.disturb(ExternalAction.TERMINATE, worker)
    worker = await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=300)
    assert (worker.desired_status, worker.terminated_by) == ("RUNNING", "worker-controller")
    assert fleet.calls("TerminateInstances") == 0


async def test_a_lost_instance_is_replaced_where_that_is_the_policy(fleet: Fleet) -> None:
    """worker-lifecycle.md#running: RUNNING desired, instance not found: launch a new instance."""
    worker = await fleet.running(lost_instance_policy="replace")
    fleet.disturb(ExternalAction.TERMINATE, worker)
    await fleet.until_status(worker.id, WorkerStatus.PENDING, within=300)
    again = await fleet.until_ready(worker.id, within=600)
    assert again.instance_id != worker.instance_id
    assert fleet.world.live_instances() == [again.instance_id]
    assert again.launch_attempt == 2


async def test_a_drain_waits_for_nodes_and_then_stops(fleet: Fleet) -> None:
    """worker-lifecycle.md#stopping, worker-lifecycle.md#terminating."""
    worker = await fleet.running()
    await fleet.people.workers.drain(worker.id)
    await asyncio.sleep(120)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.DRAINING
    server = fleet.cml_of(worker)
    server.stats = replace(server.stats, running_nodes=0)
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=300)


async def test_a_steady_worker_writes_nothing_and_costs_one_call_a_cycle(fleet: Fleet) -> None:
    """AWS calls grow with pages; a steady fleet writes nothing but metrics.

    Reference: worker-lifecycle.md#running, cloud-and-cml.md.
    """
    worker = await fleet.running()
    await asyncio.sleep(600)
    before, described = await fleet.worker(worker.id), fleet.calls("DescribeInstances")
    await asyncio.sleep(300)
    after = await fleet.worker(worker.id)
    assert after.version == before.version
    assert fleet.calls("DescribeInstances") - described <= 2 * 11
