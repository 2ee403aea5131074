"""The flows of workers on the whole platform, in virtual time; `docs/seeds.md` lists which test covers what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from lcm.cloud.simulated.faults import ExternalAction, Outage, RefuseCalls
from lcm.cloud.types import InstanceState, LaunchParameters, RegionLaunchSettings
from lcm.cml.errors import CMLInvalidRequestError, CMLNotReadyError
from lcm.cml.types import CMLActivityEvent
from lcm.control_plane.records.kinds import LEADERSHIPS, TEMPLATES
from lcm.control_plane.store.port import Delete, Put
from lcm.controllers.worker.admin_api import controller_stats
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.decide.shared.instance import INSTANCE_NOT_FOUND
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig, WatchConfig
from lcm.model.access import Role
from lcm.model.fleet.state import LeadershipTerm
from lcm.model.worker.conditions import ConditionType, find_condition
from lcm.model.worker.requests import LicenseRequest
from lcm.model.worker.status import LicenseOperation, LicenseStatus, WorkerOrigin, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.running_workers import launched_by_hand, standing_workers, vanish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from lcm.model.worker.record import Worker

HERE, THERE = "eu-west-1", "us-east-1"
STOPPED = WorkerStatus.STOPPED


@pytest.fixture
async def platform() -> AsyncIterator[Fleet]:
    """A fleet without a controller."""
    async with a_fleet() as fleet:
        yield fleet


@pytest.fixture
async def fleet(platform: Fleet) -> Fleet:
    await platform.start()
    return platform


def hold_transitions(fleet: Fleet, on: bool) -> None:
    """Whether instances stay in their current state."""
    fleet.world.regions[HERE].faults.hold_transitions = on


def force(fleet: Fleet, worker: Worker, state: InstanceState) -> None:
    """EC2 reports this state from now on."""
    fleet.machine(worker).enter(state, fleet.world.time(), None)


def sent(fleet: Fleet, worker: Worker, controller: str = "one") -> list[str]:
    """The writes of a controller for a worker, in order, by the last segment of their path."""
    return [
        line.rpartition("/")[2]
        for line in fleet.wires[controller].sent
        if line.startswith("POST") and f"/{worker.id}/" in line
    ]


def counted(fleet: Fleet) -> dict[str, int]:
    return fleet.controllers["one"].stats()


def idle_soon(fleet: Fleet, worker: Worker) -> None:
    """A user was active a while ago, and nothing runs there now."""
    server = fleet.cml_of(worker)
    server.events = (CMLActivityEvent("start_lab", clock.now() - timedelta(minutes=5), "somebody"),)
    server.stats = replace(server.stats, running_nodes=0)


async def stopped_worker(fleet: Fleet, name: str = "alpha") -> Worker:
    worker = await fleet.running(name)
    await fleet.people.workers.stop(worker.id)
    return await fleet.until_status(worker.id, STOPPED, within=300)


async def until_license(fleet: Fleet, worker: Worker, status: LicenseStatus) -> Worker:
    async def reached() -> bool:
        return (await fleet.worker(worker.id)).license_status is status

    await fleet.until(reached, f"the license is {status}", within=300)
    return await fleet.worker(worker.id)


def skips(fleet: Fleet) -> float:
    labels = {"controller": "worker-controller", "result": "skip"}
    return fleet.registries["one"].get_sample_value("reconciliation_reconcile_total", labels) or 0.0


# worker-lifecycle.md: dispatch


async def test_what_is_terminated_is_skipped_with_a_warning(fleet: Fleet) -> None:
    """worker-lifecycle.md#decisions: a status that has no handler is logged, and the pass is a SKIP."""
    worker = await fleet.running()
    await fleet.people.workers.terminate(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=300)
    await asyncio.sleep(60)
    before = skips(fleet)
    with capture_logs() as logs:
        fleet.controllers["one"].trigger(worker.id)
        await asyncio.sleep(5)
    (logged,) = [entry for entry in logs if entry["event"] == "skipped"]
    assert (logged["log_level"], logged["worker"], logged["status"]) == ("warning", worker.id, "TERMINATED")
    assert skips(fleet) == before + 1


# worker-lifecycle.md: a launch


async def test_a_launch_is_made_of_template_region_image_and_tags(platform: Fleet) -> None:
    """worker-lifecycle.md#launching: size by template, the region's own, the newest image that matches, all tags."""
    platform.sites[HERE] = RegionLaunchSettings(
        HERE,
        subnet_ids=("subnet-b",),
        security_group_ids=("sg-1", "sg-2"),
        key_name="cml-workers",
        default_tags={"environment": "production", "team": "networking"},
    )
    now = clock.now()
    newest = platform.world.add_image(HERE, "cml-2.9.2", created_at=now + timedelta(days=1))
    platform.world.add_image(HERE, "cml-2.8.0", created_at=now - timedelta(days=9))
    platform.world.add_image(HERE, "cml-2.9.9", created_at=now + timedelta(days=2), state="pending")
    platform.world.add_image(HERE, "cml-2.9.9", created_at=now + timedelta(days=2), owner_id="999999999999")
    platform.world.add_image(HERE, "ubuntu", created_at=now + timedelta(days=2))
    await platform.start()
    worker = await platform.create("alpha", tags={"team": "labs"})
    worker = await platform.until_status(worker.id, WorkerStatus.PROVISIONING, within=60)
    machine = platform.machine(worker)
    assert (machine.instance_type, machine.image_id, machine.subnet_id) == ("t3.small", newest, "subnet-b")
    tags = dict(machine.tags)
    assert tags.pop("lcm:installation")
    assert tags == {
        "Name": "alpha",
        "template_name": "small",
        "cml-managed": "true",
        "environment": "production",
        "team": "labs",
        "lcm:worker_id": worker.id,
        "lcm:attempt": "1",
        "lcm:managed_by": "lcm",
    }
    assert worker.launch_intent is not None
    stored = LaunchParameters.from_json(worker.launch_intent.parameters)
    assert (stored.security_group_ids, stored.key_name) == (("sg-1", "sg-2"), "cml-workers")


