"""STOPPED: at rest, unless the desired status or the instance differs. Drift is handled here."""

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
from lcm.controllers.worker.decide.shared.instance import (
    RESTART_SECONDS,
    begin_termination,
    instance_not_visible,
    unexpected_state,
)
from lcm.controllers.worker.decide.shared.maintenance import is_to_start_again, start_again
from lcm.controllers.worker.decide.shared.waiting import NOT_WAITING, current_wait, pause_without_capacity, waiting_for
from lcm.controllers.worker.decide.starting import CML_BOOTING
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, success, wait
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

MAX_RESTORES_PER_HOUR = 3


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Start the worker if RUNNING is desired; otherwise check that the instance is still stopped."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    if worker.instance_id is None:
        return _without_instance(worker)
    state = observed.instance.state
    if state is InstanceState.RUNNING:
        return _found_running(worker, observed)
    if state is InstanceState.STOPPED:
        if is_to_start_again(worker, now):
            return start_again()
        if worker.desired_status is DesiredStatus.STOPPED:
            return success(
                "stopped.rest",
                "the worker is stopped, as desired",
                conditions=(instance_ready(False, "Stopped"), NOT_STUCK, NOT_WAITING),
            )
        return _start(worker, observed, policy, now)
    if state is InstanceState.PENDING and worker.desired_status is DesiredStatus.RUNNING:
        reason = "the desired status is RUNNING, and EC2 is already starting the instance"
        return wait("stopped.starting", reason, WriteStatus(WorkerStatus.STARTING, reason), after=POLL_SECONDS)
    if state in (InstanceState.PENDING, InstanceState.STOPPING):
        return wait(
            f"stopped.{state.value}",
            f"EC2 reports the instance as {state.value}",
            after=POLL_SECONDS,
            drift=state.value,
        )
    return unexpected_state(worker, observed, policy) or instance_not_visible(observed)


def _start(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    if current_wait(worker) is not None:
        return _start_again(worker, observed, now)
    if not worker.drifted:
        return _begin_start("the desired status is RUNNING")
    if policy.settings is None:
        return wait("drift.unsettled", "the instance was stopped outside LCM; DRIFT_POLICY has not been read yet")
    booked = worker.is_booked(now)  # a class counts more than what happens outside, as more than what people want
    if policy.settings.discovery.drift_policy is DriftPolicy.ACCEPT and not booked:
        reason = "the instance was stopped outside LCM, which is accepted (DRIFT_POLICY=accept)"
        write = WriteStatus(WorkerStatus.STOPPED, reason, ActionKind.INTENT, {"desired_status": DesiredStatus.STOPPED})
        return success("drift.accept", reason, write, drift="stopped")
    recent = within_last_hour(worker.drifted_at, now)
    if len(recent) > MAX_RESTORES_PER_HOUR:
        message = (
            f"the instance was stopped outside LCM {len(recent)} times within an hour; "
            "it is not restarted until you stop or start the worker"
        )
        until = (recent[-MAX_RESTORES_PER_HOUR - 1] + timedelta(hours=1) - now).total_seconds()
        conditions = (stuck("StoppedFromOutside", message),)
        return wait("drift.given_up", message, after=max(POLL_SECONDS, until), conditions=conditions, drift="stopped")
    why = f"it is booked for {worker.booking_id}" if booked else "DRIFT_POLICY=restore"
    return _begin_start(f"the instance was stopped outside LCM and is restarted ({why})", rule="drift.restore")


def _begin_start(reason: str, rule: str = "stopped.start") -> Decision:
    write = WriteStatus(WorkerStatus.STARTING, reason, ActionKind.INTENT)
    conditions = (instance_ready(False, "Starting", reason), NOT_STUCK)
    return wait(rule, reason, write, ChangeInstance(CloudCall.START), after=POLL_SECONDS, conditions=conditions)


def _start_again(worker: Worker, observed: Observation, now: datetime) -> Decision:
    """The last start was refused for now. The worker stays STOPPED until one is accepted, however often it is tried."""
    waits = current_wait(worker)
    assert waits is not None
    left = pause_without_capacity(worker, observed, now, shortest=RESTART_SECONDS)
    if left > 0:
        condition = waiting_for(waits.reason, waits.message)
        return wait("stopped.no_capacity", waits.message, after=left, conditions=(condition,))
    reason = "the desired status is RUNNING, and the last start was refused temporarily"
    write = WriteStatus(WorkerStatus.STARTING, reason)
    conditions = (instance_ready(False, "Starting", reason), NOT_STUCK, NOT_WAITING)
    return wait(
        "stopped.start_again",
        reason,
        ChangeInstance(CloudCall.START),
        write,
        after=POLL_SECONDS,
        conditions=conditions,
    )


def _found_running(worker: Worker, observed: Observation) -> Decision:
    reason = "the instance was started outside LCM"
    write = WriteStatus(
        WorkerStatus.RUNNING, reason, ActionKind.RECORD, changed_instance_fields(worker, observed.instance)
    )
    conditions = (instance_ready(True, "Running"), CML_BOOTING, NOT_STUCK)
    return wait("drift.running", reason, write, after=0.0, conditions=conditions, drift="running")


def _without_instance(worker: Worker) -> Decision:
    if worker.desired_status is DesiredStatus.STOPPED:
        return success("stopped.rest", "the worker has no instance and needs none")
    if worker.template_name is None:
        message = "the worker has no instance and no template to launch one from; terminate it"
        return wait("stopped.not_startable", message, conditions=(stuck("NoInstance", message),))
    reason = "the worker has no instance and should run"
    return wait("stopped.launch", reason, WriteStatus(WorkerStatus.PENDING, reason, ActionKind.INTENT), after=0.0)
