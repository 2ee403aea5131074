"""STOPPING: waits until the instance is stopped, and repeats the call while it runs."""

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
from lcm.controllers.worker.decide.shared.license_release import release_before_stop
from lcm.controllers.worker.decide.shared.waiting import NOT_WAITING
from lcm.controllers.worker.decide.starting import CML_BOOTING
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, success, wait
from lcm.model.formatting import count_minutes
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Stop an instance that still runs; after STUCK_AFTER report the worker as stuck and continue."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    if worker.instance_id is None:
        reason = "the worker has no instance to stop"
        return success("stopping.no_instance", reason, WriteStatus(WorkerStatus.STOPPED, reason))
    decided = _decide(worker, observed, policy, now)
    waited = seconds_in_status(worker, now)
    if waited > policy.stuck_after and not any(isinstance(action, WriteStatus) for action in decided.actions):
        message = f"STOPPING for {count_minutes(waited)}; last observed: {observed.instance.summary}"
        return decided.with_added(conditions=(stuck("StillStopping", message),))
    return decided


def _decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    state = observed.instance.state
    if state is InstanceState.STOPPED:
        write = WriteStatus(WorkerStatus.STOPPED, "the instance is stopped")
        conditions = (instance_ready(False, "Stopped"), *CML_NOT_RUNNING, NOT_STUCK)
        after = 0.0 if worker.desired_status is DesiredStatus.RUNNING else None
        if after is None:
            return success("stopping.stopped", "the instance is stopped", write, conditions=conditions)
        return wait("stopping.stopped", "the instance is stopped", write, after=after, conditions=conditions)
    if state is InstanceState.RUNNING:
        return _still_runs(worker, observed, policy, now)
    if state in (InstanceState.STOPPING, InstanceState.PENDING):
        condition = instance_ready(False, state.value.capitalize())
        return wait(
            f"stopping.{state.value}",
            f"the instance is {state.value}",
            after=POLL_SECONDS,
            conditions=(condition, NOT_WAITING),
        )
    return unexpected_state(worker, observed, policy) or instance_not_visible(observed)


def _still_runs(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    if worker.desired_status is DesiredStatus.RUNNING:
        reason = "the instance runs, and the desired status is RUNNING again"
        write = WriteStatus(
            WorkerStatus.RUNNING, reason, ActionKind.RECORD, changed_instance_fields(worker, observed.instance)
        )
        return wait(
            "stopping.running", reason, write, after=0.0, conditions=(instance_ready(True, "Running"), CML_BOOTING)
        )
    release = release_before_stop(worker, observed, policy, now)
    if release is not None:
        return release
    return wait("stopping.stop", "the instance still runs", ChangeInstance(CloudCall.STOP), after=POLL_SECONDS)