async def test_a_launch_is_recorded_in_one_write_and_audited(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: the id and PROVISIONING together, then the audit, in this order; §10: counted."""
    await asyncio.sleep(40)
    worker = await fleet.create()
    worker = await fleet.until_status(worker.id, WorkerStatus.PROVISIONING, within=60)
    assert worker.instance_id in fleet.world.live_instances()
    await asyncio.sleep(1)
    assert sent(fleet, worker)[:2] == ["launch", "status"]
    history = [entry async for entry in fleet.people.workers.history(worker.id)]
    assert [(entry.to_status.value, entry.actor.name) for entry in history][1] == ("PROVISIONING", "worker-controller")
    assert (await fleet.audits(worker.id)).count("provisioned") == 1
    assert counted(fleet)["provisioned_count"] == 1


async def test_an_unknown_template_fails_without_a_launch(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: FAILED, with the reason; it is not tried again by itself."""
    store = fleet.plane.services.context.store
    stored = await store.get(TEMPLATES, "small")
    assert stored is not None
    worker = await fleet.create(desired_status="STOPPED")
    await store.commit([Delete(TEMPLATES, "small", expected=stored.revision)])
    await fleet.people.workers.start(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.FAILED, within=60)
    await asyncio.sleep(300)
    assert fleet.calls("RunInstances") == 0
    last = [entry async for entry in fleet.people.workers.history(worker.id)][-1]
    assert (last.to_status, last.reason) == (WorkerStatus.FAILED, "template small does not exist")
    small = next(template for template in DEFAULT_TEMPLATES if template.name == "small")
    body = small.model_dump(mode="json")
    response = await fleet.plane.ask("PUT", "/api/worker-templates/small", role=Role.ADMIN, json=body)
    assert response.status_code in (200, 201), response.text
    await fleet.people.workers.retry(worker.id)
    await fleet.until_ready(worker.id, within=300)


async def test_a_worker_is_launched_in_its_own_region_or_in_the_default_one(fleet: Fleet) -> None:
    """worker-lifecycle.md#launching: the worker's own region counts, else the default."""
    mine = await fleet.create("mine", aws_region=THERE)
    default = await fleet.create("default")
    mine = await fleet.until_status(mine.id, WorkerStatus.RUNNING, within=120)
    default = await fleet.until_status(default.id, WorkerStatus.RUNNING, within=120)
    assert default.aws_region == HERE
    assert mine.instance_id in fleet.world.regions[THERE].machines
    assert default.instance_id in fleet.world.regions[HERE].machines


async def test_a_region_that_is_not_configured_fails_with_the_reason(platform: Fleet) -> None:
    """worker-lifecycle.md#launching: without one there is nothing to launch with."""
    del platform.sites[THERE]
    await platform.start()
    worker = await platform.create(aws_region=THERE)
    await platform.until_status(worker.id, WorkerStatus.FAILED, within=60)
    last = [entry async for entry in platform.people.workers.history(worker.id)][-1]
    assert last.reason.startswith("region us-east-1 is not configured here")
    assert platform.calls("RunInstances") == 0


# worker-lifecycle.md: coming up


async def test_provisioning_waits_as_long_as_ec2_says_pending(fleet: Fleet) -> None:
    """Pending is checked again; running brings the addresses and is counted as started.

    Reference: worker-lifecycle.md#deadlines.
    """
    hold_transitions(fleet, on=True)
    worker = await fleet.create()
    await asyncio.sleep(120)
    waiting = await fleet.worker(worker.id)
    assert (waiting.status, counted(fleet)["started_count"]) == (WorkerStatus.PROVISIONING, 0)
    hold_transitions(fleet, on=False)
    up = await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=60)
    machine = fleet.machine(up)
    assert (up.public_ip, up.private_ip) == (machine.public_ip, machine.private_ip)
    assert counted(fleet)["started_count"] == 1
    assert await fleet.steps(worker.id) == ["PENDING", "PROVISIONING", "STARTING", "RUNNING"]


async def test_starting_waits_for_an_address(fleet: Fleet) -> None:
    """worker-lifecycle.md#statuses: STARTING is an instance that runs and has no address yet."""
    hold_transitions(fleet, on=True)
    worker = await fleet.create()
    worker = await fleet.until_status(worker.id, WorkerStatus.PROVISIONING, within=60)
    machine = fleet.machine(worker)
    address, machine.public_ip, machine.private_ip = machine.private_ip, None, None  # type: ignore[assignment]
    force(fleet, worker, InstanceState.RUNNING)
    await fleet.until_status(worker.id, WorkerStatus.STARTING, within=60)
    await asyncio.sleep(60)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.STARTING
    machine.private_ip = address
    force(fleet, worker, InstanceState.RUNNING)
    up = await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=60)
    assert up.private_ip == address


