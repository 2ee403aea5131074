"""How much a worker needs somebody's attention: problems first, then what moves, then what is as it should be."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from lcm.model.formatting import as_clause
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType, find_condition, is_condition_true
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker


class WorkerUrgency(IntEnum):
    """The smaller, the more urgent. The numbers stand in stores: whoever changes one has all fields filled in anew."""

    FAILED = 0
    STUCK = 1
    UNCLEAR = 2
    TROUBLED = 3
    HELD = 4
    MOVING = 5
    FINE = 6
    RESTING = 7
    ENDED = 9


LAST_WORKER_PROBLEM = WorkerUrgency.TROUBLED

_IN_PROGRESS_STATUSES = (
    WorkerStatus.PENDING,
    WorkerStatus.PROVISIONING,
    WorkerStatus.STARTING,
    WorkerStatus.DRAINING,
    WorkerStatus.STOPPING,
    WorkerStatus.TERMINATING,
)
_DESIRED_STATUS = {
    WorkerStatus.RUNNING: DesiredStatus.RUNNING,
    WorkerStatus.STOPPED: DesiredStatus.STOPPED,
}


def worker_urgency(worker: Worker) -> WorkerUrgency:
    """Where it stands in the order of attention. From the record alone, so that a store can sort by it."""
    if worker.status is WorkerStatus.TERMINATED:
        return WorkerUrgency.ENDED
    problem = _problem(worker)
    if problem is not None:
        return problem[0]
    if worker.hold is not None:
        return WorkerUrgency.HELD
    if worker.status in _IN_PROGRESS_STATUSES or _DESIRED_STATUS.get(worker.status) is not worker.desired_status:
        return WorkerUrgency.RESTING if worker.at_rest else WorkerUrgency.MOVING
    if worker.status is WorkerStatus.STOPPED:
        return WorkerUrgency.RESTING
    return WorkerUrgency.FINE if worker.ready else WorkerUrgency.MOVING


def worker_problem(worker: Worker) -> str | None:
    """What is wrong with it, in a few words; None: nothing is."""
    found = None if worker.status is WorkerStatus.TERMINATED else _problem(worker)
    return None if found is None else found[1]


def _problem(worker: Worker) -> tuple[WorkerUrgency, str] | None:
    if worker.status is WorkerStatus.FAILED:
        return WorkerUrgency.FAILED, "It failed and waits for somebody"
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if stuck is not None and stuck.status is ConditionStatus.TRUE:
        return WorkerUrgency.STUCK, _condition_text(stuck, "It is stuck")
    if worker.status is WorkerStatus.UNKNOWN:
        return WorkerUrgency.UNCLEAR, "EC2 says something about it that nobody knows"
    return _degraded_reason(worker)


def _degraded_reason(worker: Worker) -> tuple[WorkerUrgency, str] | None:
    if worker.drifted:
        return WorkerUrgency.TROUBLED, "Somebody changed its instance from outside"
    if worker.license_status is LicenseStatus.FAILED:
        return WorkerUrgency.TROUBLED, "CML refused its licence token"
    instance = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    if instance is not None and instance.status is ConditionStatus.FALSE and worker.status is WorkerStatus.RUNNING:
        return WorkerUrgency.TROUBLED, _condition_text(instance, "Its instance is not well")
    cml = find_condition(worker.conditions, ConditionType.CML_READY)
    silent = cml is not None and cml.status is not ConditionStatus.TRUE and _was_ready(worker)
    if silent and cml is not None:
        return WorkerUrgency.TROUBLED, _condition_text(cml, "CML does not answer")
    return None


def _was_ready(worker: Worker) -> bool:
    """Whether CML stopped answering, as opposed to one that has just been started and boots."""
    cml = find_condition(worker.conditions, ConditionType.CML_READY)
    resumed = worker.last_resumed_at
    settled = cml is not None and resumed is not None and cml.since > resumed
    return (
        settled
        and worker.status is WorkerStatus.RUNNING
        and is_condition_true(worker.conditions, ConditionType.INSTANCE_READY)
    )


def _condition_text(condition: Condition, otherwise: str) -> str:
    return as_clause(condition.message or condition.reason) or otherwise
