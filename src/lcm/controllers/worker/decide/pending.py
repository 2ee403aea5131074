"""PENDING: launching exactly once, whatever crashes or times out in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.errors import (
    CloudRefusedError,
    CloudThrottledError,
    InsufficientCapacityError,
    LaunchTokenMismatchError,
    LaunchTokenSpentError,
)
from lcm.cloud.types import ATTEMPT_TAG, InstanceState, LaunchParameters
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import POLL_SECONDS, instance_ready, within_last_hour
from lcm.controllers.worker.decide.shared.instance import BY_CONTROLLER
from lcm.controllers.worker.decide.stopped import MAX_RESTORES_PER_HOUR
from lcm.controllers.worker.decision import Launch, StoreLaunchIntent, WriteStatus, retry, success, wait
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cloud.errors import CloudError
    from lcm.cloud.types import Instance
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import LaunchIntent, Worker

LAUNCH_SETTLE_SECONDS = 300.0
"""Seconds after the end of a launch call during which an instance may exist that nobody can see yet."""
_NEVER_LAUNCHED = {"terminated_by": BY_CONTROLLER, "terminated_reason": "nothing was launched"}


def decide(worker: Worker, seen: Observation, _policy: Policy, now: datetime) -> Decision:
    """Settle what may have been launched first, whatever is desired; then launch, wait or end."""
    if worker.instance_id is not None:
        reason = "it has an instance: that was launched for it"
        return wait("pending.has_instance", reason, WriteStatus(WorkerStatus.PROVISIONING, reason), after=0.0)
    if worker.launch_intent is not None:
        return _settle(worker, worker.launch_intent, seen)
    if worker.desired_status is DesiredStatus.TERMINATED:
        write = WriteStatus(WorkerStatus.TERMINATED, "it was never launched", ActionKind.RECORD, _NEVER_LAUNCHED)
        return success("pending.never_launched", "it was never launched", write)
    if worker.desired_status is DesiredStatus.STOPPED:
        return success("pending.rest", "it is not to run: nothing is launched")
    replaced = within_last_hour(worker.replaced_at, now)
    if len(replaced) > MAX_RESTORES_PER_HOUR:
        reason = f"its instance was lost {len(replaced)} times within an hour; retry it when the cause is mended"
        return success("replace.given_up", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.INTENT))
    return _launch(worker, seen)


def _launch(worker: Worker, seen: Observation) -> Decision:
    """A new attempt. An instance of an earlier one that still lives is taken instead."""
    found = _adoptable(seen, worker.launch_attempt + 1)
    if found is not None:
        return _adopt(found)
    if seen.traces is None or not seen.traces.complete:
        return _cannot_search(seen)
    resolved = seen.resolution
    if resolved is None:
        return retry("pending.unresolved", "what to launch has not been resolved")
    if resolved.parameters is None:
        if resolved.lasting:
            write = WriteStatus(WorkerStatus.FAILED, resolved.trouble, ActionKind.INTENT)
            return success("pending.refused", resolved.trouble, write)
        said = instance_ready(False, "NotLaunched", resolved.trouble)
        return retry("pending.not_resolved", resolved.trouble, conditions=(said,))
    attempt = worker.launch_attempt + 1
    reason = f"it is to run: launch attempt {attempt}"
    intent = StoreLaunchIntent(attempt, resolved.parameters)
    return wait("pending.launch", reason, intent, Launch(attempt, resolved.parameters), after=POLL_SECONDS)


def _settle(worker: Worker, intent: LaunchIntent, seen: Observation) -> Decision:
    """An intent is stored: find what came of it, make the same call again, or know that nothing did."""
    found = _adoptable(seen, intent.attempt)
    if found is not None:
        return _adopt(found)
    if seen.traces is None or not seen.traces.complete:
        return _cannot_search(seen)
    calls = seen.calls
    certain = calls.refusal is not None and not calls.unsure
    settles_at = calls.deadline + LAUNCH_SETTLE_SECONDS
    if certain or seen.traces.began_at > settles_at:
        refusal = calls.refusal
        if certain or refusal is not None or worker.desired_status is not DesiredStatus.RUNNING:
            return _not_launched(worker, refusal)
    if worker.desired_status is DesiredStatus.RUNNING and _may_replay(calls.refusal):
        parameters = LaunchParameters.from_json(intent.parameters)
        reason = f"launch attempt {intent.attempt} has no known end: the same call is made again"
        return wait("pending.replay", reason, Launch(intent.attempt, parameters), after=POLL_SECONDS)
    left = max(POLL_SECONDS, settles_at - seen.boottime)
    reason = (
        f"it is not known yet whether launch attempt {intent.attempt} had an effect; that is certain in {left:.0f} s"
    )
    return wait("pending.settling", reason, after=min(left, 30.0))


def _may_replay(refusal: CloudError | None) -> bool:
    """Whether to make the same call again: not after a definite answer, which would come again."""
    return not isinstance(
        refusal, CloudRefusedError | InsufficientCapacityError | LaunchTokenSpentError | LaunchTokenMismatchError
    )


def _not_launched(worker: Worker, refusal: CloudError | None) -> Decision:
    """Certainly nothing was launched by this attempt."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        write = WriteStatus(WorkerStatus.TERMINATED, "nothing was launched", ActionKind.RECORD, _NEVER_LAUNCHED)
        return success("pending.not_launched", "nothing was launched", write)
    settled = {"launch_intent": None}
    if worker.desired_status is DesiredStatus.STOPPED:
        write = WriteStatus(WorkerStatus.PENDING, "nothing was launched", ActionKind.RECORD, settled)
        return success("pending.not_launched", "nothing was launched, and it is not to run", write)
    if isinstance(refusal, CloudRefusedError):
        reason = f"EC2 refuses to launch it: {refusal}"
        return success("pending.refused", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.RECORD, settled))
    reason = f"the attempt launched nothing: {refusal}" if refusal else "the attempt launched nothing"
    said = instance_ready(False, type(refusal).__name__ if refusal else "NotLaunched", reason)
    write = WriteStatus(WorkerStatus.PENDING, reason, ActionKind.RECORD, settled)
    return retry("pending.next_attempt", reason, write, conditions=(said,))


