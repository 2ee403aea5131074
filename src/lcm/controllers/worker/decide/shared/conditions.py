"""What every rule about workers needs: words for reasons, and the conditions that follow from what was seen."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import InstanceState
from lcm.controllers.worker.decision import ConditionUpdate
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.observe.observation import InstanceObservation, Observation
    from lcm.model.worker.record import Worker

# Which status a worker has whose instance is in such a state.
STATUS_BY_STATE = {
    InstanceState.PENDING: WorkerStatus.PROVISIONING,
    InstanceState.RUNNING: WorkerStatus.RUNNING,
    InstanceState.STOPPING: WorkerStatus.STOPPING,
    InstanceState.STOPPED: WorkerStatus.STOPPED,
    InstanceState.SHUTTING_DOWN: WorkerStatus.TERMINATING,
    InstanceState.TERMINATED: WorkerStatus.TERMINATED,
    InstanceState.UNKNOWN: WorkerStatus.UNKNOWN,
}

POLL_SECONDS = 5.0
"""Seconds until the next look at something that is on its way; the fast lane usually wakes it earlier."""


def seconds_in_status(worker: Worker, now: datetime) -> float:
    """Seconds since the worker entered its status."""
    return max(0.0, (now - worker.status_since).total_seconds())


def within_last_hour(moments: tuple[datetime, ...], now: datetime) -> list[datetime]:
    """Those of the last hour."""
    return [moment for moment in moments if now - moment < timedelta(hours=1)]


def decision_inputs(worker: Worker, seen: Observation) -> dict[str, Any]:
    """What the decision was made from, for people."""
    facts: dict[str, Any] = {
        "status": worker.status.value,
        "desired_status": worker.desired_status.value,
        "instance": seen.sight.word if worker.instance_id else "none",
    }
    if seen.sight.trouble:
        facts["trouble"] = seen.sight.trouble[:200]
    if worker.status in (WorkerStatus.RUNNING, WorkerStatus.DRAINING):
        facts["cml_ready"] = seen.cml.ready
    return facts


def changed_instance_fields(worker: Worker, sight: InstanceObservation) -> dict[str, Any]:
    """Fields of the record that differ from what was seen of the instance."""
    shown = {
        "public_ip": sight.public_ip,
        "private_ip": sight.private_ip,
        "instance_type": sight.instance_type or worker.instance_type,
        "ami_id": sight.image_id or worker.ami_id,
        "aws_account_id": sight.account_id or worker.aws_account_id,
    }
    return {name: value for name, value in shown.items() if getattr(worker, name) != value}


def instance_ready(ready: bool, reason: str, message: str = "") -> ConditionUpdate:
    """Whether the instance can be used."""
    status = ConditionStatus.TRUE if ready else ConditionStatus.FALSE
    return ConditionUpdate(ConditionType.INSTANCE_READY, status, reason, message)


def stuck(reason: str, message: str) -> ConditionUpdate:
    """It does not get any further by itself."""
    return ConditionUpdate(ConditionType.STUCK, ConditionStatus.TRUE, reason, message)


NOT_STUCK = ConditionUpdate(ConditionType.STUCK, None)
NOT_DRAINING = ConditionUpdate(ConditionType.DRAINING, None)
CML_DOWN = ConditionUpdate(ConditionType.CML_READY, ConditionStatus.FALSE, "InstanceNotRunning")
CML_NOT_RUNNING = (CML_DOWN, ConditionUpdate(ConditionType.IDLE, None))
"""What is said of CML when its machine does not run."""


def cml_conditions(seen: Observation) -> tuple[ConditionUpdate, ...]:
    """Whether CML can be used, for all who would dial it; nothing as long as it was not asked."""
    if seen.cml.ready:
        return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.TRUE, "Ready"),)
    if seen.cml.asked_at is None:
        return ()
    why = seen.cml.trouble or "CML is not ready yet"
    return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.FALSE, "NotReady", why),)
