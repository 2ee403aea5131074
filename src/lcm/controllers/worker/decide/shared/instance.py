"""What becomes of a worker whose instance is gone: one rule for all statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.errors import (
    CloudError,
    CloudRefusedError,
    CloudThrottledError,
    IncorrectInstanceStateError,
    InstanceNotFoundError,
    InsufficientCapacityError,
)
from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import (
    CML_NOT_RUNNING,
    NOT_DRAINING,
    NOT_STUCK,
    POLL_SECONDS,
    STATUS_BY_STATE,
    instance_ready,
    stuck,
)
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, retry, success, wait
from lcm.controllers.worker.observe.observation import LossVerdict, Visibility
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker


BY_CONTROLLER = "worker-controller"
BY_DISCOVERY = "discovery-gc"
INSTANCE_NOT_FOUND = "EC2 instance not found during discovery"
# Statuses whose workers are marked by orphan detection when their instance cannot be found any more.
_ORPHAN_STATUSES = (
    WorkerStatus.STARTING,
    WorkerStatus.RUNNING,
    WorkerStatus.DRAINING,
    WorkerStatus.STOPPED,
    WorkerStatus.UNKNOWN,
)
_LEAVING_STATUSES = (WorkerStatus.DRAINING, WorkerStatus.TERMINATING)
_RECHECK_SECONDS = 10.0


def will_be_replaced(worker: Worker) -> bool:
    """Whether a new instance takes the place of a lost one."""
    return (
        worker.lost_instance_policy is LostInstancePolicy.REPLACE
        and worker.status not in _LEAVING_STATUSES
        and worker.template_name is not None
        and worker.desired_status is DesiredStatus.RUNNING
    )


def instance_lost(worker: Worker, seen: Observation, policy: Policy) -> Decision:
    """The instance is gone, and that was not asked for unless TERMINATED is desired."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return success(
            "gone.terminated", "the instance is gone, as it should be", _terminated(worker, seen, ActionKind.RECORD)
        )
    if not _may_mark_orphan(worker, seen, policy):
        message = "its instance cannot be found; orphan detection is switched off or its settings were never read"
        return wait("gone.unmarked", message, conditions=(stuck("InstanceMissing", message),), drift="missing")
    drift = "missing" if seen.sight.visibility is Visibility.GONE else seen.sight.word
    if seen.loss is not LossVerdict.ALLOWED:
        said = seen.loss_reason or seen.loss.value
        message = f"its instance is gone, but it is not marked as lost: {said}"
        missing = instance_ready(False, "InstanceMissing", message)
        return wait("gone.withheld", message, after=_RECHECK_SECONDS, conditions=(missing,), drift=drift)
    if will_be_replaced(worker):
        return _replace(worker, drift)
    if worker.status is WorkerStatus.PROVISIONING:
        reason = f"the instance {worker.instance_id} was lost before it was running"
        failed = WriteStatus(WorkerStatus.FAILED, reason, ActionKind.LOSS, {"instance_id": None, "public_ip": None})
        return success("gone.failed", reason, failed, drift=drift)
    return success(
        "gone.lost", f"the instance is gone ({drift})", _terminated(worker, seen, ActionKind.LOSS), drift=drift
    )


def instance_shutting_down(worker: Worker, seen: Observation) -> Decision:
    """Somebody ends the instance: that is recorded, or, where it will be replaced, waited for."""
    if will_be_replaced(worker):
        message = "its instance is being terminated; it will be replaced as soon as it is gone"
        said = (instance_ready(False, "ShuttingDown", message), *CML_NOT_RUNNING)
        return wait("replace.waiting", message, after=POLL_SECONDS, conditions=said, drift=seen.sight.word)
    reason = "EC2 is terminating the instance"
    fields = {"terminated_by": BY_CONTROLLER, "terminated_reason": reason}
    write = WriteStatus(WorkerStatus.TERMINATING, reason, ActionKind.RECORD, fields)
    said = (instance_ready(False, "ShuttingDown"), *CML_NOT_RUNNING)
    return wait("drift.shutting_down", reason, write, after=POLL_SECONDS, conditions=said, drift=seen.sight.word)


def _may_mark_orphan(worker: Worker, seen: Observation, policy: Policy) -> bool:
    if (
        seen.sight.visibility is not Visibility.GONE
        or worker.status not in _ORPHAN_STATUSES
        or will_be_replaced(worker)
    ):
        return True
    return policy.settings is not None and policy.settings.discovery.worker_discovery_enabled


def _replace(worker: Worker, drift: str) -> Decision:
    reason = f"the instance {worker.instance_id} is gone; another takes its place"
    fields = {"instance_id": None, "public_ip": None, "private_ip": None}
    write = WriteStatus(WorkerStatus.PENDING, reason, ActionKind.LOSS, fields)
    said = (instance_ready(False, "Replacing", reason), *CML_NOT_RUNNING)
    return wait("replace.begin", reason, write, after=0.0, conditions=said, drift=drift)


