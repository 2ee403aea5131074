"""STARTING: the instance is being started, or runs and has no address yet."""

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
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker

CML_BOOTING = ConditionUpdate(
    ConditionType.CML_READY, ConditionStatus.FALSE, "Booting", "CML has not answered since the instance runs"
)


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Start it if it is stopped, and wait for `became_running` and an address, at most STARTING_TIMEOUT."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    if worker.instance_id is None:
        reason = "it is STARTING without an instance"
        return success("starting.no_instance", reason, WriteStatus(WorkerStatus.FAILED, reason))
    state = seen.sight.state
    if worker.desired_status is DesiredStatus.STOPPED:
        decided = _to_be_stopped(worker, seen)
        if decided is not None:
            return decided
    elif state is InstanceState.RUNNING and seen.sight.has_address:
        return became_running(worker, seen)
    elif state is InstanceState.STOPPING or (state is InstanceState.STOPPED and seen.moved):
        return follow_instance(worker, seen, expected=not seen.moved)
    expected = state in (InstanceState.PENDING, InstanceState.RUNNING, InstanceState.STOPPED)
    unexpected = None if expected else unexpected_state(worker, seen, policy)
    if unexpected is not None and seen.sight.visibility is not Visibility.NOT_VISIBLE:
        return unexpected
    return _waiting(worker, seen, policy, now)


def became_running(worker: Worker, seen: Observation, *before: WriteStatus) -> Decision:
    """The instance runs and has an address. Whether CML answers is another question."""
    write = WriteStatus(
        WorkerStatus.RUNNING,
        "the instance is running and has an address",
        ActionKind.RECORD,
        changed_instance_fields(worker, seen.sight),
    )
    said = (instance_ready(True, "Running"), CML_BOOTING, NOT_STUCK)
    return wait("starting.running", "the instance is running", *before, write, after=0.0, conditions=said)


def _to_be_stopped(worker: Worker, seen: Observation) -> Decision | None:
    state = seen.sight.state
    if state is InstanceState.RUNNING:
        return begin_stop("it is to be stopped")
    if state in (InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, seen)
    return None


def _waiting(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    state = seen.sight.state
    if seconds_in_status(worker, now) > policy.starting_timeout:
        reason = f"not running with an address within {policy.starting_timeout:g} s; last seen: {seen.sight.word}"
        return success("starting.timeout", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.INTENT))
    if state is None:
        return instance_not_visible(seen)
    if state is InstanceState.STOPPED:
        said = instance_ready(False, "Starting", "the instance is being started")
        reason = "the instance is stopped and is to run"
        return wait("starting.start", reason, ChangeInstance(CloudCall.START), after=POLL_SECONDS, conditions=(said,))
    said = instance_ready(False, state.value.capitalize(), f"EC2 shows the instance as {state.value}")
    return wait(f"starting.{state.value}", f"the instance is {state.value}", after=POLL_SECONDS, conditions=(said,))
