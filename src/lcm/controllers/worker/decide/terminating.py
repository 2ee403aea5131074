"""TERMINATING: the license is deregistered, then the instance is terminated."""

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
from lcm.controllers.worker.decide.shared.waiting import NOT_WAITING
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
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

_LICENSED_STATUSES = (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING)


def decide(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision:
    """Deregister the license while CML is reachable, terminate the instance, wait until it is gone."""
    if worker.instance_id is None:
        reason = "the worker has no instance to terminate"
        fields = {"terminated_by": BY_CONTROLLER, "terminated_reason": reason}
        return success(
            "terminating.no_instance", reason, WriteStatus(WorkerStatus.TERMINATED, reason, ActionKind.RECORD, fields)
        )
    if observed.instance.gone:
        return instance_lost(worker, observed, policy)
    decided = _decide(worker, observed, policy, now)
    waited = seconds_in_status(worker, now)
    if waited > policy.stuck_after:
        message = f"TERMINATING for {waited / 60:.0f} minutes; last observed: {observed.instance.summary}"
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
    release = _deregister_first(worker, observed, policy, now)
    if release is not None:
        return release
    return wait(
        "terminating.terminate", "termination is requested", ChangeInstance(CloudCall.TERMINATE), after=POLL_SECONDS
    )


def _deregister_first(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision | None:
    """What to do about the license before the termination; None if nothing, or not any more."""
    if worker.license_status not in _LICENSED_STATUSES or observed.instance.state is not InstanceState.RUNNING:
        return None
    task = observed.license_task
    if task in (LicenseTaskState.RELEASED, LicenseTaskState.LEAKED):
        leaked = task is LicenseTaskState.LEAKED
        message = (
            "CML deregistered locally, but Cisco still counts the license"
            if leaked
            else "deregistered before termination"
        )
        write = WriteLicenseStatus(LicenseStatus.DEREGISTERED, message, clear_pending=True, leaked=leaked)
        return wait("terminating.license_released", message, write, after=0.0)
    left = policy.license_release_timeout - seconds_in_status(worker, now)
    if left <= 0:
        return None
    if task is LicenseTaskState.RUNNING:
        return wait("terminating.license_releasing", "the license is being deregistered", after=min(left, POLL_SECONDS))
    return wait(
        "terminating.license_release",
        "the license is deregistered first",
        DeregisterLicense(),
        after=min(left, POLL_SECONDS),
    )
