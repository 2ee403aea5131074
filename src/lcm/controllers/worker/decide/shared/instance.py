"""Decisions about the instance that several statuses share: stop, terminate, follow, lost, failed calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudAuthenticationError,
    CloudError,
    CloudRefusedError,
    CloudThrottledError,
    IncorrectInstanceStateError,
    InstanceNotFoundError,
    InstanceProtectedError,
    InsufficientCapacityError,
)
from lcm.cloud.instance_cache import VISIBILITY_GRACE_SECONDS
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
from lcm.controllers.worker.decide.shared.waiting import waiting_for
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, retry, success, wait
from lcm.controllers.worker.observe.observation import LossVerdict, Visibility
from lcm.model.worker.conditions import INSTANCE_MISSING, STOPPED
from lcm.model.worker.status import STOP_STATUSES, DesiredStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


BY_CONTROLLER = "worker-controller"
BY_DISCOVERY = "discovery-gc"
INSTANCE_NOT_FOUND = "EC2 instance not found during discovery"
# Statuses in which discovery marks a worker as lost when its instance cannot be found any more.
_ORPHAN_STATUSES = (
    WorkerStatus.STARTING,
    WorkerStatus.RUNNING,
    WorkerStatus.DRAINING,
    WorkerStatus.STOPPED,
    WorkerStatus.UNKNOWN,
)
_LEAVING_STATUSES = (WorkerStatus.DRAINING, WorkerStatus.TERMINATING)
_RECHECK_SECONDS = 10.0
ABSENT_RULE = "terminate.absent"
ABSENT_SECONDS = 60.0
"""Seconds until an instance that EC2 accepted to terminate, and still does not list, is terminated again."""
RESTART_SECONDS = 60.0
"""Seconds until an instance that could not be started for lack of capacity is tried again, at first."""


def will_be_replaced(worker: Worker) -> bool:
    """Whether a lost instance is replaced by a new one."""
    return (
        worker.lost_instance_policy is LostInstancePolicy.REPLACE
        and worker.status not in _LEAVING_STATUSES
        and worker.template_name is not None
        and worker.desired_status is DesiredStatus.RUNNING
    )


def instance_lost(worker: Worker, observed: Observation, policy: Policy) -> Decision:
    """The instance is gone: as desired if TERMINATED is desired, otherwise lost."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        if _is_absent(observed) and worker.instance_id is not None:
            return _terminate_absent(worker)
        return _gone_as_desired(worker)
    if not _may_mark_orphan(worker, observed, policy):
        message = "the instance cannot be found; discovery is disabled or its settings were never read"
        return wait("gone.unmarked", message, conditions=(stuck("InstanceMissing", message),), drift="missing")
    drift = "missing" if observed.instance.visibility is Visibility.GONE else observed.instance.summary
    if observed.loss_verdict is not LossVerdict.ALLOWED:
        why = observed.loss_reason or observed.loss_verdict.value
        message = f"the instance is gone, but the worker is not marked as lost: {why}"
        missing = instance_ready(False, INSTANCE_MISSING, message)
        return wait("gone.withheld", message, after=_RECHECK_SECONDS, conditions=(missing,), drift=drift)
    if will_be_replaced(worker):
        return _replace(worker, observed, drift)
    if worker.status is WorkerStatus.PROVISIONING:
        reason = f"instance {worker.instance_id} was lost before it was running"
        fields = {"instance_id": None, "public_ip": None, **absence_fields(observed)}
        failed = WriteStatus(WorkerStatus.FAILED, reason, ActionKind.LOSS, fields)
        return success("gone.failed", reason, failed, drift=drift)
    return success("gone.lost", f"the instance is gone ({drift})", _lost(worker, observed), drift=drift)


