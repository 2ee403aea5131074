"""Deregistering a license before its instance stops or ends.

A stopped instance whose license is registered is started for this one purpose before it is terminated. The time at
which that began is on the record before the call, so that its bounds outlive a leader. They leave out time on hold.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    CML_NOT_RUNNING,
    POLL_SECONDS,
    changed_instance_fields,
    cml_conditions,
    instance_ready,
    reason_of_state,
    seconds_in_status,
)
from lcm.controllers.worker.decide.shared.license import releases_before_termination
from lcm.controllers.worker.decide.shared.waiting import NOT_WAITING
from lcm.controllers.worker.decision import (
    ChangeInstance,
    CloudCall,
    ConditionUpdate,
    DeregisterLicense,
    WriteLicenseStatus,
    WriteStatus,
    wait,
)
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.model.fleet.settings import LicenseOnStop
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.status import LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Action, Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

MAX_RELEASES_PER_REGION = 3
"""Instances of a region that are started at once to deregister their licenses."""
RESTART_SECONDS = 60.0
TURN_SECONDS = 30.0
RULE_PREFIX = "terminating.license_"
_NOT_HELD = ConditionUpdate(ConditionType.HELD, None)


def releases_on_stop(worker: Worker, policy: Policy) -> bool:
    """Whether its license is deregistered before a stop. Without a token it could not be registered again."""
    return (
        policy.settings is not None
        and policy.settings.idle.license_on_stop is LicenseOnStop.RELEASE
        and worker.license_status is LicenseStatus.REGISTERED
        and worker.has_license_token
    )


def release_before_stop(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision | None:
    """What to do about the license before the stop; None if nothing, or not any more: then it is kept."""
    if not releases_on_stop(worker, policy):
        return None
    # The token stays, so that the worker is registered again after its next start.
    ended = _ended(observed, LicenseStatus.UNREGISTERED, "deregistered before the stop (LICENSE_ON_STOP=release)")
    if ended is not None:
        return wait("stopping.license_released", ended.message, ended, after=0.0)
    left = policy.license_release_timeout - seconds_in_status(worker, now)
    return None if left <= 0 else _deregister("stopping", observed, left)


def release_before_termination(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision | None:
    """What to do about the license before the termination; None if nothing, or not any more: then it is leaked."""
    if not releases_before_termination(worker):
        return None
    ended = _ended(observed, LicenseStatus.DEREGISTERED, "deregistered before termination")
    if ended is not None:
        return wait(f"{RULE_PREFIX}released", ended.message, ended, after=0.0)
    if worker.license_release_started_at is not None:
        return _after_start(worker, observed, policy, now)
    if observed.instance.state is InstanceState.RUNNING:
        left = policy.license_release_timeout - seconds_in_status(worker, now)
        return None if left <= 0 else _deregister("terminating", observed, left)
    if worker.license_status is not LicenseStatus.REGISTERED or not worker.can_sign_in:
        return None  # started without credentials, its license could not be deregistered
    return _before_start(worker, observed, now)


def release_bound(worker: Worker, policy: Policy) -> datetime:
    """When the last bound of the deregistration ends; before that a worker that ends is not stuck."""
    if worker.license_release_started_at is None:
        return worker.status_since
    bounds = policy.starting_timeout + policy.cml_ready_timeout + policy.license_release_timeout
    return max(worker.status_since, worker.license_release_started_at + timedelta(seconds=bounds))


def note_hold(worker: Worker, decision: Decision) -> Decision:
    """The decision under a hold, with a mark on the record: while it is there, no bound of the release runs."""
    if worker.status is not WorkerStatus.TERMINATING or worker.license_release_started_at is None:
        return decision
    message = "on hold; the time limit for deregistering the license is paused"
    return decision.with_added(
        conditions=(ConditionUpdate(ConditionType.HELD, ConditionStatus.TRUE, "OnHold", message),)
    )


def _ended(observed: Observation, status: LicenseStatus, message: str) -> WriteLicenseStatus | None:
    """The write for a license that was just deregistered."""
    if observed.license_task is LicenseTaskState.LEAKED:
        message = "CML deregistered locally, but Cisco still counts the license"
        return WriteLicenseStatus(status, message, clear_pending=True, leaked=True)
    if observed.license_task is LicenseTaskState.RELEASED:
        return WriteLicenseStatus(status, message, clear_pending=True)
    return None


def _deregister(phase: str, observed: Observation, left: float) -> Decision:
    after = min(left, POLL_SECONDS)
    if observed.license_task is LicenseTaskState.RUNNING:
        return wait(f"{phase}.license_releasing", "the license is being deregistered", after=after)
    return wait(f"{phase}.license_release", "the license is deregistered first", DeregisterLicense(), after=after)


# An instance that is started for its license


def _before_start(worker: Worker, observed: Observation, now: datetime) -> Decision | None:
    state = observed.instance.state
    if state is InstanceState.STOPPING:
        reason = "the instance is stopping; after that it is started once more to deregister its license"
        return wait(
            f"{RULE_PREFIX}stopping",
            reason,
            after=POLL_SECONDS,
            conditions=(instance_ready(False, reason_of_state(state)),),
        )
    if state not in (InstanceState.STOPPED, InstanceState.PENDING):
        return None
    if observed.license_releases >= MAX_RELEASES_PER_REGION:
        reason = (
            f"{MAX_RELEASES_PER_REGION} instances of {worker.aws_region} are being started to deregister their"
            " licenses; this one waits for its turn"
        )
        return wait(
            f"{RULE_PREFIX}turn",
            reason,
            after=TURN_SECONDS,
            conditions=(instance_ready(False, reason_of_state(state)),),
        )
    reason = "the instance is started once more to deregister its license"
    write = WriteStatus(WorkerStatus.TERMINATING, reason, ActionKind.INTENT, {"license_release_started_at": now})
    call: tuple[Action, ...] = () if state is InstanceState.PENDING else (ChangeInstance(CloudCall.START),)
    conditions = (instance_ready(False, "Starting", reason), *CML_NOT_RUNNING, NOT_WAITING)
    return wait(f"{RULE_PREFIX}start", reason, write, *call, after=POLL_SECONDS, conditions=conditions)


def _after_start(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> Decision | None:
    held = find_condition(worker.conditions, ConditionType.HELD)
    if held is not None and policy.hold_on(worker, now) is None:
        return _continue_after_hold(worker, max(timedelta(), now - held.since))
    left = _seconds_left(worker, observed, policy, now if held is None else min(now, held.since))
    if left <= 0:
        return None
    state = observed.instance.state
    if state is InstanceState.RUNNING:
        return _with_running_instance(worker, observed, now, left)
    if state is InstanceState.STOPPED:
        refused_at = observed.no_capacity_at
        pause = 0.0 if refused_at is None else refused_at + RESTART_SECONDS - observed.boottime
        if pause > 0:
            return wait(
                f"{RULE_PREFIX}no_capacity", "EC2 has no capacity to start the instance", after=min(pause, left)
            )
        reason = "the instance is started once more to deregister its license"
        return wait(f"{RULE_PREFIX}start_again", reason, ChangeInstance(CloudCall.START), after=min(left, POLL_SECONDS))
    known = "unknown" if state is None else state.value
    return wait(
        f"{RULE_PREFIX}starting",
        f"the instance is {known}; once it runs, its license is deregistered",
        after=min(left, POLL_SECONDS),
    )


def _continue_after_hold(worker: Worker, pause: timedelta) -> Decision:
    assert worker.license_release_started_at is not None
    fields = {"license_release_started_at": worker.license_release_started_at + pause}
    if worker.license_release_ready_at is not None:
        fields["license_release_ready_at"] = worker.license_release_ready_at + pause
    reason = "the hold has ended; the time on hold does not count"
    write = WriteStatus(WorkerStatus.TERMINATING, reason, ActionKind.RECORD, fields)
    return wait(f"{RULE_PREFIX}continued", reason, write, after=0.0, conditions=(_NOT_HELD,))


def _seconds_left(worker: Worker, observed: Observation, policy: Policy, now: datetime) -> float:
    assert worker.license_release_started_at is not None
    if worker.license_release_ready_at is not None:
        return policy.license_release_timeout - (now - worker.license_release_ready_at).total_seconds()
    bound = policy.starting_timeout
    if observed.instance.state is InstanceState.RUNNING:
        bound += policy.cml_ready_timeout
    return bound - (now - worker.license_release_started_at).total_seconds()


def _with_running_instance(worker: Worker, observed: Observation, now: datetime, left: float) -> Decision:
    assert worker.license_release_started_at is not None
    fields = changed_instance_fields(worker, observed.instance)
    queried_at = observed.cml.queried_at
    responds = bool(observed.cml.ready) and queried_at is not None and queried_at >= worker.license_release_started_at
    reason = "the instance runs; its license is deregistered as soon as CML responds"
    if worker.license_release_ready_at is None and responds:
        fields["license_release_ready_at"] = now
        reason = "CML responds; its license is deregistered"
    if fields:
        write = WriteStatus(WorkerStatus.TERMINATING, reason, ActionKind.RECORD, fields)
        seen = (instance_ready(True, "Running"), NOT_WAITING)
        return wait(f"{RULE_PREFIX}running", reason, write, after=0.0, conditions=seen)
    if worker.license_release_ready_at is None:
        conditions = (instance_ready(True, "Running"), NOT_WAITING, *cml_conditions(worker, observed))
        return wait(f"{RULE_PREFIX}booting", reason, after=min(left, POLL_SECONDS), conditions=conditions)
    return _deregister("terminating", observed, left)
