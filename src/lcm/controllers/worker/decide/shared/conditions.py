"""What the decisions of several statuses share: inputs, changed fields and conditions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.cloud.instance_cache import GONE_AFTER_SWEEPS
from lcm.cloud.types import InstanceState
from lcm.controllers.worker.decision import ConditionUpdate
from lcm.controllers.worker.observe.observation import Visibility
from lcm.model.formatting import count_minutes
from lcm.model.worker.conditions import NOT_VISIBLE, ConditionStatus, ConditionType, is_instance_missing
from lcm.model.worker.status import CML_STATUSES, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.controllers.worker.observe.observation import InstanceObservation, Observation
    from lcm.model.worker.record import Worker

# The status of a worker whose instance is in this state.
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
"""Seconds until the next check of a change in progress; close polling usually wakes the worker earlier."""


def seconds_in_status(worker: Worker, now: datetime) -> float:
    """Seconds since the worker entered its status."""
    return max(0.0, (now - worker.status_since).total_seconds())


def within_last_hour(moments: tuple[datetime, ...], now: datetime) -> list[datetime]:
    """The times within the last hour."""
    return [moment for moment in moments if now - moment < timedelta(hours=1)]


def decision_inputs(worker: Worker, observed: Observation) -> dict[str, Any]:
    """What the decision was made from, for people."""
    inputs: dict[str, Any] = {
        "status": worker.status.value,
        "desired_status": worker.desired_status.value,
        "instance": observed.instance.summary if worker.instance_id else "none",
    }
    if observed.instance.error:
        inputs["trouble"] = observed.instance.error[:200]
    if worker.status in CML_STATUSES:
        inputs["cml_ready"] = observed.cml.ready
    return inputs


def changed_instance_fields(worker: Worker, instance: InstanceObservation) -> dict[str, Any]:
    """The fields of the record that differ from the observed instance."""
    fields = {
        "public_ip": instance.public_ip,
        "private_ip": instance.private_ip,
        "instance_type": instance.instance_type or worker.instance_type,
        "ami_id": instance.image_id or worker.ami_id,
        "aws_account_id": instance.account_id or worker.aws_account_id,
    }
    return {name: value for name, value in fields.items() if getattr(worker, name) != value}


def instance_ready(ready: bool, reason: str, message: str = "") -> ConditionUpdate:
    """The condition that says whether the instance is usable."""
    status = ConditionStatus.TRUE if ready else ConditionStatus.FALSE
    return ConditionUpdate(ConditionType.INSTANCE_READY, status, reason, message)


def reason_of_state(state: InstanceState) -> str:
    """The reason of InstanceReady for a state of EC2, such as ShuttingDown."""
    return "".join(part.capitalize() for part in state.value.split("-"))


def instance_visibility(worker: Worker, instance: InstanceObservation) -> ConditionUpdate | None:
    """The condition of an instance that EC2 does not list, or lists again; None if neither is new."""
    if instance.visibility is Visibility.NOT_VISIBLE and instance.absent_sweeps:
        message = (
            f"EC2 does not list {worker.instance_id}; it counts as gone only after {GONE_AFTER_SWEEPS} sweeps "
            f"over {count_minutes(instance.gone_after)} without it"
        )
        return ConditionUpdate(ConditionType.INSTANCE_READY, ConditionStatus.UNKNOWN, NOT_VISIBLE, message)
    if instance.state is not None and is_instance_missing(worker.conditions):
        return instance_ready(instance.state is InstanceState.RUNNING, reason_of_state(instance.state))
    return None


def stuck(reason: str, message: str) -> ConditionUpdate:
    """The condition of a worker that makes no progress by itself."""
    return ConditionUpdate(ConditionType.STUCK, ConditionStatus.TRUE, reason, message)


NOT_STUCK = ConditionUpdate(ConditionType.STUCK, None)
NOT_DRAINING = ConditionUpdate(ConditionType.DRAINING, None)
CML_DOWN = ConditionUpdate(ConditionType.CML_READY, ConditionStatus.FALSE, "InstanceNotRunning")
TELEMETRY_PRESENT = ConditionUpdate(ConditionType.TELEMETRY_MISSING, None)
CML_NOT_RUNNING = (CML_DOWN, ConditionUpdate(ConditionType.IDLE, None), TELEMETRY_PRESENT)
"""The conditions of CML while its instance does not run."""


def cml_conditions(worker: Worker, observed: Observation) -> tuple[ConditionUpdate, ...]:
    """The condition that says whether CML is ready; none until it was queried."""
    if observed.cml.ready and observed.cml.account_withheld:
        message = f"LCM does not sign in to its CML until it is adopted: lcm workers adopt {worker.name}"
        return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.TRUE, "NotAdopted", message),)
    if observed.cml.ready:
        return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.TRUE, "Ready"),)
    if observed.cml.queried_at is None:
        return ()
    if observed.cml.presented:
        message = (
            f"CML presents another certificate (SHA-256 {observed.cml.presented}) than the pinned one;"
            f" if it was reinstalled, accept that one: lcm workers trust {worker.name}"
        )
        return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.FALSE, "CertificateChanged", message),)
    if observed.cml.refusal:
        message = f"{observed.cml.refusal}; correct the account of the worker, or CML_DEFAULT_USERNAME and its password"
        return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.FALSE, "AccountRefused", message),)
    if observed.cml.ready is None:
        return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.UNKNOWN, "NotPolled", observed.cml.error),)
    why = observed.cml.error or "CML is not ready yet"
    return (ConditionUpdate(ConditionType.CML_READY, ConditionStatus.FALSE, "NotReady", why),)
