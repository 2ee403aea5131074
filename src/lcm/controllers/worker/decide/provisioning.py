"""PROVISIONING: launched, waiting for the instance to run."""

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
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Wait for `became_running`, at most PROVISIONING_TIMEOUT."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    if worker.instance_id is None:
        reason = "it is PROVISIONING without an instance"
        return success("provisioning.no_instance", reason, WriteStatus(WorkerStatus.FAILED, reason))
    state = seen.sight.state
    if state is InstanceState.RUNNING:
        return _arrived(worker, seen)
    if state in (InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, seen)
    unexpected = None if state is InstanceState.PENDING else unexpected_state(worker, seen, policy)
    if unexpected is not None and seen.sight.visibility is not Visibility.NOT_VISIBLE:
        return unexpected
    waited = seconds_in_status(worker, now)
    if waited > policy.provisioning_timeout:
        reason = f"not running within {policy.provisioning_timeout:g} s; last seen: {seen.sight.word}"
        return success("provisioning.timeout", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.INTENT))
    if state is None:
        return instance_not_visible(seen)
    said = instance_ready(False, "Pending", "EC2 is starting the instance")
    return wait("provisioning.pending", "EC2 is starting the instance", after=POLL_SECONDS, conditions=(said,))


def _arrived(worker: Worker, seen: Observation) -> Decision:
    begun = WriteStatus(
        WorkerStatus.STARTING, "the instance is running", ActionKind.RECORD, changed_instance_fields(worker, seen.sight)
    )
    if worker.desired_status is DesiredStatus.STOPPED:
        return begin_stop("it is to be stopped", begun)
    if not seen.sight.has_address:
        said = instance_ready(False, "NoAddress", "the instance has no address yet")
        return wait(
            "provisioning.running", "the instance is running, without an address yet", begun, conditions=(said,)
        )
    return became_running(worker, seen, begun)
