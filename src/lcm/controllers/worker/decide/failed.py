"""FAILED: it waits for a person, or for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import CML_NOT_RUNNING
from lcm.controllers.worker.decide.shared.instance import begin_termination
from lcm.controllers.worker.decision import WriteStatus, success, wait
from lcm.controllers.worker.observe.observation import LossVerdict
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker


def decide(worker: Worker, seen: Observation, policy: Policy, _now: datetime) -> Decision:
    """Nothing happens by itself but its end; an instance that is gone is taken off the record."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, seen, policy)
    if worker.instance_id is not None and seen.sight.gone:
        if seen.loss is not LossVerdict.ALLOWED:
            return wait("gone.withheld", seen.loss_reason or seen.loss.value)
        reason = f"its instance {worker.instance_id} is gone"
        fields = {"instance_id": None, "public_ip": None, "private_ip": None}
        write = WriteStatus(WorkerStatus.FAILED, reason, ActionKind.LOSS, fields)
        return success("failed.gone", reason, write, conditions=CML_NOT_RUNNING)
    return success("failed.rest", "it has failed; retry or terminate it")
