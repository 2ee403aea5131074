"""DRAINING: no new work, and a stop as soon as the present work is done."""

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
from lcm.controllers.worker.decision import ConditionUpdate, WriteStatus, wait
from lcm.model.formatting import count_with_verb
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Wait until no node runs and no lablet is assigned, at most DRAIN_TIMEOUT; then stop."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    state = seen.sight.state
    if state in (InstanceState.STOPPING, InstanceState.STOPPED):
        return follow_instance(worker, seen)
    if state not in (InstanceState.RUNNING, InstanceState.PENDING):
        return unexpected_state(worker, seen, policy) or instance_not_visible(seen)
    if state is InstanceState.PENDING:
        return wait("draining.pending", "EC2 shows the instance as pending", after=POLL_SECONDS)
    if worker.desired_status is DesiredStatus.RUNNING:
        reason = "it is to run: the drain is over"
        write = WriteStatus(WorkerStatus.RUNNING, reason, ActionKind.INTENT)
        return wait("draining.cancelled", reason, write, after=0.0, conditions=(NOT_DRAINING,))
    return _drain(worker, seen, policy, now)


def _drain(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    waited = seconds_in_status(worker, now)
    busy = _busy(seen)
    if busy and waited < policy.drain_timeout:
        left = policy.drain_timeout - waited
        said = ConditionUpdate(ConditionType.DRAINING, ConditionStatus.TRUE, "Waiting", busy)
        # Lablets that end meanwhile are taken down as long as CML answers: whoever does that must know.
        told = (said, *cml_conditions(seen))
        return wait(
            "draining.wait", f"{busy}; at most {left:.0f} s more", after=min(left, POLL_SECONDS), conditions=told
        )
    reason = (
        f"the drain has lasted {policy.drain_timeout:g} s, though {busy}" if busy else "nothing runs on it any more"
    )
    return begin_stop(reason)


def _busy(seen: Observation) -> str:
    """What the drain waits for; nothing: the empty text."""
    if seen.lablets:
        return f"{count_with_verb(seen.lablets, 'lablet')} assigned to it"
    if seen.cml.running_nodes is None or seen.cml.ready is not True:
        return "CML does not say whether nodes run"
    if seen.cml.running_nodes:
        return f"{seen.cml.running_nodes} nodes run on it"
    return ""