def _terminated(worker: Worker, seen: Observation, nature: ActionKind) -> WriteStatus:
    absent = seen.sight.visibility is Visibility.GONE
    if nature is ActionKind.LOSS and absent:
        by, reason = BY_DISCOVERY, INSTANCE_NOT_FOUND
    elif nature is ActionKind.LOSS:
        by, reason = BY_CONTROLLER, f"EC2 says that the instance is terminated {seen.sight.state_reason}".rstrip()
    else:
        by, reason = BY_CONTROLLER, "terminated as asked for"
    fields = {"terminated_by": worker.terminated_by or by, "terminated_reason": worker.terminated_reason or reason}
    return WriteStatus(WorkerStatus.TERMINATED, reason, nature, fields)


def begin_termination(worker: Worker, seen: Observation, policy: Policy) -> Decision:
    """TERMINATED is desired: enter TERMINATING, whose handler gives the licence back first; gone is gone."""
    if worker.instance_id is None or seen.sight.gone:
        return instance_lost(worker, seen, policy)
    write = WriteStatus(WorkerStatus.TERMINATING, "it is to be terminated", ActionKind.INTENT)
    said = (instance_ready(False, "Terminating"), NOT_DRAINING, NOT_STUCK)
    return wait("terminate.begin", "it is to be terminated", write, after=0.0, conditions=said)


def begin_stop(reason: str, *before: WriteStatus) -> Decision:
    """STOPPED is desired and the instance runs: write that down and stop it."""
    write = WriteStatus(WorkerStatus.STOPPING, reason, ActionKind.INTENT)
    said = (instance_ready(False, "Stopping"), *CML_NOT_RUNNING, NOT_DRAINING, NOT_STUCK)
    return wait(
        "stop.begin", reason, *before, write, ChangeInstance(CloudCall.STOP), after=POLL_SECONDS, conditions=said
    )


def instance_not_visible(seen: Observation) -> Decision:
    """Nothing can be concluded from not seeing an instance."""
    sight = seen.sight
    if sight.visibility is Visibility.NO_LOOK:
        reason = f"EC2 could not be asked: {sight.trouble}" if sight.trouble else "EC2 has not been looked at yet"
        return wait("look.none", reason)
    return wait("look.not_visible", "EC2 does not show the instance; that alone does not mean that it is gone")


def unexpected_state(worker: Worker, seen: Observation, policy: Policy) -> Decision | None:
    """What EC2 shows that no status expects: nothing, an end, or a state nobody knows. None: something else."""
    state = seen.sight.state
    if seen.sight.gone:
        return instance_lost(worker, seen, policy)
    if state is None:
        return instance_not_visible(seen)
    if state is InstanceState.SHUTTING_DOWN:
        return instance_shutting_down(worker, seen)
    return unrecognized_state(seen) if state is InstanceState.UNKNOWN else None


def unrecognized_state(seen: Observation) -> Decision:
    """EC2 shows a state that nobody knows."""
    reason = f"EC2 shows a state that nobody knows {seen.sight.state_reason}".rstrip()
    write = WriteStatus(WorkerStatus.UNKNOWN, reason)
    return wait("drift.unknown", reason, write, after=POLL_SECONDS, conditions=CML_NOT_RUNNING, drift=seen.sight.word)


def follow_instance(worker: Worker, seen: Observation, *, expected: bool = False) -> Decision:
    """Record the status that fits what EC2 shows. A stop that nobody here asked for is counted as drift."""
    state = seen.sight.state
    assert state is not None
    status = STATUS_BY_STATE[state]
    stops = status in (WorkerStatus.STOPPING, WorkerStatus.STOPPED)
    drifted = stops and not expected and worker.desired_status is DesiredStatus.RUNNING
    reason = f"EC2 shows the instance as {state.value}"
    fields: dict[str, object] = {"drift": True} if drifted and not worker.drifted else {}
    said = (instance_ready(False, state.value.capitalize(), reason), *CML_NOT_RUNNING, NOT_DRAINING)
    write = WriteStatus(status, reason, ActionKind.RECORD, fields)
    return wait(
        f"drift.{state.value}", reason, write, after=0.0 if stops else POLL_SECONDS, conditions=said, drift=state.value
    )


def instance_call_failed(call: CloudCall, error: Exception) -> Decision:
    """A definite refusal is told to people; whatever may have happened is looked at first."""
    if call is CloudCall.START and isinstance(error, InsufficientCapacityError):
        reason = f"EC2 has no capacity to start it: {error}"
        write = WriteStatus(WorkerStatus.STOPPED, reason)
        said = instance_ready(False, "NoCapacity", reason)
        return retry("start.no_capacity", reason, write, conditions=(said,))
    if isinstance(error, CloudRefusedError):
        reason = f"EC2 refuses to {call.value} it: {error}"
        if call is CloudCall.START:
            return success("start.refused", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.RECORD))
        return retry(f"{call.value}.refused", reason, conditions=(stuck("Refused", reason),))
    if isinstance(error, InstanceNotFoundError | IncorrectInstanceStateError):
        return wait(f"{call.value}.too_early", f"not possible now: {error}", after=POLL_SECONDS)
    if isinstance(error, CloudThrottledError):
        return retry(f"{call.value}.throttled", f"EC2 wants fewer calls: {error}")
    known = isinstance(error, CloudError)
    reason = str(error) if known else f"{type(error).__name__}: {error}"
    return retry(f"{call.value}.unknown", f"no answer to {call.value}: {reason}")