@pytest.mark.parametrize("state", [InstanceState.STOPPED, InstanceState.TERMINATED])
async def test_another_state_than_pending_or_running_is_no_reason_to_wait(fleet: Fleet, state: InstanceState) -> None:
    """worker-lifecycle.md#deadlines: what was stopped is started, what has ended has failed."""
    hold_transitions(fleet, on=True)
    worker = await fleet.create()
    worker = await fleet.until_status(worker.id, WorkerStatus.PROVISIONING, within=60)
    force(fleet, worker, state)
    hold_transitions(fleet, on=False)
    if state is InstanceState.STOPPED:
        await fleet.until_ready(worker.id, within=300)
        assert fleet.calls("StartInstances") == 1
        return
    failed = await fleet.until_status(worker.id, WorkerStatus.FAILED, within=300)
    assert failed.instance_id is None
    assert fleet.calls("RunInstances") == 1


# worker-lifecycle.md: steady state

DRIFTS = {
    InstanceState.PENDING: "PROVISIONING",
    InstanceState.STOPPING: "STOPPING",
    InstanceState.STOPPED: "STOPPED",
    InstanceState.SHUTTING_DOWN: "TERMINATING",
    InstanceState.TERMINATED: "TERMINATED",
    InstanceState.UNKNOWN: "UNKNOWN",
}


@pytest.mark.parametrize("state", DRIFTS)
async def test_drift_is_written_as_the_table_says(fleet: Fleet, state: InstanceState) -> None:
    """worker-lifecycle.md#running: the state of a RUNNING worker's instance becomes its status."""
    worker = await fleet.running()
    before = await fleet.steps(worker.id)
    hold_transitions(fleet, on=True)
    force(fleet, worker, state)

    async def noticed() -> bool:
        return len(await fleet.steps(worker.id)) > len(before)

    await fleet.until(noticed, "the drift is written", within=60)
    assert (await fleet.steps(worker.id))[len(before)] == DRIFTS[state]
    assert (await fleet.worker(worker.id)).desired_status == "RUNNING"


async def test_after_an_unknown_state_running_is_running(fleet: Fleet) -> None:
    """worker-lifecycle.md#running: the rows running and other."""
    worker = await fleet.running()
    force(fleet, worker, InstanceState.UNKNOWN)
    await fleet.until_status(worker.id, WorkerStatus.UNKNOWN, within=60)
    force(fleet, worker, InstanceState.RUNNING)
    await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=60)


async def test_metrics_of_both_sources_are_reported_together(fleet: Fleet) -> None:
    """worker-lifecycle.md#running: metrics of the cloud, labs, nodes, system and version of CML, with a time."""
    worker = await fleet.running()
    await asyncio.sleep(120)
    sample = (await fleet.people.workers.metrics(worker.id, since=clock.now() - timedelta(minutes=2)))[-1]
    assert None not in (sample.cpu_utilization, sample.memory_utilization, sample.disk_utilization)
    assert None not in (sample.network_in, sample.network_out, sample.disk_read, sample.disk_write)
    assert (sample.labs_count, sample.nodes_count, sample.running_nodes) == (3, 12, 7)
    assert sample.cml_version == "2.9.1+build.7"
    assert sample.system_info
    assert sample.collected_at.utcoffset() == timedelta(0)
    assert timedelta(0) <= clock.now() - sample.collected_at <= timedelta(minutes=1)
    assert counted(fleet)["metrics_collected_count"] >= 1


@pytest.mark.parametrize("failing", ["cloud", "cml"])
async def test_a_source_of_metrics_fails_alone(fleet: Fleet, failing: str) -> None:
    """worker-lifecycle.md#running: a failing source does not affect the other."""
    worker = await fleet.running()
    if failing == "cloud":
        fleet.world.inject_fault(HERE, RefuseCalls("GetMetricData", "UnauthorizedOperation", 100))
    else:
        fleet.cml_of(worker).failures |= {
            "information": CMLNotReadyError("198.18.0.1", "gone"),
            "stats": CMLNotReadyError("198.18.0.1", "gone"),
        }
    await asyncio.sleep(90)
    began = clock.now()
    await asyncio.sleep(120)
    samples = await fleet.people.workers.metrics(worker.id, since=began)
    assert samples
    of_cloud = {sample.cpu_utilization is not None for sample in samples}
    of_cml = {sample.labs_count is not None for sample in samples}
    assert (of_cloud, of_cml) == (({False}, {True}) if failing == "cloud" else ({True}, {False}))
    assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING


async def test_activity_is_checked_only_where_that_is_enabled(fleet: Fleet) -> None:
    """worker-lifecycle.md#running, settings.md: a worker's own switch, and at most one check in each interval."""
    watched = await fleet.running("watched")
    left_alone = await fleet.running("left-alone", idle_detection_enabled=False)
    await asyncio.sleep(1000)
    assert 3 <= sent(fleet, watched).count("detect-idle") <= 4
    assert "detect-idle" not in sent(fleet, left_alone)
    assert counted(fleet)["idle_detection_count"] == sent(fleet, watched).count("detect-idle")


@pytest.mark.parametrize("on", [False, True])
async def test_scale_down_is_weighed_only_where_that_is_switched_on(fleet: Fleet, on: bool) -> None:
    """worker-lifecycle.md#running: if enabled, and only after an idle check had a result."""
    await fleet.change_settings(
        idle={"worker_auto_pause_enabled": False, "idle_detection_interval": 60},
        scaling={"scale_down_enabled": on},
    )
    worker = await fleet.running()
    await asyncio.sleep(200)
    assert not any(label.startswith("skipped_") for label in await fleet.audits(worker.id)), (
        "no activity events, no result"
    )
    server = fleet.cml_of(worker)
    server.events = (CMLActivityEvent("start_lab", clock.now(), "somebody"),)
    await asyncio.sleep(200)
    assert ("skipped_not_idle" in await fleet.audits(worker.id)) is on
    assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING


