"""STARTING: the instance is being started, or runs without an address yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    NOT_STUCK,
    POLL_SECONDS,
    changed_instance_fields,
    instance_ready,
    seconds_in_status,
)
from lcm.controllers.worker.decide.shared.instance import (
    begin_stop,
    begin_termination,
    follow_instance,
    instance_not_visible,
    unexpected_state,
)
from lcm.controllers.worker.decide.shared.waiting import current_wait
from lcm.controllers.worker.decision import (
    ChangeInstance,
    CloudCall,
    ConditionUpdate,
    WriteStatus,
    success,
    wait,
)
from lcm.controllers.worker.observe.observation import Visibility
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

CML_BOOTING = ConditionUpdate(
    ConditionType.CML_READY, ConditionStatus.FALSE, "Booting", "CML has not responded since the instance started"
)


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Start the instance if it is stopped, and wait until it runs with an address, at most STARTING_TIMEOUT."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    if worker.instance_id is None:
        reason = "the worker is STARTING without an instance"
        return success("starting.no_instance", reason, WriteStatus(WorkerStatus.FAILED, reason))
    state = observed.instance.state
    if worker.desired_status is DesiredStatus.STOPPED:
        decided = _to_be_stopped(worker, observed, now)
        if decided is not None:
            return decided
    elif state is InstanceState.RUNNING and observed.instance.has_address:
        return became_running(worker, observed)
    elif state is InstanceState.STOPPING or (state is InstanceState.STOPPED and observed.has_started):
        return follow_instance(worker, observed, now, expected=not observed.has_started)
    expected = state in (InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPED)
    unexpected = None if expected else unexpected_state(worker, observed, policy)
    if unexpected is not None and observed.instance.visibility is not Visibility.NOT_VISIBLE:
        return unexpected
    return _waiting(worker, observed, policy, now)


def became_running(worker: Worker, observed: Observation, *before: WriteStatus) -> Decision:
    """The instance runs and has an address. CML may not respond yet."""
    write = WriteStatus(
        WorkerStatus.RUNNING,
        "the instance is running and has an address",
        ActionKind.RECORD,
        changed_instance_fields(worker, observed.instance),
    )
    conditions = (instance_ready(True, "Running"), CML_BOOTING, NOT_STUCK)
    return wait("starting.running", "the instance is running", *before, write, after=0.0, conditions=conditions)


def _to_be_stopped(worker: Worker, observed: Observation, now: datetime) -> Decision | None:
    state = observed.instance.state
    if state is InstanceState.RUNNING:
        return begin_stop("the desired status is STOPPED")
    if state in (InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, observed, now)
    return None


def _waiting(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    state = observed.instance.state
    if seconds_in_status(worker, now) > policy.starting_timeout:
        if state is InstanceState.STOPPED and current_wait(worker) is not None:
            reason = "EC2 could not be read for a while, and the instance was not started meanwhile"
            return wait("starting.again", reason, WriteStatus(WorkerStatus.STOPPED, reason), after=0.0)
        summary = observed.instance.summary
        reason = f"not running with an address within {policy.starting_timeout:g} s; last observed: {summary}"
        return success("starting.timeout", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.INTENT))
    if state is None:
        return instance_not_visible(observed)
    if state is InstanceState.STOPPED:
        condition = instance_ready(False, "Starting", "the instance is being started")
        reason = "the instance is stopped and should run"
        return wait(
            "starting.start", reason, ChangeInstance(CloudCall.START), after=POLL_SECONDS, conditions=(condition,)
        )
    condition = instance_ready(False, state.value.capitalize(), f"EC2 reports the instance as {state.value}")
    return wait(
        f"starting.{state.value}", f"the instance is {state.value}", after=POLL_SECONDS, conditions=(condition,)
    )