def _terminate_absent(worker: Worker) -> Decision:
    """Nothing but its absence says that the instance is gone, and nobody would look for it once it is TERMINATED.

    TerminateInstances settles it: EC2 ends an instance that it only hid, or says that there is none.
    """
    reason = "EC2 no longer lists the instance; LCM terminates it anyway, because EC2 may only have hidden it"
    terminating = WriteStatus(WorkerStatus.TERMINATING, reason, ActionKind.INTENT)
    before = () if worker.status is WorkerStatus.TERMINATING else (terminating,)
    missing = instance_ready(False, INSTANCE_MISSING, "EC2 no longer lists the instance")
    return wait(
        ABSENT_RULE,
        reason,
        *before,
        ChangeInstance(CloudCall.TERMINATE),
        after=ABSENT_SECONDS,
        conditions=(missing, NOT_DRAINING),
    )


def _says_that_there_is_none(error: Exception) -> bool:
    """Whether the refusal fits an instance that does not exist, which its absence has proven before.

    Permissions may depend on tags of the instance. One that does not exist has none, so that the call is denied.
    """
    is_denied = isinstance(error, CloudAccessDeniedError) and not isinstance(error, InstanceProtectedError)
    return isinstance(error, InstanceNotFoundError) or is_denied


def instance_terminated(worker: Worker, state: InstanceState, observed: Observation | None) -> Decision | None:
    """What follows from the response to a termination: an instance that EC2 does not list may be terminated already."""
    ended = state is InstanceState.TERMINATED and _is_absent(observed)
    return _gone_as_desired(worker, "EC2 says that the instance is terminated") if ended else None


def _gone_as_desired(worker: Worker, reason: str = "the instance is gone, as desired") -> Decision:
    write = _terminated(worker, BY_CONTROLLER, "terminated on request", ActionKind.RECORD)
    return success("gone.terminated", reason, write)


def instance_shutting_down(worker: Worker, observed: Observation) -> Decision:
    """The instance is being terminated outside LCM: record that, or wait for its end if it will be replaced."""
    if will_be_replaced(worker):
        message = "the instance is being terminated; it will be replaced as soon as it is gone"
        conditions = (instance_ready(False, "ShuttingDown", message), *CML_NOT_RUNNING)
        return wait(
            "replace.waiting", message, after=POLL_SECONDS, conditions=conditions, drift=observed.instance.summary
        )
    reason = "EC2 is terminating the instance"
    fields = {"terminated_by": BY_CONTROLLER, "terminated_reason": reason}
    write = WriteStatus(WorkerStatus.TERMINATING, reason, ActionKind.RECORD, fields)
    conditions = (instance_ready(False, "ShuttingDown"), *CML_NOT_RUNNING)
    return wait(
        "drift.shutting_down", reason, write, after=POLL_SECONDS, conditions=conditions, drift=observed.instance.summary
    )


def _may_mark_orphan(worker: Worker, observed: Observation, policy: Policy) -> bool:
    if (
        observed.instance.visibility is not Visibility.GONE
        or worker.status not in _ORPHAN_STATUSES
        or will_be_replaced(worker)
    ):
        return True
    return policy.settings is not None and policy.settings.discovery.worker_discovery_enabled


def absence_fields(observed: Observation) -> dict[str, bool]:
    """The field of a loss that says whether EC2 no longer lists the instance, or shows it as terminated."""
    return {"instance_absent": True} if _is_absent(observed) else {}


def _is_absent(observed: Observation | None) -> bool:
    return observed is not None and observed.instance.visibility is Visibility.GONE


def _replace(worker: Worker, observed: Observation, drift: str) -> Decision:
    reason = f"instance {worker.instance_id} is gone and is replaced"
    fields = {"instance_id": None, "public_ip": None, "private_ip": None, **absence_fields(observed)}
    write = WriteStatus(WorkerStatus.PENDING, reason, ActionKind.LOSS, fields)
    conditions = (instance_ready(False, "Replacing", reason), *CML_NOT_RUNNING)
    return wait("replace.begin", reason, write, after=0.0, conditions=conditions, drift=drift)