# worker-lifecycle.md: going down


async def test_a_stop_is_repeated_while_the_instance_runs_and_then_waited_for(fleet: Fleet) -> None:
    """worker-lifecycle.md#stopping: running is stopped, stopping is waited for, stopped is written and counted."""
    worker = await fleet.running()
    hold_transitions(fleet, on=True)
    await fleet.people.workers.stop(worker.id)
    await asyncio.sleep(90)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.STOPPING
    assert fleet.calls("StopInstances") == 1
    force(fleet, worker, InstanceState.RUNNING)
    await fleet.until(lambda: fleet.calls("StopInstances") == 2, "stopped once more", within=60)
    assert counted(fleet)["stopped_count"] == 0
    hold_transitions(fleet, on=False)
    await fleet.until_status(worker.id, STOPPED, within=120)
    assert counted(fleet)["stopped_count"] == 1


async def test_a_termination_is_requested_and_then_waited_for(fleet: Fleet) -> None:
    """Whatever is neither ending nor ended is terminated; shutting-down is waited for.

    Reference: worker-lifecycle.md#terminating.
    """
    worker = await stopped_worker(fleet)
    hold_transitions(fleet, on=True)
    await fleet.people.workers.terminate(worker.id)
    await asyncio.sleep(90)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.TERMINATING
    assert fleet.calls("TerminateInstances") == 1
    assert counted(fleet)["terminated_count"] == 0
    hold_transitions(fleet, on=False)
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=120)
    assert counted(fleet)["terminated_count"] == 1


async def test_what_has_no_instance_ends_without_a_call_and_is_no_instance_that_ended(fleet: Fleet) -> None:
    """Without an instance it is TERMINATED at once; §10: only instances are counted.

    Reference: worker-lifecycle.md#terminating.
    """
    worker = await fleet.create(desired_status="STOPPED")
    await fleet.people.workers.terminate(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=60)
    assert (fleet.calls("RunInstances"), fleet.calls("TerminateInstances")) == (0, 0)
    assert counted(fleet)["terminated_count"] == 0


async def test_what_ec2_does_not_know_any_more_is_terminated(platform: Fleet) -> None:
    """worker-lifecycle.md#terminating: EC2 is asked to terminate it all the same, and answers that there is none."""
    worker, ghost = await standing_workers(platform, 2, ghosts=1)
    await platform.people.workers.terminate(ghost.id)
    await platform.start()
    ended = await platform.until_status(ghost.id, WorkerStatus.TERMINATED, within=420)
    assert ended.terminated_by == "worker-controller"
    assert platform.calls("TerminateInstances") == 1
    assert (await platform.worker(worker.id)).status is WorkerStatus.RUNNING


async def test_a_policy_by_tags_that_denies_it_keeps_no_worker_of_an_instance_that_is_gone(platform: Fleet) -> None:
    """deploy/iam-policy.json allows the call by tags of the instance, and what does not exist has none."""
    _, ghost = await standing_workers(platform, 2, ghosts=1)
    platform.world.inject_fault(HERE, RefuseCalls("TerminateInstances", "UnauthorizedOperation", times=1_000))
    await platform.people.workers.terminate(ghost.id)
    await platform.start()
    await platform.until_status(ghost.id, WorkerStatus.TERMINATED, within=420)


# worker-lifecycle.md: licenses


async def test_a_requested_registration_is_executed_and_its_request_cleared(fleet: Fleet) -> None:
    """The token is fetched, CML registers, the request is done.

    Reference: worker-lifecycle.md#running, worker-lifecycle.md#licenses.
    """
    worker = await fleet.running()
    await asyncio.sleep(60)
    assert fleet.cml.licensed() == []
    token = LicenseRequest(operation=LicenseOperation.REGISTER, token="good-token")  # type: ignore[arg-type]
    requests = await fleet.people.workers.license(worker.id, token)
    assert requests.pending_license_operation is not None
    done = await until_license(fleet, worker, LicenseStatus.REGISTERED)
    assert done.pending_license_operation is None
    assert fleet.cml.licensed() == [worker.instance_id]
    assert counted(fleet)["license_registered_count"] == 1
    assert any(line.endswith(f"{worker.id}/license-token") for line in fleet.wires["one"].sent)


