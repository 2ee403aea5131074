"""How much a worker needs somebody's attention: problems first, then what moves, then what is as it should be."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from lcm.model.formatting import quoted
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType, find_condition, holds
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker


class Urgency(IntEnum):
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


LAST_PROBLEM = Urgency.TROUBLED

_MOVING = (
    WorkerStatus.PENDING,
    WorkerStatus.PROVISIONING,
    WorkerStatus.STARTING,
    WorkerStatus.DRAINING,
    WorkerStatus.STOPPING,
    WorkerStatus.TERMINATING,
)
_WANTED = {
    WorkerStatus.RUNNING: DesiredStatus.RUNNING,
    WorkerStatus.STOPPED: DesiredStatus.STOPPED,
}


def urgency_of(worker: Worker) -> Urgency:
    """Where it stands in the order of attention. From the record alone, so that a store can sort by it."""
    if worker.status is WorkerStatus.TERMINATED:
        return Urgency.ENDED
    problem = _problem(worker)
    if problem is not None:
        return problem[0]
    if worker.hold is not None:
        return Urgency.HELD
    if worker.status in _MOVING or _WANTED.get(worker.status) is not worker.desired_status:
        return Urgency.RESTING if worker.at_rest else Urgency.MOVING
    if worker.status is WorkerStatus.STOPPED:
        return Urgency.RESTING
    return Urgency.FINE if worker.ready else Urgency.MOVING


def problem_of(worker: Worker) -> str | None:
    """What is wrong with it, in a few words; None: nothing is."""
    found = None if worker.status is WorkerStatus.TERMINATED else _problem(worker)
    return None if found is None else found[1]


def _problem(worker: Worker) -> tuple[Urgency, str] | None:
    if worker.status is WorkerStatus.FAILED:
        return Urgency.FAILED, "It failed and waits for somebody"
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if stuck is not None and stuck.status is ConditionStatus.TRUE:
        return Urgency.STUCK, _told(stuck, "It is stuck")
    if worker.status is WorkerStatus.UNKNOWN:
        return Urgency.UNCLEAR, "EC2 says something about it that nobody knows"
    return _lesser_problem(worker)


def _lesser_problem(worker: Worker) -> tuple[Urgency, str] | None:
    if worker.drifted:
        return Urgency.TROUBLED, "Somebody changed its instance from outside"
    if worker.license_status is LicenseStatus.FAILED:
        return Urgency.TROUBLED, "CML refused its licence token"
    instance = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    if instance is not None and instance.status is ConditionStatus.FALSE and worker.status is WorkerStatus.RUNNING:
        return Urgency.TROUBLED, _told(instance, "Its instance is not well")
    cml = find_condition(worker.conditions, ConditionType.CML_READY)
    silent = cml is not None and cml.status is not ConditionStatus.TRUE and _was_ready(worker)
    if silent and cml is not None:
        return Urgency.TROUBLED, _told(cml, "CML does not answer")
    return None


def _was_ready(worker: Worker) -> bool:
    """Whether CML stopped answering, as opposed to one that has just been started and boots."""
    cml = find_condition(worker.conditions, ConditionType.CML_READY)
    resumed = worker.last_resumed_at
    settled = cml is not None and resumed is not None and cml.since > resumed
    return settled and worker.status is WorkerStatus.RUNNING and holds(worker.conditions, ConditionType.INSTANCE_READY)


def _told(condition: Condition, otherwise: str) -> str:
    return quoted(condition.message or condition.reason) or otherwise
