"""Builders for lablets, workers and observations: callers give only what differs from the default."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lcm.controllers.lablet.observation import LabObservation, Observation, ResolvedTopology, Visibility
from lcm.model.lablet.record import Lablet, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

INSTANCE = "i-1"
LAB = "lab-1"
WITH_INSTANCE = (LabletStatus.INSTANTIATING, LabletStatus.RUNNING, LabletStatus.STOPPING)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_lablet(status: LabletStatus | str, **changes: Any) -> Lablet:
    """A lablet that has just entered this status on worker w-1; with a lab if it is RUNNING or STOPPING."""
    status = LabletStatus(status)
    facts: dict[str, Any] = {
        "id": "l-1",
        "name": "exercise",
        "owner": "anna",
        "definition": "exercise@1",
        "requirements": LabletRequirements(),
        "status": status,
        "status_since": ago(10),
        "placement_attempt": 1,
        "created_at": ago(60),
        "updated_at": ago(10),
        "worker_id": "w-1",
    }
    if status in WITH_INSTANCE:
        facts["instance_id"] = INSTANCE
    if status in (LabletStatus.RUNNING, LabletStatus.STOPPING):
        facts |= {"lab_id": LAB, "lab_started_at": ago(30), "running_since": ago(10)}
    if status is LabletStatus.STOPPING:
        facts |= {"ending": LabletStatus.TERMINATED, "ending_reason": "enough", "wanted": False}
    return Lablet(**{**facts, **changes})


def cml_ready_condition(status: ConditionStatus = ConditionStatus.TRUE, since: float = 600) -> tuple[Condition, ...]:
    return (Condition(type=ConditionType.CML_READY, status=status, since=ago(since)),)


def a_ready_worker(**changes: Any) -> Worker:
    facts: dict[str, Any] = {
        "status": "RUNNING",
        "status_since": ago(900),
        "last_resumed_at": ago(900),
        "instance_id": INSTANCE,
        "public_ip": "192.0.2.7",
        "conditions": cml_ready_condition(),
    }
    return a_worker(**{**facts, **changes})


UNREADY_WORKER = a_ready_worker(conditions=cml_ready_condition(ConditionStatus.FALSE, 100))
DRAINING_WORKER = a_ready_worker(status="DRAINING", desired_status="STOPPED", status_since=ago(50))
NOT_OBSERVED = LabObservation(Visibility.NOT_OBSERVED)
ABSENT = LabObservation(Visibility.ABSENT)
TOPOLOGY = ResolvedTopology("lab: {}")


def unobserved(error: str) -> LabObservation:
    return LabObservation(Visibility.NOT_OBSERVED, error=error)


def a_lab(state: str = "STARTED", **changes: Any) -> LabObservation:
    return LabObservation(**{"visibility": Visibility.SEEN, "id": LAB, "state": state, "nodes": 2, **changes})


def an_observation(lab: LabObservation = NOT_OBSERVED, worker: Worker | None = None, **changes: Any) -> Observation:
    return Observation(worker=worker or a_ready_worker(), lab=lab, **changes)