async def test_a_registration_that_cml_refuses_at_once_has_failed(fleet: Fleet) -> None:
    """worker-lifecycle.md#licenses: reported as failed, with the reason, and not requested repeatedly."""
    worker = await fleet.running()
    fleet.cml_of(worker).failures["register"] = CMLInvalidRequestError(
        "198.18.0.1", "HTTP 400: the token contains invalid characters"
    )
    token = LicenseRequest(operation=LicenseOperation.REGISTER, token="strange")  # type: ignore[arg-type]
    await fleet.people.workers.license(worker.id, token)
    failed = await until_license(fleet, worker, LicenseStatus.FAILED)
    assert failed.pending_license_operation is None
    condition = find_condition(failed.conditions, ConditionType.LICENSED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Failed")
    assert "the token contains invalid characters" in condition.message
    attempts = fleet.cml_of(worker).calls["register"]
    await asyncio.sleep(600)
    assert fleet.cml_of(worker).calls["register"] == attempts
    fleet.cml_of(worker).failures.clear()
    good = LicenseRequest(operation=LicenseOperation.REGISTER, token="good-token")  # type: ignore[arg-type]
    await fleet.people.workers.license(worker.id, good)
    await until_license(fleet, worker, LicenseStatus.REGISTERED)


async def test_a_failed_deregistration_is_retried_and_its_error_shown(fleet: Fleet) -> None:
    """worker-lifecycle.md#licenses: the request stays until CML is deregistered."""
    worker = await fleet.running(license_token="good-token")
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    fleet.cml_of(worker).failures["deregister"] = CMLNotReadyError("198.18.0.1", "Cisco cannot be reached")
    await fleet.people.workers.license(worker.id, LicenseRequest(operation=LicenseOperation.DEREGISTER))
    await asyncio.sleep(120)
    still = await fleet.worker(worker.id)
    assert (still.license_status, fleet.cml.licensed()) == (LicenseStatus.REGISTERED, [worker.instance_id])
    assert still.pending_license_operation is not None
    assert 5 <= fleet.cml_of(worker).calls["deregister"] <= 13, "repeatedly, but with a pause"
    explained = await fleet.people.workers.explain(worker.id)
    assert explained.decision is not None
    assert "Cisco cannot be reached" in explained.decision.reason
    fleet.cml_of(worker).failures.clear()
    done = await until_license(fleet, worker, LicenseStatus.DEREGISTERED)
    assert (done.pending_license_operation, fleet.cml.licensed()) == (None, [])
    assert counted(fleet)["license_deregistered_count"] == 1


# worker-lifecycle.md: counters


async def test_every_counter_counts_what_its_name_says(fleet: Fleet) -> None:
    """controllers.md#metrics: each counter grows with its events, in the admin API and in Prometheus."""
    await fleet.change_settings(
        idle={
            "worker_idle_timeout_minutes": 1,
            "worker_auto_pause_snooze_minutes": 0,
            "idle_detection_interval": 30,
            "worker_auto_pause_enabled": True,
        },
        scaling={"scale_down_enabled": True, "scale_down_cooldown_seconds": 0},
    )
    (ghost,) = await standing_workers(fleet, 1)
    paused = await fleet.running("paused", license_token="good-token")
    await until_license(fleet, paused, LicenseStatus.REGISTERED)
    idle_soon(fleet, paused)
    await fleet.until_status(paused.id, STOPPED, within=600)
    await fleet.change_settings(idle={"idle_action": "drain"})
    await fleet.people.workers.start(paused.id)

    async def drained() -> bool:  # DRAINING itself may be over within the moment between two looks
        return "scale_down_initiated" in await fleet.audits(paused.id)

    await fleet.until(drained, "it is drained", within=600)
    await fleet.until_status(paused.id, STOPPED, within=600)
    await fleet.change_settings(scaling={"scale_down_enabled": False}, idle={"worker_auto_pause_enabled": False})
    await fleet.people.workers.start(paused.id)
    await fleet.until_ready(paused.id, within=300)
    await asyncio.sleep(60)
    assert counted(fleet)["running_worker_count"] == 2
    await fleet.people.workers.terminate(paused.id)
    await fleet.until_status(paused.id, WorkerStatus.TERMINATED, within=300)
    vanish(fleet, ghost)
    await fleet.until_status(ghost.id, WorkerStatus.TERMINATED, within=2400)  # the only instance of its region
    await asyncio.sleep(60)
    stats = counted(fleet)
    kept = stats.pop("metrics_collected_count"), stats.pop("idle_detection_count")
    assert all(count > 3 for count in kept)
    assert stats == {
        "provisioned_count": 1,
        "started_count": 3,
        "stopped_count": 2,
        "terminated_count": 1,
        "auto_pause_count": 1,
        "license_registered_count": 1,
        "license_deregistered_count": 1,
        "scale_down_drain_count": 1,
        "running_worker_count": 0,
        "orphans_terminated_count": 1,
    }
    shown = controller_stats(fleet.controllers["one"])
    exported = generate_latest(fleet.registries["one"]).decode()
    for name, count in counted(fleet).items():
        assert shown[name] == count
        assert f"\nlcm_worker_controller_{name} {float(count)}\n" in exported


# worker-lifecycle.md


async def test_one_controller_acts_and_another_takes_over(platform: Fleet) -> None:
    """The second stands by; when the first is gone it continues its work.

    Reference: worker-lifecycle.md#running.
    """
    await platform.start("one")
    await platform.start("two")
    await asyncio.sleep(30)
    first, second = platform.controllers["one"], platform.controllers["two"]
    assert (first.is_leader, second.is_leader, second.known_leader) == (True, False, "one")
    worker = await platform.running()
    assert platform.wires["two"].sent == []
    platform.wires["one"].kill()
    await platform.people.workers.stop(worker.id)
    await platform.until_status(worker.id, STOPPED, within=120)
    assert (first.is_leader, second.is_leader) == (False, True)
    assert "status" in sent(platform, worker, "two")
    assert (platform.calls("RunInstances"), platform.calls("StopInstances")) == (1, 1)


async def imported(fleet: Fleet) -> dict[str | None, Worker]:
    workers = [worker async for worker in fleet.people.workers.list()]
    return {worker.instance_id: worker for worker in workers if worker.origin is WorkerOrigin.IMPORTED}


async def test_an_instance_with_the_tag_is_probed_for_cml_and_becomes_a_worker(platform: Fleet) -> None:
    """discovery.md#import: found by its tag, probed for CML, recorded with its classification; others are not."""
    classified = {"cml-environment": "production", "cml-region": "us-east-1"}
    found = launched_by_hand(platform, "found", {"cml-managed": "true", **classified})
    silent = launched_by_hand(platform, "silent", {"cml-managed": "true"})
    launched_by_hand(platform, "other", {"cml-managed": "false"})
    launched_by_hand(platform, "untagged", {})
    await platform.start()
    await asyncio.sleep(30)
    platform.cml.by_machine[silent.id].failures["information"] = CMLNotReadyError("198.18.0.1", "no CML here")
    await asyncio.sleep(330)
    known = await imported(platform)
    assert list(known) == [found.id]
    worker = known[found.id]
    assert (worker.name, worker.status, worker.desired_status) == ("found", "RUNNING", "RUNNING")
    assert (worker.instance_type, worker.template_name) == ("t3.large", "large"), "the template of its type"
    assert worker.tags.items() >= classified.items()
    assert worker.cml_version == "2.9.1+build.7"
    await asyncio.sleep(600)
    assert len(await imported(platform)) == 1, "recorded once"


async def test_metrics_of_a_worker_have_their_labels_and_end_with_it(fleet: Fleet) -> None:
    """controllers.md#admin-routes: duration, drift by its type, state and license by tier, each by worker."""
    worker = await fleet.running(license_token="good-token")
    await until_license(fleet, worker, LicenseStatus.REGISTERED)
    await asyncio.sleep(90)
    fleet.disturb(ExternalAction.STOP, worker)
    await asyncio.sleep(45)

    def exported() -> str:
        return generate_latest(fleet.registries["one"]).decode()

    text, mine = exported(), f'worker_id="{worker.id}"'
    assert f"worker_reconciliation_duration_seconds_count{{{mine}}}" in text
    assert 'worker_drift_detected_total{drift_type="stopp' in text
    assert f'worker_cml_license_status{{tier="CML_Enterprise",{mine}}} 1.0' in text
    states = [line for line in text.splitlines() if line.startswith("worker_ec2_state{") and mine in line]
    assert len(states) == 1
    await fleet.until_ready(worker.id, within=300)
    await fleet.people.workers.terminate(worker.id)
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=300)
    await asyncio.sleep(60)
    assert mine not in exported()


