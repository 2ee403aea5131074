"""PENDING: launches exactly once, whatever crashes or times out in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.errors import (
    CloudAuthenticationError,
    CloudRefusedError,
    CloudThrottledError,
    InsufficientCapacityError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
    UnsupportedInZoneError,
    condition_reason,
)
from lcm.cloud.types import ATTEMPT_TAG, InstanceState, LaunchParameters
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import POLL_SECONDS, instance_ready, within_last_hour
from lcm.controllers.worker.decide.shared.instance import BY_CONTROLLER
from lcm.controllers.worker.decide.shared.kvm import KVM_NOT_MISSING
from lcm.controllers.worker.decide.shared.waiting import (
    NOT_OBSERVED,
    NOT_WAITING,
    current_wait,
    pause_without_capacity,
    waiting_for,
)
from lcm.controllers.worker.decide.stopped import MAX_RESTORES_PER_HOUR
from lcm.controllers.worker.decision import Launch, StoreLaunchIntent, WriteStatus, retry, success, wait
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cloud.errors import CloudError
    from lcm.cloud.types import Instance
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import LaunchIntent, Worker

DEFINITE_ERRORS = (
    CloudRefusedError,
    InsufficientCapacityError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
    UnsupportedInZoneError,
)
"""Definite responses to a launch call: the same call would get the same one."""
LAUNCH_SETTLE_SECONDS = 300.0
"""Seconds after the end of a launch call during which its instance may not be visible yet."""
_NEVER_LAUNCHED = {"terminated_by": BY_CONTROLLER, "terminated_reason": "nothing was launched"}


def decide(worker: Worker, observed: Observation, _policy: Policy, now: datetime) -> Decision:
    """First find out what may have been launched, whatever is desired; then launch, wait or terminate."""
    if worker.instance_id is not None:
        reason = "the worker already has an instance"
        return wait("pending.has_instance", reason, WriteStatus(WorkerStatus.PROVISIONING, reason), after=0.0)
    if worker.launch_intent is not None:
        return _resolve_launch_attempt(worker, worker.launch_intent, observed)
    if worker.desired_status is DesiredStatus.TERMINATED:
        write = WriteStatus(
            WorkerStatus.TERMINATED, "the worker was never launched", ActionKind.RECORD, _NEVER_LAUNCHED
        )
        return success("pending.never_launched", "the worker was never launched", write)
    if worker.desired_status is DesiredStatus.STOPPED:
        return success("pending.rest", "the desired status is STOPPED: nothing is launched", conditions=(NOT_WAITING,))
    replaced = within_last_hour(worker.replaced_at, now)
    if len(replaced) > MAX_RESTORES_PER_HOUR:
        reason = f"the instance was lost {len(replaced)} times within an hour; retry when the cause is fixed"
        return success("replace.given_up", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.INTENT))
    return _launch(worker, observed, now)


def _launch(worker: Worker, observed: Observation, now: datetime) -> Decision:
    """Start a new attempt, or adopt a live instance of an earlier one."""
    instance = _adoptable(observed, worker.launch_attempt + 1)
    if instance is not None:
        return _adopt(instance)
    if observed.launched_instances is None or not observed.launched_instances.complete:
        return _cannot_search(observed)
    resolved = observed.resolution
    if resolved is None:
        return retry("pending.unresolved", "the launch parameters are not resolved yet")
    if resolved.parameters is None:
        if resolved.permanent:
            write = WriteStatus(WorkerStatus.FAILED, resolved.error, ActionKind.INTENT)
            refused = (instance_ready(False, resolved.condition_reason, resolved.error),)
            return success("pending.refused", resolved.error, write, conditions=refused)
        conditions = (
            instance_ready(False, "NotLaunched", resolved.error),
            waiting_for(resolved.condition_reason, resolved.error),
        )
        return retry("pending.not_resolved", resolved.error, conditions=conditions)
    left, waits = pause_without_capacity(worker, observed, now), current_wait(worker)
    if left > 0 and waits is not None:
        condition = waiting_for(waits.reason, waits.message)
        return wait("pending.no_capacity", waits.message, after=left, conditions=(condition,))
    attempt = worker.launch_attempt + 1
    reason = f"launch attempt {attempt}"
    intent = StoreLaunchIntent(attempt, resolved.parameters)
    return wait("pending.launch", reason, intent, Launch(attempt, resolved.parameters), after=POLL_SECONDS)


def _resolve_launch_attempt(worker: Worker, intent: LaunchIntent, observed: Observation) -> Decision:
    """A launch intent is stored: find its instance, repeat the same call, or conclude that nothing was launched."""
    instance = _adoptable(observed, intent.attempt)
    if instance is not None:
        return _adopt(instance)
    if observed.launched_instances is None or not observed.launched_instances.complete:
        return _cannot_search(observed)
    calls = observed.calls
    certain = calls.refusal is not None and not calls.uncertain
    settles_at = calls.deadline + LAUNCH_SETTLE_SECONDS
    # The same call must have the same parameters: one of a newer version cannot be repeated here, only waited for.
    replayable = worker.desired_status is DesiredStatus.RUNNING and LaunchParameters.are_known(intent.parameters)
    if certain or observed.launched_instances.began_at > settles_at:
        refusal = calls.refusal
        if certain or refusal is not None or not replayable:
            return _not_launched(worker, refusal)
    if replayable and _may_replay(calls.refusal):
        parameters = LaunchParameters.from_json(intent.parameters)
        reason = f"the outcome of launch attempt {intent.attempt} is unknown: the same call is repeated"
        return wait("pending.replay", reason, Launch(intent.attempt, parameters), after=POLL_SECONDS)
    left = max(POLL_SECONDS, settles_at - observed.boottime)
    reason = f"the outcome of launch attempt {intent.attempt} is unknown; it will be known in {left:.0f} s"
    return wait("pending.settling", reason, after=min(left, 30.0))


def _may_replay(refusal: CloudError | None) -> bool:
    """Whether to repeat the same call: not after a definite response, which would be the same again."""
    return not isinstance(refusal, DEFINITE_ERRORS)


def _not_launched(worker: Worker, refusal: CloudError | None) -> Decision:
    """This attempt has certainly launched nothing."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        write = WriteStatus(WorkerStatus.TERMINATED, "nothing was launched", ActionKind.RECORD, _NEVER_LAUNCHED)
        return success("pending.not_launched", "nothing was launched", write)
    settled = {"launch_intent": None}
    if worker.desired_status is DesiredStatus.STOPPED:
        write = WriteStatus(WorkerStatus.PENDING, "nothing was launched", ActionKind.RECORD, settled)
        why = "nothing was launched, and the desired status is STOPPED"
        return success("pending.not_launched", why, write, conditions=(NOT_WAITING,))
    if isinstance(refusal, CloudRefusedError):
        reason = f"EC2 rejected the launch: {refusal}"
        return success("pending.refused", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.RECORD, settled))
    reason = f"the attempt launched nothing: {refusal}" if refusal else "the attempt launched nothing"
    cause = refusal.condition_reason if refusal else "NotLaunched"
    conditions = [instance_ready(False, cause, reason)]
    if isinstance(refusal, InsufficientCapacityError | UnsupportedInZoneError):
        conditions.append(waiting_for(cause, reason))
    write = WriteStatus(WorkerStatus.PENDING, reason, ActionKind.RECORD, settled)
    return retry("pending.next_attempt", reason, write, conditions=tuple(conditions))