def _adoptable(seen: Observation, attempt: int) -> Instance | None:
    """The instance of this attempt, in whatever state, or a live one of another; the newest counts."""
    if seen.traces is None:
        return None
    found = [
        instance
        for instance in seen.traces.instances
        if instance.state.live or instance.tags.get(ATTEMPT_TAG) == str(attempt)
    ]
    return max(found, key=lambda instance: (instance.state.live, instance.launched_at, instance.id), default=None)


def _adopt(found: Instance) -> Decision:
    reason = f"instance {found.id} was launched for it"
    fields = launched_fields(found, None)
    if found.state is InstanceState.TERMINATED:
        reason += " and has ended since"
    write = WriteStatus(WorkerStatus.PROVISIONING, reason, ActionKind.RECORD, fields)
    return wait("pending.adopt", reason, write, after=0.0)


def _cannot_search(seen: Observation) -> Decision:
    trouble = seen.traces.trouble if seen.traces is not None else ""
    return retry("pending.cannot_look", f"EC2 cannot be searched for earlier launches {trouble}".rstrip())


def launched_fields(instance: Instance, account_id: str | None) -> dict[str, object]:
    """Fields of the record that follow from a launch."""
    fields: dict[str, object] = {
        "instance_id": instance.id,
        "instance_type": instance.instance_type,
        "ami_id": instance.image_id,
        "private_ip": instance.private_ip,
    }
    return {**fields, "aws_account_id": account_id} if account_id else fields


def launched(instance: Instance, account_id: str | None) -> Decision:
    """The call gave an instance: one write keeps it."""
    reason = f"launched instance {instance.id}"
    write = WriteStatus(WorkerStatus.PROVISIONING, reason, ActionKind.RECORD, launched_fields(instance, account_id))
    said = instance_ready(False, "Pending", "EC2 is starting the instance")
    return wait("pending.launched", reason, write, after=POLL_SECONDS, conditions=(said,))


def launch_failed(worker: Worker, error: Exception, *, certain: bool) -> Decision:
    """The call gave no instance. `certain`: no call of this attempt can have launched anything."""
    if isinstance(error, CloudRefusedError | InsufficientCapacityError | LaunchTokenSpentError) and certain:
        return _not_launched(worker, error)
    word = type(error).__name__
    kind = "EC2 wants fewer calls" if isinstance(error, CloudThrottledError) else "the launch has no known end"
    said = instance_ready(False, word, str(error))
    return retry("pending.launch_failed", f"{kind}: {error}", conditions=(said,))
