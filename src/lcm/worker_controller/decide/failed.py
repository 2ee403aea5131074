"""FAILED: it waits for a person, or for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.acting import Nature
from lcm.model.status import DesiredStatus, WorkerStatus
from lcm.worker_controller.decide.facts import NOTHING_OF_CML
from lcm.worker_controller.decide.leaving import terminate
from lcm.worker_controller.decision import WriteStatus, success, wait
from lcm.worker_controller.observation import Loss

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker import Worker
    from lcm.worker_controller.decision import Decision
    from lcm.worker_controller.observation import Observation
    from lcm.worker_controller.policy import Policy


def decide(worker: Worker, seen: Observation, policy: Policy, _now: datetime) -> Decision:
    """Nothing happens by itself but its end; an instance that is gone is taken off the record."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return terminate(worker, seen, policy)
    if worker.instance_id is not None and seen.sight.gone:
        if seen.loss is not Loss.ALLOWED:
            return wait("gone.withheld", seen.loss_trouble or seen.loss.value)
        reason = f"its instance {worker.instance_id} is gone"
        fields = {"instance_id": None, "public_ip": None, "private_ip": None}
        write = WriteStatus(WorkerStatus.FAILED, reason, Nature.LOSS, fields)
        return success("failed.gone", reason, write, conditions=NOTHING_OF_CML)
    return success("failed.rest", "it has failed; retry or terminate it")