def _adoptable(observed: Observation, attempt: int) -> Instance | None:
    """The instance of this attempt in any state, or a live one of another attempt; the newest one."""
    if observed.launched_instances is None:
        return None
    adoptable = [
        instance
        for instance in observed.launched_instances.instances
        if instance.state.live or instance.tags.get(ATTEMPT_TAG) == str(attempt)
    ]
    return max(adoptable, key=lambda instance: (instance.state.live, instance.launched_at, instance.id), default=None)


def _adopt(instance: Instance) -> Decision:
    reason = f"instance {instance.id} was launched for the worker"
    fields = launched_fields(instance, None)
    if instance.state is InstanceState.TERMINATED:
        reason += " and has been terminated since"
    write = WriteStatus(WorkerStatus.PROVISIONING, reason, ActionKind.RECORD, fields)
    return wait("pending.adopt", reason, write, after=0.0, conditions=(KVM_NOT_MISSING,))


def _cannot_search(observed: Observation) -> Decision:
    error = observed.launched_instances.error if observed.launched_instances is not None else ""
    reason = f"cannot search EC2 for earlier launches: {error}".rstrip(": ")
    conditions = (instance_ready(False, NOT_OBSERVED, reason), waiting_for(NOT_OBSERVED, reason))
    return retry("pending.not_observed", reason, conditions=conditions)


def launched_fields(instance: Instance, account_id: str | None) -> dict[str, object]:
    """The fields of the record that a launch sets."""
    fields: dict[str, object] = {
        "instance_id": instance.id,
        "instance_type": instance.instance_type,
        "ami_id": instance.image_id,
        "private_ip": instance.private_ip,
    }
    return {**fields, "aws_account_id": account_id} if account_id else fields


def launched(instance: Instance, account_id: str | None) -> Decision:
    """The call returned an instance: one write records it."""
    reason = f"launched instance {instance.id}"
    write = WriteStatus(WorkerStatus.PROVISIONING, reason, ActionKind.RECORD, launched_fields(instance, account_id))
    condition = instance_ready(False, "Pending", "EC2 is starting the instance")
    return wait("pending.launched", reason, write, after=POLL_SECONDS, conditions=(condition, KVM_NOT_MISSING))


def launch_failed(worker: Worker, error: Exception, *, certain: bool) -> Decision:
    """The call returned no instance. `certain`: no call of this attempt can have launched anything."""
    if isinstance(error, DEFINITE_ERRORS) and not isinstance(error, LaunchTokenMismatchError) and certain:
        return _not_launched(worker, error)
    problem = "the outcome of the launch is unknown"
    if isinstance(error, CloudThrottledError):
        problem = "EC2 throttled the launch"
    elif isinstance(error, CloudAuthenticationError):
        problem = "AWS could not authenticate LCM; the launch is repeated"
    reason, cause = f"{problem}: {error}", condition_reason(error)
    conditions = (instance_ready(False, cause, str(error)), waiting_for(cause, reason))
    return retry("pending.launch_failed", reason, conditions=conditions)
