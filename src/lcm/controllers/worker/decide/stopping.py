"""STOPPING: waiting for the instance to be stopped, and trying again as long as it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    CML_NOT_RUNNING,
    NOT_STUCK,
    POLL_SECONDS,
    changed_instance_fields,
    instance_ready,
    seconds_in_status,
    stuck,
)
from lcm.controllers.worker.decide.shared.instance import begin_termination, instance_not_visible, unexpected_state
from lcm.controllers.worker.decide.starting import CML_BOOTING
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, success, wait
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Stop what still runs, if that is wanted; past STUCK_AFTER say so and go on."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    if worker.instance_id is None:
        reason = "it has no instance: there is nothing to stop"
        return success("stopping.no_instance", reason, WriteStatus(WorkerStatus.STOPPED, reason))
    decided = _decide(worker, seen, policy)
    waited = seconds_in_status(worker, now)
    if waited > policy.stuck_after and not any(isinstance(action, WriteStatus) for action in decided.actions):
        message = f"it is STOPPING for {waited / 60:.0f} minutes; last seen: {seen.sight.word}"
        return decided.adding(conditions=(stuck("StillStopping", message),))
    return decided


def _decide(worker: Worker, seen: Observation, policy: Policy) -> Decision:
    state = seen.sight.state
    if state is InstanceState.STOPPED:
        write = WriteStatus(WorkerStatus.STOPPED, "the instance is stopped")
        said = (instance_ready(False, "Stopped"), *CML_NOT_RUNNING, NOT_STUCK)
        after = 0.0 if worker.desired_status is DesiredStatus.RUNNING else None
        if after is None:
            return success("stopping.stopped", "the instance is stopped", write, conditions=said)
        return wait("stopping.stopped", "the instance is stopped", write, after=after, conditions=said)
    if state is InstanceState.RUNNING:
        return _still_runs(worker, seen)
    if state in (InstanceState.STOPPING, InstanceState.PENDING):
        shown = instance_ready(False, state.value.capitalize())
        return wait(
            f"stopping.{state.value}", f"the instance is {state.value}", after=POLL_SECONDS, conditions=(shown,)
        )
    return unexpected_state(worker, seen, policy) or instance_not_visible(seen)


def _still_runs(worker: Worker, seen: Observation) -> Decision:
    if worker.desired_status is DesiredStatus.RUNNING:
        reason = "the instance runs, and it is to run after all"
        write = WriteStatus(
            WorkerStatus.RUNNING, reason, ActionKind.RECORD, changed_instance_fields(worker, seen.sight)
        )
        return wait(
            "stopping.running", reason, write, after=0.0, conditions=(instance_ready(True, "Running"), CML_BOOTING)
        )
    return wait("stopping.stop", "the instance still runs", ChangeInstance(CloudCall.STOP), after=POLL_SECONDS)
