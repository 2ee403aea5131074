"""TERMINATING: the licence is given back, then the instance is ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import POLL_SECONDS, seconds_in_status, stuck
from lcm.controllers.worker.decide.shared.instance import (
    BY_CONTROLLER,
    instance_lost,
    instance_not_visible,
    unrecognized_state,
)
from lcm.controllers.worker.decision import (
    ChangeInstance,
    CloudCall,
    DeregisterLicense,
    WriteLicenseStatus,
    WriteStatus,
    success,
    wait,
)
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker

_LICENSED_STATUSES = (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING)


def decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    """Give the licence back while CML can be reached, end the instance, wait until it is gone."""
    if worker.instance_id is None:
        reason = "it has no instance: there is nothing to end"
        fields = {"terminated_by": BY_CONTROLLER, "terminated_reason": reason}
        return success(
            "terminating.no_instance", reason, WriteStatus(WorkerStatus.TERMINATED, reason, ActionKind.RECORD, fields)
        )
    if seen.sight.gone:
        return instance_lost(worker, seen, policy)
    decided = _decide(worker, seen, policy, now)
    waited = seconds_in_status(worker, now)
    if waited > policy.stuck_after:
        message = f"it is TERMINATING for {waited / 60:.0f} minutes; last seen: {seen.sight.word}"
        return decided.adding(conditions=(stuck("StillTerminating", message),))
    return decided


def _decide(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision:
    state = seen.sight.state
    if state is None:
        return instance_not_visible(seen)
    if state is InstanceState.SHUTTING_DOWN:
        return wait("terminating.shutting_down", "the instance is shutting down", after=POLL_SECONDS)
    if worker.desired_status is not DesiredStatus.TERMINATED:
        if state is InstanceState.UNKNOWN:
            return unrecognized_state(seen)
        reason = f"EC2 shows the instance as {state.value} although it was seen ending, and nobody here wants that"
        return wait("terminating.not_desired", reason)
    release = _deregister_first(worker, seen, policy, now)
    if release is not None:
        return release
    return wait(
        "terminating.terminate", "it is to be terminated", ChangeInstance(CloudCall.TERMINATE), after=POLL_SECONDS
    )


def _deregister_first(worker: Worker, seen: Observation, policy: Policy, now: datetime) -> Decision | None:
    """What to do about the licence before the end; None: nothing, or nothing any more."""
    if worker.license_status not in _LICENSED_STATUSES or seen.sight.state is not InstanceState.RUNNING:
        return None
    task = seen.license_task
    if task in (LicenseTaskState.RELEASED, LicenseTaskState.LEAKED):
        leaked = task is LicenseTaskState.LEAKED
        message = "CML gave it up without Cisco knowing" if leaked else "given back before termination"
        write = WriteLicenseStatus(LicenseStatus.DEREGISTERED, message, clear_pending=True, leaked=leaked)
        return wait("terminating.licence_released", message, write, after=0.0)
    left = policy.license_release_timeout - seconds_in_status(worker, now)
    if left <= 0:
        return None
    if task is LicenseTaskState.RUNNING:
        return wait("terminating.licence_releasing", "the licence is being given back", after=min(left, POLL_SECONDS))
    return wait(
        "terminating.licence_release",
        "the licence is given back first",
        DeregisterLicense(),
        after=min(left, POLL_SECONDS),
    )