def _lost(worker: Worker, observed: Observation) -> WriteStatus:
    reason = f"EC2 reports the instance as terminated {observed.instance.state_reason}".rstrip()
    by, reason = (BY_DISCOVERY, INSTANCE_NOT_FOUND) if _is_absent(observed) else (BY_CONTROLLER, reason)
    return _terminated(worker, by, reason, ActionKind.LOSS, **absence_fields(observed))


def _terminated(worker: Worker, by: str, reason: str, kind: ActionKind, **fields: object) -> WriteStatus:
    fields |= {
        "terminated_by": worker.terminated_by or by,
        "terminated_reason": worker.terminated_reason or reason,
    }
    return WriteStatus(WorkerStatus.TERMINATED, reason, kind, fields)


def begin_termination(worker: Worker, observed: Observation, policy: Policy) -> Decision:
    """TERMINATED is desired: enter TERMINATING, which deregisters the license first, unless the instance is gone."""
    if worker.instance_id is None or observed.instance.gone:
        return instance_lost(worker, observed, policy)
    write = WriteStatus(WorkerStatus.TERMINATING, "termination is requested", ActionKind.INTENT)
    stopped = observed.instance.state is InstanceState.STOPPED
    conditions = (instance_ready(False, STOPPED if stopped else "Terminating"), NOT_DRAINING, NOT_STUCK)
    return wait("terminate.begin", "termination is requested", write, after=0.0, conditions=conditions)


def begin_stop(reason: str, *before: WriteStatus, release_first: bool = False) -> Decision:
    """STOPPED is desired and the instance runs: record STOPPING and stop it, or deregister its license first."""
    write = WriteStatus(WorkerStatus.STOPPING, reason, ActionKind.INTENT)
    if release_first:
        return wait("stop.begin", reason, *before, write, after=0.0, conditions=(NOT_DRAINING, NOT_STUCK))
    conditions = (instance_ready(False, "Stopping"), *CML_NOT_RUNNING, NOT_DRAINING, NOT_STUCK)
    return wait(
        "stop.begin", reason, *before, write, ChangeInstance(CloudCall.STOP), after=POLL_SECONDS, conditions=conditions
    )


def instance_not_visible(observed: Observation) -> Decision:
    """The instance was not observed, which alone proves nothing."""
    instance = observed.instance
    if instance.visibility is Visibility.NOT_OBSERVED:
        reason = (
            f"EC2 could not be queried: {instance.error}"
            if instance.error
            else "the instance has not been observed yet"
        )
        return wait("observation.none", reason)
    return wait("observation.not_visible", "EC2 does not list the instance, which alone does not prove that it is gone")


def unexpected_state(worker: Worker, observed: Observation, policy: Policy) -> Decision | None:
    """Handle what no status expects: a gone, invisible, terminating or unrecognized instance. Otherwise None."""
    state = observed.instance.state
    if observed.instance.gone:
        return instance_lost(worker, observed, policy)
    if state is None:
        return instance_not_visible(observed)
    if state is InstanceState.SHUTTING_DOWN:
        return instance_shutting_down(worker, observed)
    return unrecognized_state(observed) if state is InstanceState.UNKNOWN else None


def unrecognized_state(observed: Observation) -> Decision:
    """EC2 reports an unrecognized state."""
    reason = f"EC2 reports an unrecognized state {observed.instance.state_reason}".rstrip()
    write = WriteStatus(WorkerStatus.UNKNOWN, reason)
    return wait(
        "drift.unknown", reason, write, after=POLL_SECONDS, conditions=CML_NOT_RUNNING, drift=observed.instance.summary
    )


