"""STOPPED: at rest, unless it is wanted otherwise or was found otherwise. What follows a drift is decided here."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    NOT_STUCK,
    POLL_SECONDS,
    changed_instance_fields,
    instance_ready,
    stuck,
    within_last_hour,
)
from lcm.controllers.worker.decide.shared.instance import begin_termination, instance_not_visible, unexpected_state
from lcm.controllers.worker.decide.starting import CML_BOOTING
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, success, wait
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker

MAX_RESTORES_PER_HOUR = 3


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Start it when it is wanted running; verify that what rests is as it was."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    if worker.instance_id is None:
        return _without_instance(worker)
    state = seen.sight.state
    if state is InstanceState.RUNNING:
        return _found_running(worker, seen)
    if state is InstanceState.STOPPED:
        if worker.desired_status is DesiredStatus.STOPPED:
            return success(
                "stopped.rest",
                "it is stopped, as it should be",
                conditions=(instance_ready(False, "Stopped"), NOT_STUCK),
            )
        return _start(worker, policy, now)
    if state is InstanceState.PENDING and worker.desired_status is DesiredStatus.RUNNING:
        reason = "it is to run, and EC2 is starting the instance already"
        return wait("stopped.starting", reason, WriteStatus(WorkerStatus.STARTING, reason), after=POLL_SECONDS)
    if state in (InstanceState.PENDING, InstanceState.STOPPING):
        return wait(
            f"stopped.{state.value}", f"EC2 shows the instance as {state.value}", after=POLL_SECONDS, drift=state.value
        )
    return unexpected_state(worker, seen, policy) or instance_not_visible(seen)


def _start(worker: Worker, policy: Policy, now: datetime) -> Decision:
    if not worker.drifted:
        return _begin_start("it is to run")
    if policy.settings is None:
        return wait(
            "drift.unsettled", "it was stopped from outside; the settings that say what follows were never read"
        )
    if policy.settings.discovery.drift_policy is DriftPolicy.ACCEPT:
        reason = "it was stopped from outside, and that is accepted (DRIFT_POLICY=accept)"
        write = WriteStatus(WorkerStatus.STOPPED, reason, ActionKind.INTENT, {"desired_status": DesiredStatus.STOPPED})
        return success("drift.accept", reason, write, drift="stopped")
    recent = within_last_hour(worker.drifted_at, now)
    if len(recent) > MAX_RESTORES_PER_HOUR:
        message = (
            f"it was stopped from outside {len(recent)} times within an hour; somebody does not want it to run: "
            "stop or start it by hand to settle that"
        )
        until = (recent[-MAX_RESTORES_PER_HOUR - 1] + timedelta(hours=1) - now).total_seconds()
        said = (stuck("StoppedFromOutside", message),)
        return wait("drift.given_up", message, after=max(POLL_SECONDS, until), conditions=said, drift="stopped")
    return _begin_start("it was stopped from outside and is to run (DRIFT_POLICY=restore)", rule="drift.restore")


def _begin_start(reason: str, rule: str = "stopped.start") -> Decision:
    write = WriteStatus(WorkerStatus.STARTING, reason, ActionKind.INTENT)
    said = (instance_ready(False, "Starting", reason), NOT_STUCK)
    return wait(rule, reason, write, ChangeInstance(CloudCall.START), after=POLL_SECONDS, conditions=said)


def _found_running(worker: Worker, seen: Observation) -> Decision:
    reason = "the instance was started from outside"
    write = WriteStatus(WorkerStatus.RUNNING, reason, ActionKind.RECORD, changed_instance_fields(worker, seen.sight))
    said = (instance_ready(True, "Running"), CML_BOOTING, NOT_STUCK)
    return wait("drift.running", reason, write, after=0.0, conditions=said, drift="running")


def _without_instance(worker: Worker) -> Decision:
    if worker.desired_status is DesiredStatus.STOPPED:
        return success("stopped.rest", "it has no instance and none is wanted")
    if worker.template_name is None:
        message = "it has no instance and no template to launch one from; terminate it"
        return wait("stopped.no_way", message, conditions=(stuck("NoInstance", message),))
    reason = "it has no instance and is to run"
    return wait("stopped.launch", reason, WriteStatus(WorkerStatus.PENDING, reason, ActionKind.INTENT), after=0.0)
