"""PROVISIONING: the instance was launched and is not running yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
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
from lcm.controllers.worker.decide.starting import became_running
from lcm.controllers.worker.decision import WriteStatus, success, wait
from lcm.controllers.worker.observe.observation import Visibility
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Wait until the instance runs, at most PROVISIONING_TIMEOUT."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    if worker.instance_id is None:
        reason = "the worker is PROVISIONING without an instance"
        return success("provisioning.no_instance", reason, WriteStatus(WorkerStatus.FAILED, reason))
    state = observed.instance.state
    if state is InstanceState.RUNNING:
        return _instance_running(worker, observed)
    if state in (InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, observed, now)
    unexpected = None if state is InstanceState.PENDING else unexpected_state(worker, observed, policy)
    if unexpected is not None and observed.instance.visibility is not Visibility.NOT_VISIBLE:
        return unexpected
    waited = seconds_in_status(worker, now)
    if waited > policy.provisioning_timeout:
        reason = f"not running within {policy.provisioning_timeout:g} s; last observed: {observed.instance.summary}"
        return success("provisioning.timeout", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.INTENT))
    if state is None:
        return instance_not_visible(observed)
    condition = instance_ready(False, "Pending", "EC2 is starting the instance")
    return wait("provisioning.pending", "EC2 is starting the instance", after=POLL_SECONDS, conditions=(condition,))


def _instance_running(worker: Worker, observed: Observation) -> Decision:
    write = WriteStatus(
        WorkerStatus.STARTING,
        "the instance is running",
        ActionKind.RECORD,
        changed_instance_fields(worker, observed.instance),
    )
    if worker.desired_status is DesiredStatus.STOPPED:
        return begin_stop("the desired status is STOPPED", write)
    if not observed.instance.has_address:
        condition = instance_ready(False, "NoAddress", "the instance has no address yet")
        return wait(
            "provisioning.running", "the instance is running, but has no address yet", write, conditions=(condition,)
        )
    return became_running(worker, observed, write)
