"""Sort order of workers by urgency: problems first, then changes in progress, then healthy workers."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from lcm.model.formatting import as_clause
from lcm.model.worker.conditions import (
    NOT_VISIBLE,
    Condition,
    ConditionStatus,
    ConditionType,
    find_condition,
    is_condition_true,
)
from lcm.model.worker.status import STATUSES, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker


class WorkerUrgency(IntEnum):
    """A lower number is more urgent. The numbers are stored: changing one requires a backfill of the stored fields."""

    FAILED = 0
    STUCK = 1
    UNKNOWN = 2
    DEGRADED = 3
    HELD = 4
    IN_PROGRESS = 5
    HEALTHY = 6
    SETTLED = 7
    ENDED = 9


LAST_WORKER_PROBLEM = WorkerUrgency.DEGRADED
NOT_READY_FOR_A_PERSON = ("AccountRefused", "CertificateChanged")
"""Reasons of CmlReady that no waiting resolves."""


def worker_urgency(worker: Worker) -> WorkerUrgency:
    """Return the urgency of a worker. It depends on the record alone, so that the store can sort by it."""
    if worker.status is WorkerStatus.TERMINATED:
        return WorkerUrgency.ENDED
    problem = _problem(worker)
    if problem is not None:
        return problem[0]
    if worker.hold is not None:
        return WorkerUrgency.HELD
    info = STATUSES[worker.status]
    if info.in_progress or info.leads_to is not worker.desired_status:
        return WorkerUrgency.SETTLED if worker.at_rest else WorkerUrgency.IN_PROGRESS
    if worker.status is WorkerStatus.STOPPED:
        return WorkerUrgency.SETTLED
    return WorkerUrgency.HEALTHY if worker.ready else WorkerUrgency.IN_PROGRESS


def worker_problem(worker: Worker) -> str | None:
    """Return a short description of what is wrong with the worker, or None."""
    found = None if worker.status is WorkerStatus.TERMINATED else _problem(worker)
    return None if found is None else found[1]


def _problem(worker: Worker) -> tuple[WorkerUrgency, str] | None:
    if worker.status is WorkerStatus.FAILED:
        running = is_condition_true(worker.conditions, ConditionType.INSTANCE_READY)
        cost = "; its instance runs and costs money" if running else ""
        return WorkerUrgency.FAILED, f"Failed; action required{cost}"
    stuck = find_condition(worker.conditions, ConditionType.STUCK)
    if stuck is not None and stuck.status is ConditionStatus.TRUE:
        return WorkerUrgency.STUCK, _condition_text(stuck, "It is stuck")
    if worker.status is WorkerStatus.UNKNOWN:
        return WorkerUrgency.UNKNOWN, "Unrecognized EC2 state"
    if worker.unknown_words:
        return WorkerUrgency.UNKNOWN, f"A newer version of LCM is needed: {', '.join(worker.unknown_words)}"
    return _degraded_reason(worker)


def _degraded_reason(worker: Worker) -> tuple[WorkerUrgency, str] | None:
    if worker.drifted:
        return WorkerUrgency.DEGRADED, "Its instance was changed outside LCM"
    if worker.license_status is LicenseStatus.FAILED:
        return WorkerUrgency.DEGRADED, "CML rejected its license token"
    instance = find_condition(worker.conditions, ConditionType.INSTANCE_READY)
    if instance is not None and instance.status is ConditionStatus.FALSE and worker.status is WorkerStatus.RUNNING:
        return WorkerUrgency.DEGRADED, _condition_text(instance, "Its instance is impaired")
    if instance is not None and instance.reason == NOT_VISIBLE:
        return WorkerUrgency.DEGRADED, _condition_text(instance, "EC2 does not list its instance")
    impaired = find_condition(worker.conditions, ConditionType.IMPAIRED)
    if impaired is not None and impaired.status is ConditionStatus.TRUE:
        return WorkerUrgency.DEGRADED, f"EC2 reports its instance as impaired: {as_clause(impaired.message)}"
    cml = find_condition(worker.conditions, ConditionType.CML_READY)
    if (
        cml is not None
        and cml.status is not ConditionStatus.TRUE
        and (_was_ready(worker) or cml.reason in NOT_READY_FOR_A_PERSON)
    ):
        return WorkerUrgency.DEGRADED, _condition_text(cml, "CML does not respond")
    telemetry = find_condition(worker.conditions, ConditionType.TELEMETRY_MISSING)
    if telemetry is not None and telemetry.status is ConditionStatus.TRUE:
        return WorkerUrgency.DEGRADED, _condition_text(telemetry, "Its activity cannot be read")
    # A stopped worker leaves its host with the next start.
    if worker.maintenance is not None and worker.status is not WorkerStatus.STOPPED:
        return WorkerUrgency.DEGRADED, as_clause(worker.maintenance.text)
    return None


def _was_ready(worker: Worker) -> bool:
    """Whether CML responded before, as opposed to an instance that was just started and still boots."""
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
