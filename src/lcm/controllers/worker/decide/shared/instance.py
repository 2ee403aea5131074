"""What becomes of a worker whose instance is gone: one rule for all statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import Nature
from lcm.controllers.worker.decide.shared.conditions import NOTHING_OF_CML, SOON, instance_ready, stuck
from lcm.controllers.worker.decision import WriteStatus, success, wait
from lcm.controllers.worker.observe.observation import Loss, Visibility
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker

BY_CONTROLLER = "worker-controller"
BY_DISCOVERY = "discovery-gc"
NOT_FOUND = "EC2 instance not found during discovery"
# Statuses whose workers are marked by orphan detection when their instance cannot be found any more.
_FOUND_BY_DISCOVERY = (
    WorkerStatus.STARTING,
    WorkerStatus.RUNNING,
    WorkerStatus.DRAINING,
    WorkerStatus.STOPPED,
    WorkerStatus.UNKNOWN,
)
_ON_ITS_WAY_OUT = (WorkerStatus.DRAINING, WorkerStatus.TERMINATING)
_AFTER_A_JUDGEMENT = 10.0


def is_replaced(worker: Worker) -> bool:
    """Whether a new instance takes the place of a lost one."""
    return (
        worker.lost_instance_policy is LostInstancePolicy.REPLACE
        and worker.status not in _ON_ITS_WAY_OUT
        and worker.template_name is not None
        and worker.desired_status is DesiredStatus.RUNNING
    )


def instance_lost(worker: Worker, seen: Observation, policy: Policy) -> Decision:
    """The instance is gone, and that was not asked for unless TERMINATED is desired."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return success(
            "gone.terminated", "the instance is gone, as it should be", _terminated(worker, seen, Nature.RECORD)
        )
    if not _orphans_are_marked(worker, seen, policy):
        message = "its instance cannot be found; orphan detection is switched off or its settings were never read"
        return wait("gone.unmarked", message, conditions=(stuck("InstanceMissing", message),), drift="missing")
    drift = "missing" if seen.sight.visibility is Visibility.GONE else seen.sight.word
    if seen.loss is not Loss.ALLOWED:
        said = seen.loss_trouble or seen.loss.value
        message = f"its instance is gone, but it is not marked as lost: {said}"
        missing = instance_ready(False, "InstanceMissing", message)
        return wait("gone.withheld", message, after=_AFTER_A_JUDGEMENT, conditions=(missing,), drift=drift)
    if is_replaced(worker):
        return _replaced(worker, drift)
    if worker.status is WorkerStatus.PROVISIONING:
        reason = f"the instance {worker.instance_id} was lost before it was running"
        failed = WriteStatus(WorkerStatus.FAILED, reason, Nature.LOSS, {"instance_id": None, "public_ip": None})
        return success("gone.failed", reason, failed, drift=drift)
    return success("gone.lost", f"the instance is gone ({drift})", _terminated(worker, seen, Nature.LOSS), drift=drift)


def shutting_down(worker: Worker, seen: Observation) -> Decision:
    """Somebody ends the instance: that is recorded, or, where it will be replaced, waited for."""
    if is_replaced(worker):
        message = "its instance is being terminated; it will be replaced as soon as it is gone"
        said = (instance_ready(False, "ShuttingDown", message), *NOTHING_OF_CML)
        return wait("replace.waiting", message, after=SOON, conditions=said, drift=seen.sight.word)
    reason = "EC2 is terminating the instance"
    fields = {"terminated_by": BY_CONTROLLER, "terminated_reason": reason}
    write = WriteStatus(WorkerStatus.TERMINATING, reason, Nature.RECORD, fields)
    said = (instance_ready(False, "ShuttingDown"), *NOTHING_OF_CML)
    return wait("drift.shutting_down", reason, write, after=SOON, conditions=said, drift=seen.sight.word)


def _orphans_are_marked(worker: Worker, seen: Observation, policy: Policy) -> bool:
    if seen.sight.visibility is not Visibility.GONE or worker.status not in _FOUND_BY_DISCOVERY or is_replaced(worker):
        return True
    return policy.settings is not None and policy.settings.discovery.worker_discovery_enabled


def _replaced(worker: Worker, drift: str) -> Decision:
    reason = f"the instance {worker.instance_id} is gone; another takes its place"
    fields = {"instance_id": None, "public_ip": None, "private_ip": None}
    write = WriteStatus(WorkerStatus.PENDING, reason, Nature.LOSS, fields)
    said = (instance_ready(False, "Replacing", reason), *NOTHING_OF_CML)
    return wait("replace.begin", reason, write, after=0.0, conditions=said, drift=drift)


def _terminated(worker: Worker, seen: Observation, nature: Nature) -> WriteStatus:
    absent = seen.sight.visibility is Visibility.GONE
    if nature is Nature.LOSS and absent:
        by, reason = BY_DISCOVERY, NOT_FOUND
    elif nature is Nature.LOSS:
        by, reason = BY_CONTROLLER, f"EC2 says that the instance is terminated {seen.sight.state_reason}".rstrip()
    else:
        by, reason = BY_CONTROLLER, "terminated as asked for"
    fields = {"terminated_by": worker.terminated_by or by, "terminated_reason": worker.terminated_reason or reason}
    return WriteStatus(WorkerStatus.TERMINATED, reason, nature, fields)