def follow_instance(worker: Worker, observed: Observation, now: datetime, *, expected: bool = False) -> Decision:
    """Record the status that matches the instance. A stop outside LCM counts as drift."""
    state = observed.instance.state
    assert state is not None
    status = STATUS_BY_STATE[state]
    is_stop = status in STOP_STATUSES
    drifted = is_stop and not expected and worker.desired_status is DesiredStatus.RUNNING
    reason = f"EC2 reports the instance as {state.value}"
    if drifted and not observed.has_started and _was_started_recently(worker, now):
        # Pages may show old states. This leader has not seen the instance since its start, so it has nothing to
        # compare with, and a stop that is accepted would undo the start.
        reason += "; this may be an old state from before the last start, so LCM will read it again"
        return wait("observation.before_start", reason, after=POLL_SECONDS)
    fields: dict[str, object] = {"drift": True} if drifted and not worker.drifted else {}
    conditions = (instance_ready(False, state.value.capitalize(), reason), *CML_NOT_RUNNING, NOT_DRAINING)
    write = WriteStatus(status, reason, ActionKind.RECORD, fields)
    return wait(
        f"drift.{state.value}",
        reason,
        write,
        after=0.0 if is_stop else POLL_SECONDS,
        conditions=conditions,
        drift=state.value,
    )


def _was_started_recently(worker: Worker, now: datetime) -> bool:
    started = worker.last_resumed_at
    return started is not None and (now - started).total_seconds() < VISIBILITY_GRACE_SECONDS


def instance_call_failed(
    worker: Worker, call: CloudCall, error: Exception, observed: Observation | None = None
) -> Decision:
    """A definite rejection is reported; if the outcome is unknown, the instance is observed first."""
    if call is CloudCall.TERMINATE and _is_absent(observed) and _says_that_there_is_none(error):
        return _gone_as_desired(worker, f"EC2 does not list the instance any more, and says: {error}")
    if call is CloudCall.START and isinstance(error, InsufficientCapacityError):
        reason = f"EC2 has no capacity to start the instance: {error}"
        conditions = (instance_ready(False, "NoCapacity", reason), waiting_for(error.condition_reason, reason))
        return wait(
            "start.no_capacity", reason, *_back_to_stopped(worker, reason), after=RESTART_SECONDS, conditions=conditions
        )
    if isinstance(error, CloudAuthenticationError):
        # No answer to the call itself. A worker that stayed STARTING would fail at its deadline.
        reason = f"AWS could not authenticate LCM; {call.value} is repeated: {error}"
        waits = waiting_for(error.condition_reason, reason)
        if call is CloudCall.START:
            conditions = (instance_ready(False, error.condition_reason, reason), waits)
            return retry("start.not_authenticated", reason, *_back_to_stopped(worker, reason), conditions=conditions)
        return retry(f"{call.value}.not_authenticated", reason, conditions=(waits,))
    if isinstance(error, CloudRefusedError):
        reason = f"EC2 refused to {call.value} the instance: {error}"
        if call is CloudCall.START and worker.status is WorkerStatus.TERMINATING:
            reason = f"the instance cannot be started to deregister its license, which is leaked: {reason}"
            return wait("terminating.not_startable", reason, ChangeInstance(CloudCall.TERMINATE), after=POLL_SECONDS)
        if call is CloudCall.START:
            return success("start.refused", reason, WriteStatus(WorkerStatus.FAILED, reason, ActionKind.RECORD))
        return retry(f"{call.value}.refused", reason, conditions=(stuck("Refused", reason),))
    if isinstance(error, InstanceNotFoundError | IncorrectInstanceStateError):
        return wait(f"{call.value}.too_early", f"not possible now: {error}", after=POLL_SECONDS)
    if isinstance(error, CloudThrottledError):
        return retry(f"{call.value}.throttled", f"EC2 throttled the call: {error}")
    reason = str(error) if isinstance(error, CloudError) else f"{type(error).__name__}: {error}"
    return retry(f"{call.value}.unknown", f"no response to {call.value}: {reason}")


def _back_to_stopped(worker: Worker, reason: str) -> tuple[WriteStatus, ...]:
    """The instance was not started: a worker that is STARTING is STOPPED again."""
    return (WriteStatus(WorkerStatus.STOPPED, reason),) if worker.status is WorkerStatus.STARTING else ()
