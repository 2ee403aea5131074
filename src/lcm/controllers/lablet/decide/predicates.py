"""Predicates that several rules use: whether the worker is lost, reachable, ready or restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import AbandonedLab, Lablet
    from lcm.model.worker.record import Worker

POLL_SECONDS: Final = 5.0
"""Seconds until the next check of something in progress."""

NEWER_VERSION_RECHECK_SECONDS: Final = 30.0
"""Seconds until a record that only a newer version understands is checked again."""


def lab_marker(lablet: Lablet) -> str:
    """The marker of its lab. Every placement and reset has its own: the lab is created again, here or elsewhere."""
    return f"{lablet.id}.{lablet.placement_attempt}"


def removable_leftovers(lablet: Lablet, worker: Worker) -> tuple[AbandonedLab, ...]:
    """Labs on this worker that it left behind, such as by a reset, and that are certainly its own: their ids are known.

    It removes them before it makes another: they use its ports, and their nodes count.
    """
    return tuple(left for left in lablet.left_behind if left.worker_id == worker.id and left.lab_id is not None)


def seconds_in_status(lablet: Lablet, now: datetime) -> float:
    """Seconds since the lablet entered its status."""
    return max(0.0, (now - lablet.status_since).total_seconds())


def worker_lost_reason(lablet: Lablet, worker: Worker | None) -> str:
    """Why the lablet's lab can no longer exist on its worker; empty if it can."""
    if worker is None:
        return "its worker no longer exists"
    if worker.status is WorkerStatus.TERMINATED:
        return f"its worker {worker.name} is TERMINATED"
    if worker.desired_status is DesiredStatus.TERMINATED:
        return f"its worker {worker.name} is being terminated"
    if worker.status is WorkerStatus.FAILED and worker.instance_id is None:
        return f"its worker {worker.name} is FAILED and has no instance"
    if lablet.instance_id is not None and worker.instance_id != lablet.instance_id:
        return f"the instance {lablet.instance_id} of its worker {worker.name} is gone"
    return ""


def is_reachable(worker: Worker) -> bool:
    """Whether its CML may be called: the worker is ready, or it is draining and waits for its lablets to end."""
    return worker.ready or (
        worker.status is WorkerStatus.DRAINING and is_condition_true(worker.conditions, ConditionType.CML_READY)
    )


def not_ready_reason(worker: Worker) -> str:
    """Why a worker is not ready."""
    if worker.status is not WorkerStatus.RUNNING:
        return f"it is {worker.status}"
    if worker.desired_status is not DesiredStatus.RUNNING:
        return f"its desired status is {worker.desired_status}"
    return "its CML is not ready"


def worker_restarted_since_lab(lablet: Lablet, worker: Worker) -> bool:
    """Whether the instance was started after the lab: then the restart stopped the lab, not a user."""
    if worker.last_resumed_at is None or lablet.lab_started_at is None:
        return False
    return worker.last_resumed_at > lablet.lab_started_at