async def test_health_counts_the_workers_and_those_with_drift(fleet: Fleet) -> None:
    """controllers.md#admin-routes: who leads, the last pass, how many are managed and how many of them drift."""
    one = await fleet.running("one")
    await fleet.running("two")
    hold_transitions(fleet, on=True)
    force(fleet, one, InstanceState.STOPPING)
    await asyncio.sleep(60)
    health = fleet.controllers["one"].health()
    last = health.pop("last_reconciliation")
    assert isinstance(last, str)
    assert last.endswith("Z")
    assert health == {"is_leader": True, "instance_id": "one", "workers_managed": 2, "workers_with_drift": 1}
    hold_transitions(fleet, on=False)
    force(fleet, one, InstanceState.STOPPED)
    await fleet.until_ready(one.id, within=300)
    await asyncio.sleep(60)
    assert fleet.controllers["one"].health()["workers_with_drift"] == 0


# controllers.md


async def test_a_new_worker_is_seen_at_once_and_followed_until_it_runs(fleet: Fleet) -> None:
    """The watch brings the launch within a moment; what EC2 does then is found without a change here.

    Reference: controllers.md#watch.
    """
    await asyncio.sleep(45)
    worker = await fleet.create()
    waited = await fleet.until(lambda: fleet.calls("RunInstances") == 1, "launched", within=30)
    assert waited <= 2
    began = asyncio.get_running_loop().time()
    await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=120)
    up_at = fleet.machine(await fleet.worker(worker.id))._changed_at
    assert fleet.world.time() - up_at <= 30 + 5, "at the latest with the next polling cycle"
    assert asyncio.get_running_loop().time() > began


async def test_without_a_watch_polling_finds_a_change_within_an_interval(platform: Fleet) -> None:
    """controllers.md: polling alone is slower and misses nothing."""
    platform.watch = WatchConfig(enabled=False, prefix="/workers/")
    await platform.start()
    await asyncio.sleep(40)
    await platform.create()
    waited = await platform.until(lambda: platform.calls("RunInstances") == 1, "launched", within=60)
    assert waited <= 32


async def test_without_polling_the_watch_brings_a_change_at_once(platform: Fleet) -> None:
    """controllers.md: watching alone is enough for one changed worker; RECONCILE_POLLING_ENABLED=false."""
    platform.config = ReconciliationConfig(polling_enabled=False)
    await platform.start()
    await asyncio.sleep(40)
    worker = await platform.create()
    waited = await platform.until(lambda: platform.calls("RunInstances") == 1, "launched", within=60)
    assert waited <= 2
    await platform.until_ready(worker.id, within=300)


# worker-lifecycle.md#startup-sweep

LOOPS = ("watch", "metrics", "discovery", "startup-sweep", "poll")


