"""TERMINATING: the license is deregistered, then the instance is terminated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import POLL_SECONDS, seconds_in_status, stuck
from lcm.controllers.worker.decide.shared.instance import (
    ABSENT_RULE,
    BY_CONTROLLER,
    instance_lost,
    instance_not_visible,
    unrecognized_state,
)
from lcm.controllers.worker.decide.shared.license_release import (
    RULE_PREFIX,
    release_before_termination,
    release_bound,
)
from lcm.controllers.worker.decide.shared.waiting import NOT_WAITING
from lcm.controllers.worker.decision import (
    ChangeInstance,
    CloudCall,
    WriteStatus,
    success,
    wait,
)
from lcm.model.formatting import count_minutes
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Deregister the license while CML is reachable, terminate the instance, wait until it is gone."""
    if worker.instance_id is None:
        reason = "the worker has no instance to terminate"
        fields = {"terminated_by": BY_CONTROLLER, "terminated_reason": reason}
        return success(
            "terminating.no_instance", reason, WriteStatus(WorkerStatus.TERMINATED, reason, ActionKind.RECORD, fields)
        )
    decided = (
        instance_lost(worker, observed, policy) if observed.instance.gone else _decide(worker, observed, policy, now)
    )
    if decided.rule.startswith(RULE_PREFIX) or (observed.instance.gone and decided.rule != ABSENT_RULE):
        return decided
    waited = (now - release_bound(worker, policy)).total_seconds()
    if waited > policy.stuck_after:
        in_status = seconds_in_status(worker, now)
        message = f"TERMINATING for {count_minutes(in_status)}; last observed: {observed.instance.summary}"
        return decided.with_added(conditions=(stuck("StillTerminating", message),))
    return decided


def _decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    state = observed.instance.state
    if state is None:
        return instance_not_visible(observed)
    if state is InstanceState.SHUTTING_DOWN:
        return wait(
            "terminating.shutting_down",
            "the instance is shutting down",
            after=POLL_SECONDS,
            conditions=(NOT_WAITING,),
        )
    if worker.desired_status is not DesiredStatus.TERMINATED:
        if state is InstanceState.UNKNOWN:
            return unrecognized_state(observed)
        reason = (
            f"EC2 reports the instance as {state.value} although it was shutting down, and termination is not desired"
        )
        return wait("terminating.not_desired", reason)
    release = release_before_termination(worker, observed, policy, now)
    if release is not None:
        return release
    return wait(
        "terminating.terminate", "termination is requested", ChangeInstance(CloudCall.TERMINATE), after=POLL_SECONDS
    )
