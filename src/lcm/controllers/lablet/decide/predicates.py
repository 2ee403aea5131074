"""What every rule about lablets needs: whether the worker is there, can be used, and was started anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

POLL_SECONDS: Final = 5.0
"""Seconds until the next look at something that is on its way."""


def lab_marker(lablet: Lablet) -> str:
    """What its lab is found by. Another placement has another one: its lab is on another machine, or made anew."""
    return f"{lablet.id}.{lablet.placement_attempt}"


def seconds_in_status(lablet: Lablet, now: datetime) -> float:
    """Seconds since the lablet entered its status."""
    return max(0.0, (now - lablet.status_since).total_seconds())


def worker_lost_reason(lablet: Lablet, worker: Worker | None) -> str:
    """Why nothing of the lablet can be on its worker any more; the empty text: it may be."""
    if worker is None:
        return "its worker is not known any more"
    if worker.status is WorkerStatus.TERMINATED:
        return f"its worker {worker.name} is TERMINATED"
    if worker.desired_status is DesiredStatus.TERMINATED:
        return f"its worker {worker.name} is to be terminated"
    if worker.status is WorkerStatus.FAILED and worker.instance_id is None:
        return f"its worker {worker.name} has FAILED and has no instance"
    if lablet.instance_id is not None and worker.instance_id != lablet.instance_id:
        return f"the instance {lablet.instance_id} of its worker {worker.name} is gone"
    return ""


def is_reachable(worker: Worker) -> bool:
    """Whether its CML may be dialled: it is ready, or it drains and waits just for what is still on it."""
    return worker.ready or (
        worker.status is WorkerStatus.DRAINING and is_condition_true(worker.conditions, ConditionType.CML_READY)
    )


def not_ready_reason(worker: Worker) -> str:
    """What keeps a worker from being ready, in words."""
    if worker.status is not WorkerStatus.RUNNING:
        return f"it is {worker.status}"
    if worker.desired_status is not DesiredStatus.RUNNING:
        return f"it is to be {worker.desired_status}"
    return "its CML is not ready"


def worker_restarted_since_lab(lablet: Lablet, worker: Worker) -> bool:
    """Whether the machine was started after the lab was: then nobody but the machine has stopped the lab."""
    if worker.last_resumed_at is None or lablet.lab_started_at is None:
        return False
    return worker.last_resumed_at > lablet.lab_started_at
