"""FAILED: waits for a person to retry or terminate the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.conditions import CML_NOT_RUNNING, instance_ready, reason_of_state
from lcm.controllers.worker.decide.shared.instance import absence_fields, begin_termination
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
    """Terminate on request; otherwise only record what its instance does, and remove it once it is gone."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return begin_termination(worker, observed, policy)
    if worker.instance_id is not None and observed.instance.gone:
        if observed.loss_verdict is not LossVerdict.ALLOWED:
            return wait("gone.withheld", observed.loss_reason or observed.loss_verdict.value)
        reason = f"instance {worker.instance_id} is gone"
        fields = {"instance_id": None, "public_ip": None, "private_ip": None, **absence_fields(observed)}
        write = WriteStatus(WorkerStatus.FAILED, reason, ActionKind.LOSS, fields)
        return success("failed.gone", reason, write, conditions=CML_NOT_RUNNING)
    state = observed.instance.state
    if worker.instance_id is not None and state is not None:
        condition = instance_ready(state is InstanceState.RUNNING, reason_of_state(state))
        if state is InstanceState.RUNNING:
            reason = "the worker has failed, but its instance runs and costs money; retry or terminate it"
            return success("failed.instance_running", reason, conditions=(condition,))
        return success("failed.rest", "the worker has failed; retry or terminate it", conditions=(condition,))
    return success("failed.rest", "the worker has failed; retry or terminate it")
