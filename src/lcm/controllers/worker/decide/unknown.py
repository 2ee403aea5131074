"""UNKNOWN: EC2 reported an unrecognized state; the next recognized state is followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    NOT_STUCK,
    changed_instance_fields,
    instance_ready,
    seconds_in_status,
    stuck,
)
from lcm.controllers.worker.decide.shared.instance import begin_termination, follow_instance, unexpected_state
from lcm.controllers.worker.decide.starting import CML_BOOTING
from lcm.controllers.worker.decision import WriteStatus, wait
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Follow the instance as soon as EC2 reports a recognized state."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    state = observed.instance.state
    if state is InstanceState.RUNNING:
        write = WriteStatus(
            WorkerStatus.RUNNING,
            "EC2 reports the instance as running",
            ActionKind.RECORD,
            changed_instance_fields(worker, observed.instance),
        )
        conditions = (instance_ready(True, "Running"), CML_BOOTING, NOT_STUCK)
        return wait("unknown.running", "EC2 reports the instance as running", write, after=0.0, conditions=conditions)
    if state in (InstanceState.PENDING, InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, observed, now)
    if state is not InstanceState.UNKNOWN:
        decided = unexpected_state(worker, observed, policy)
        assert decided is not None
        return decided
    reason = f"EC2 still reports an unrecognized state {observed.instance.state_reason}".rstrip()
    if seconds_in_status(worker, now) > policy.stuck_after:
        return wait("unknown.wait", reason, conditions=(stuck("UnknownState", reason),))
    return wait("unknown.wait", reason)
