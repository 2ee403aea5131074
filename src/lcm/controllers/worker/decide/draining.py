"""DRAINING: no new work; the worker stops as soon as its current work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    NOT_DRAINING,
    POLL_SECONDS,
    cml_conditions,
    seconds_in_status,
)
from lcm.controllers.worker.decide.shared.instance import (
    begin_stop,
    begin_termination,
    follow_instance,
    instance_not_visible,
    unexpected_state,
)
from lcm.controllers.worker.decide.shared.license_release import releases_on_stop
from lcm.controllers.worker.decision import ConditionUpdate, WriteStatus, wait
from lcm.model.formatting import count_with_verb
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Wait until no node runs and no lablet is assigned, at most DRAIN_TIMEOUT; then stop."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    state = observed.instance.state
    if state in (InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, observed, now)
    if state not in (InstanceState.RUNNING, InstanceState.PENDING):
        return unexpected_state(worker, observed, policy) or instance_not_visible(observed)
    if state is InstanceState.PENDING:
        return wait("draining.pending", "EC2 reports the instance as pending", after=POLL_SECONDS)
    if worker.desired_status is DesiredStatus.RUNNING:
        reason = "the desired status is RUNNING: drain cancelled"
        write = WriteStatus(WorkerStatus.RUNNING, reason, ActionKind.INTENT)
        return wait("draining.cancelled", reason, write, after=0.0, conditions=(NOT_DRAINING,))
    return _drain(worker, observed, policy, now)


def _drain(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    waited = seconds_in_status(worker, now)
    busy = _busy(observed)
    if busy and waited < policy.drain_timeout:
        left = policy.drain_timeout - waited
        condition = ConditionUpdate(ConditionType.DRAINING, ConditionStatus.TRUE, "Waiting", busy)
        # Lablets that end meanwhile are removed as long as CML responds, so its condition must be current.
        conditions = (condition, *cml_conditions(worker, observed))
        return wait(
            "draining.wait",
            f"{busy}; waiting at most {left:.0f} s more",
            after=min(left, POLL_SECONDS),
            conditions=conditions,
        )
    reason = (
        f"the drain timed out after {policy.drain_timeout:g} s, although {busy}"
        if busy
        else "no work is left on the worker"
    )
    return begin_stop(reason, release_first=releases_on_stop(worker, policy))


def _busy(observed: Observation) -> str:
    """What the drain waits for; empty if nothing."""
    if observed.lablets:
        return f"{count_with_verb(observed.lablets, 'lablet')} assigned to the worker"
    if observed.cml.running_nodes is None or observed.cml.ready is not True:
        return "CML does not report whether nodes run"
    if observed.cml.running_nodes:
        return f"{observed.cml.running_nodes} nodes run on the worker"
    return ""