async def test_office_is_taken_in_the_order_of_the_decision(platform: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch, metrics, discovery, the sweep over all workers, then polling as usual.

    Reference: worker-lifecycle.md#startup-sweep.
    """
    await platform.start("first")
    resting = await stopped_worker(platform, "resting")
    await platform.controllers["first"].stop()
    seen: list[str] = []

    def note(name: str) -> None:
        seen.append(name)

    duty = WorkerReconciler._spawn_loop
    listing = WorkerReconciler.list_resources
    swept = WorkerReconciler.on_startup_sweep_done

    def begin(self: WorkerReconciler, name: str, run: Callable[[], Coroutine[object, object, None]]) -> None:
        async def logged() -> None:
            note(name)
            await run()

        duty(self, name, logged if name in LOOPS else run)

    async def listed(self: WorkerReconciler) -> Sequence[Worker]:
        flag = "up" if self._startup_sweep_active else "down"
        found = await listing(self)
        with_resting = "with" if resting.id in [worker.id for worker in found] else "without"
        note(f"list with the flag {flag}, {with_resting} what rests")
        return found

    async def done(self: WorkerReconciler) -> None:
        await swept(self)
        note("sweep done")

    monkeypatch.setattr(WorkerReconciler, "_spawn_loop", begin)
    monkeypatch.setattr(WorkerReconciler, "list_resources", listed)
    monkeypatch.setattr(WorkerReconciler, "on_startup_sweep_done", done)
    await platform.start("second")
    await platform.until(lambda: seen.count("sweep done") == 1, "swept", within=60)
    await asyncio.sleep(40)
    assert seen[:8] == [
        *LOOPS,
        "list with the flag up, with what rests",
        "sweep done",
        "list with the flag down, without what rests",
    ]
    requests = platform.wires["second"].sent
    assert requests[0] == "POST /api/internal/leadership", "the term is announced before anything is listed"
    assert requests.count("POST /api/internal/leadership") == 2


@pytest.mark.parametrize("meanwhile", ["terminated", "running", "desired", "at rest"])
async def test_a_stopped_worker_is_verified_when_a_leader_begins(platform: Fleet, meanwhile: str) -> None:
    """worker-lifecycle.md#startup-sweep: all are listed once, and each of the four cases of a STOPPED worker."""
    await platform.start("first")
    worker = await stopped_worker(platform)
    await platform.controllers["first"].stop()
    before = await platform.steps(worker.id)
    if meanwhile == "desired":
        await platform.people.workers.start(worker.id)
    elif meanwhile != "at rest":
        force(platform, worker, InstanceState(meanwhile))
    written = (await platform.worker(worker.id)).version
    await platform.start("second")
    await asyncio.sleep(15)
    steps = (await platform.steps(worker.id))[len(before) :]
    expected = {"terminated": "TERMINATED", "running": "RUNNING", "desired": "STARTING"}
    if meanwhile == "at rest":
        assert steps == []
        assert (await platform.worker(worker.id)).version == written
    else:
        assert steps[0] == expected[meanwhile]


async def test_a_running_record_whose_instance_was_stopped_is_found_at_the_start(platform: Fleet) -> None:
    """Changes in EC2 without a leader are applied within seconds of an election.

    Reference: worker-lifecycle.md#startup-sweep.
    """
    (worker,) = await standing_workers(platform, 1)
    force(platform, worker, InstanceState.STOPPED)
    await platform.start()
    await platform.until_status(worker.id, STOPPED, within=15)
    await platform.until_ready(worker.id, within=300)


async def test_the_startup_sweep_is_announced_only_when_every_worker_was_verified(platform: Fleet) -> None:
    """Clients of worker records wait until the current leader's sweep is reported as done.

    Reference: worker-lifecycle.md#startup-sweep.
    """
    await standing_workers(platform, 1)
    platform.world.inject_fault(HERE, Outage(120))
    await platform.start()
    await asyncio.sleep(100)

    async def logged() -> bool:
        return any(leader.startup_sweep_done for leader in (await platform.people.fleet.summary()).leaders)

    assert platform.controllers["one"].is_leader
    assert not await logged()
    await platform.until(logged, "the sweep is reported", within=120)


async def test_a_region_that_cannot_be_read_delays_neither_the_others_nor_their_sweep(platform: Fleet) -> None:
    """worker-lifecycle.md#startup-sweep: lablets of all other regions would wait for the sweep."""
    (here,) = await standing_workers(platform, 1)
    (elsewhere,) = await standing_workers(platform, 1, region="us-east-1", first=1)
    platform.world.inject_fault(HERE, Outage(3600))
    await platform.start()
    await asyncio.sleep(10)
    await platform.people.workers.stop(elsewhere.id)
    await platform.until(lambda: platform.calls("StopInstances") == 1, "it is acted on", within=10)

    async def swept() -> bool:
        return any(leader.startup_sweep_done for leader in (await platform.people.fleet.summary()).leaders)

    assert not await swept()
    await platform.until(swept, "the sweep is reported", within=100)
    assert platform.controllers["one"].health()["blind_regions"]
    assert (await platform.worker(here.id)).status is WorkerStatus.RUNNING


async def test_a_leader_verifies_all_workers_again_after_a_backup_was_restored(platform: Fleet) -> None:
    """The store knows an older term. The leader steps down, announces a new one and sweeps; nothing waits for ever."""
    await standing_workers(platform, 1)
    await platform.start()
    store = platform.plane.services.context.store

    async def swept() -> bool:
        return any(leader.startup_sweep_done for leader in (await platform.people.fleet.summary()).leaders)

    await platform.until(swept, "the sweep is reported", within=120)
    stored = await store.get(LEADERSHIPS, "worker-controller")
    assert stored is not None
    lost = LeadershipTerm.model_validate_json(stored.body)
    older = lost.model_copy(update={"term": lost.term - 1, "startup_sweep_done": False})
    await store.commit([Put(LEADERSHIPS, "worker-controller", older.model_dump_json().encode(), stored.revision)])
    assert not await swept()
    await platform.until(swept, "the sweep is reported again", within=300)
    (leader,) = (await platform.people.fleet.summary()).leaders
    assert leader.term > lost.term


# discovery.md#orphans


@pytest.mark.parametrize("how", ["terminated", "vanished"])
async def test_a_worker_whose_instance_ended_elsewhere_is_terminated(platform: Fleet, how: str) -> None:
    """discovery.md#orphans: the record says TERMINATED and stays, with its history, and takes no work."""
    standing, lost = await standing_workers(platform, 2)
    if how == "vanished":
        vanish(platform, lost)
    else:
        force(platform, lost, InstanceState.TERMINATED)
    await platform.start()
    ended = await platform.until_status(lost.id, WorkerStatus.TERMINATED, within=420)
    assert (ended.ready, ended.desired_status) == (False, "RUNNING")
    assert (await platform.steps(lost.id))[-1] == "TERMINATED"
    if how == "vanished":
        assert (ended.terminated_by, ended.terminated_reason) == ("discovery-gc", INSTANCE_NOT_FOUND)
        assert INSTANCE_NOT_FOUND == "EC2 instance not found during discovery"
    assert (await platform.worker(standing.id)).status is WorkerStatus.RUNNING
    assert platform.calls("TerminateInstances") == 0


async def test_a_new_instance_that_cannot_be_seen_is_not_given_up_for_five_minutes(fleet: Fleet) -> None:
    """worker-lifecycle.md#gone: as soon as it has been absent for five minutes, and EC2 must list it."""
    await standing_workers(fleet, 1)
    worker = await fleet.running()
    vanished = clock.now()
    vanish(fleet, worker)
    await asyncio.sleep(290)
    assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING
    await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=600)
    waited = (clock.now() - vanished).total_seconds()
    assert 300 < waited <= 300 + 120


