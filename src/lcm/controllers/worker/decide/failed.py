"""FAILED: waits for a person to retry or terminate the worker."""

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
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


def decide(worker: Worker, observed: Observation, policy: Policy, _now: datetime) -> Decision:
    """Terminate on request; otherwise only remove an instance that is gone from the record."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    if worker.instance_id is not None and observed.instance.gone:
        if observed.loss_verdict is not LossVerdict.ALLOWED:
            return wait("gone.withheld", observed.loss_reason or observed.loss_verdict.value)
        reason = f"instance {worker.instance_id} is gone"
        fields = {"instance_id": None, "public_ip": None, "private_ip": None}
        write = WriteStatus(WorkerStatus.FAILED, reason, ActionKind.LOSS, fields)
        return success("failed.gone", reason, write, conditions=CML_NOT_RUNNING)
    return success("failed.rest", "the worker has failed; retry or terminate it")