async def test_an_instance_that_comes_back_is_a_new_worker_that_knows_the_old_one(platform: Fleet) -> None:
    """discovery.md#orphans: the old record stays, the instance is imported again and names it."""
    (worker,) = await standing_workers(platform, 1)
    machine = vanish(platform, worker)
    await platform.change_settings(discovery={"breaker_enabled": False})
    await platform.start()
    await platform.until_status(worker.id, WorkerStatus.TERMINATED, within=2400)
    platform.world.regions[HERE].add(machine)

    async def back() -> bool:
        return machine.id in await imported(platform)

    await platform.until(back, "imported again", within=900)
    again = (await imported(platform))[machine.id]
    assert (again.previous_worker_id, again.status) == (worker.id, "RUNNING")
    assert (await platform.worker(worker.id)).status is WorkerStatus.TERMINATED


async def test_each_region_is_judged_by_its_own_scan(platform: Fleet) -> None:
    """discovery.md#orphans: regions are scanned one by one; where a scan fails no worker is marked."""
    await standing_workers(platform, 1, region=HERE)
    _, here = [await _renamed(platform, HERE, number) for number in (1, 2)]
    there = await _renamed(platform, THERE, 3)
    vanish(platform, here)
    vanish(platform, there)
    platform.world.inject_fault(THERE, Outage(10_000))
    await platform.start()
    await platform.until_status(here.id, WorkerStatus.TERMINATED, within=420)
    await asyncio.sleep(2400)
    assert (await platform.worker(there.id)).status is WorkerStatus.RUNNING
    reconciler = platform.controllers["one"]
    assert reconciler.discovery is not None
    assert list(reconciler.discovery.errors) == [THERE]


async def _renamed(fleet: Fleet, region: str, number: int) -> Worker:
    return (await standing_workers(fleet, 1, region=region, first=number))[0]


async def test_when_disabled_none_is_marked_and_when_enabled_again_they_are(platform: Fleet) -> None:
    """discovery.md#orphans: without discovery there is no orphan detection."""
    _, lost = await standing_workers(platform, 2)
    vanish(platform, lost)
    await platform.change_settings(discovery={"worker_discovery_enabled": False, "discovery_interval": 60})
    await platform.start()
    await asyncio.sleep(900)
    assert (await platform.worker(lost.id)).status is WorkerStatus.RUNNING
    await platform.change_settings(discovery={"worker_discovery_enabled": True})
    await platform.until_status(lost.id, WorkerStatus.TERMINATED, within=120)


async def test_workers_of_a_region_are_listed_without_some_statuses(fleet: Fleet) -> None:
    """discovery.md#orphans: the list that orphan detection reads."""
    here = await fleet.running("here")
    await fleet.create("there", aws_region=THERE)
    waiting = await fleet.create("waiting", desired_status="STOPPED")
    internal = fleet.connect(Role.CONTROLLER).internal
    excluded = [WorkerStatus.TERMINATED, WorkerStatus.PENDING]
    found = [worker.id async for worker in internal.workers(aws_region=[HERE], exclude_statuses=excluded)]
    assert found == [here.id]
    assert (await fleet.worker(waiting.id)).status is WorkerStatus.PENDING


async def test_orphans_are_counted_and_logged(platform: Fleet) -> None:
    """discovery.md#orphans: how many were marked is counted, and each is logged."""
    _, lost = await standing_workers(platform, 2)
    vanish(platform, lost)
    with capture_logs() as logs:
        await platform.start()
        await platform.until_status(lost.id, WorkerStatus.TERMINATED, within=420)
    stats: dict[str, Any] = counted(platform)
    assert (stats["orphans_terminated_count"], stats["terminated_count"]) == (1, 0)
    (logged,) = [entry for entry in logs if entry["event"] == "worker lost"]
    assert (logged["log_level"], logged["worker"], logged["instance_id"]) == ("warning", lost.id, lost.instance_id)
    assert logged["region"] == lost.aws_region
