"""How a controller's write changes a worker: status, launch intent, license status. Pure functions of a record."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError, check_version
from lcm.control_plane.workers.lifecycle import on_enter, updated_record
from lcm.model.fleet.activity_summary import StatusEvent
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.problems import ProblemCode
from lcm.model.worker.conditions import ConditionType, is_condition_true, is_instance_missing
from lcm.model.worker.record import LaunchIntent
from lcm.model.worker.status import NO_ADDRESS_STATUSES, STOP_STATUSES, DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import LaunchIntentRequest, LicenseStatusUpdate, WorkerStatusUpdate
    from lcm.model.worker.template import WorkerTemplate

_COPIED_FIELDS = (
    "instance_id",
    "instance_type",
    "ami_id",
    "aws_account_id",
    "public_ip",
    "private_ip",
    "cml_version",
    "node_definitions",
    "cml_certificate",
    "cml_certificate_presented",
    "terminated_by",
    "terminated_reason",
    "license_release_started_at",
    "license_release_ready_at",
    "maintenance",
)
_MAX_REMEMBERED = 20
STOPPED_EXTERNALLY = "stopped from outside"


def apply_status(worker: Worker, write: WorkerStatusUpdate, drift: DriftPolicy, now: datetime) -> Worker:
    """Apply what a controller observed or did. An illegal transition raises and changes nothing."""
    check_version("worker", worker.version, write.version)
    set_fields = write.model_fields_set
    fields: dict[str, Any] = {name: getattr(write, name) for name in _COPIED_FIELDS if name in set_fields}
    if "conditions" in set_fields:
        fields["conditions"] = write.conditions or ()
    fields |= on_enter(worker, write.status, now)
    if write.status is WorkerStatus.PENDING and worker.status is not WorkerStatus.PENDING:
        fields["launch_intent"] = None
        fields["replaced_at"] = _within_last_hour(worker.replaced_at, now)
    if "launch_intent" in set_fields:
        _check_intent_settled(worker, write)
        fields["launch_intent"] = None
    if fields.get("instance_id", worker.instance_id) != worker.instance_id:
        fields["instance_since"] = None if write.instance_id is None else now
        # The CML version and the certificate of one instance say nothing about the next instance.
        cml_fields = ("cml_version", "node_definitions", "cml_certificate", "cml_certificate_presented")
        fields = dict.fromkeys(cml_fields) | {"maintenance": None, "maintenance_restarts": ()} | fields
    if write.health_verified:
        fields["maintenance_restarts"] = ()
    if write.drift:
        fields |= {"drifted": True, "drifted_at": _within_last_hour(worker.drifted_at, now)}
    if leaks_license(worker, write):
        fields["license_status"] = LicenseStatus.UNREGISTERED
    if write.status in NO_ADDRESS_STATUSES:
        fields["public_ip"] = None
    if write.desired_status is not None:
        _check_accepted_drift(worker, write, drift, now)
        fields |= {"desired_status": DesiredStatus.STOPPED, "last_paused_at": now, "pause_reason": STOPPED_EXTERNALLY}
    return updated_record(worker, now, bump_generation="desired_status" in fields, **fields)


def leaks_license(worker: Worker, write: WorkerStatusUpdate) -> bool:
    """Whether this write ends an instance whose license was not confirmed as deregistered."""
    if worker.license_status not in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING):
        return False
    given_up = "instance_id" in write.model_fields_set and write.instance_id != worker.instance_id
    return worker.instance_id is not None and (write.status is WorkerStatus.TERMINATED or given_up)


def is_seen_again(before: Worker, after: Worker) -> bool:
    """Whether EC2 lists the instance of a worker again that it did not list before."""
    return is_instance_missing(before.conditions) and not is_instance_missing(after.conditions)


def audit_label(worker: Worker, write: WorkerStatusUpdate) -> str:
    """The action of an additional audit entry for this step, or an empty string. It is in the same commit."""
    if (worker.status, write.status) == (WorkerStatus.PENDING, WorkerStatus.PROVISIONING):
        return "provisioned"
    if (worker.status, write.status) == (WorkerStatus.DRAINING, WorkerStatus.STOPPING) and worker.paused_by_policy:
        return "drained"
    return ""


def activity_event(worker: Worker, write: WorkerStatusUpdate) -> StatusEvent | None:
    """The event that the activity summary shows for this write; None for an ordinary step."""
    entered = write.status is not worker.status
    if entered and write.status is WorkerStatus.FAILED:
        return StatusEvent.FAILED
    if entered and write.status is WorkerStatus.TERMINATED and worker.desired_status is not DesiredStatus.TERMINATED:
        return StatusEvent.GONE
    if entered and write.status is WorkerStatus.PENDING and worker.instance_id is not None:
        return StatusEvent.REPLACED
    if entered and write.status is WorkerStatus.STARTING and worker.drifted:
        return StatusEvent.RESTARTED
    if write.desired_status is not None:
        return StatusEvent.DRIFT_ACCEPTED
    if is_condition_true(write.conditions or (), ConditionType.STUCK) and not is_condition_true(
        worker.conditions, ConditionType.STUCK
    ):
        return StatusEvent.STUCK
    return None


def apply_launch_intent(
    worker: Worker, write: LaunchIntentRequest, now: datetime, template: WorkerTemplate | None = None
) -> Worker:
    """Store the intent of an attempt before its call. Replaying the stored intent changes nothing.

    A launch uses the template as it is now. Its capacity and price become those of the worker, so that both are true.
    """
    check_version("worker", worker.version, write.version)
    stored = worker.launch_intent
    if stored is not None and write.attempt == stored.attempt:
        if write.parameters == stored.parameters:
            return worker
        raise _attempt_mismatch(worker, f"attempt {write.attempt} is stored with different parameters")
    if worker.status is not WorkerStatus.PENDING:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a PENDING worker can be launched; this one is {worker.status}"
        )
    if write.attempt != worker.launch_attempt + 1:
        raise _attempt_mismatch(worker, f"the next attempt is {worker.launch_attempt + 1}, not {write.attempt}")
    intent = LaunchIntent(attempt=write.attempt, parameters=write.parameters, stored_at=now)
    nested = write.parameters.get("nested_virtualization") is True
    return updated_record(
        worker,
        now,
        launch_intent=intent,
        launch_attempt=write.attempt,
        **_template_fields(template, write),
        nested_virtualization=nested,
    )


def _template_fields(template: WorkerTemplate | None, write: LaunchIntentRequest) -> dict[str, Any]:
    """What a worker takes over from its template at its launch."""
    launched = write.parameters.get("instance_type")
    if template is None or launched is None:
        return {}
    if launched != template.instance_type:
        detail = f"template {template.name} was changed meanwhile: it has {template.instance_type}, not {launched}"
        raise ProblemError(ProblemCode.VERSION_CONFLICT, f"{detail}; read it again")
    names = ("instance_type", "ami_name_pattern", "requires_kvm", "capacity", "cost_per_hour_usd")
    return {name: getattr(template, name) for name in names}


def apply_license_status(worker: Worker, write: LicenseStatusUpdate, now: datetime) -> Worker:
    """Apply the license status that CML reports."""
    if write.version is not None:
        check_version("worker", worker.version, write.version)
    fields: dict[str, Any] = {"license_status": write.status}
    pending = worker.pending_license_operation
    if write.clear_pending:
        fields["pending_license_operation"] = None
    elif write.deregistered and pending is not None:
        fields["pending_license_operation"] = pending.model_copy(update={"deregister_first": False})
    if write.status is LicenseStatus.DEREGISTERED:
        fields["has_license_token"] = False
    # Until there is a new request, CML would reject the same registration again.
    fields["license_failed_generation"] = worker.generation if write.status is LicenseStatus.FAILED else None
    return updated_record(worker, now, **fields)


def _check_intent_settled(worker: Worker, write: WorkerStatusUpdate) -> None:
    if write.status is not WorkerStatus.PENDING and write.status is not WorkerStatus.FAILED:
        detail = "launch_intent: only the intent of a PENDING or FAILED worker can be settled as not launched"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if worker.instance_id is not None:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, "launch_intent: the worker has an instance, so it was launched"
        )


def _within_last_hour(moments: tuple[datetime, ...], now: datetime) -> tuple[datetime, ...]:
    """The times within the last hour, and now; only the latest few are kept."""
    recent = [moment for moment in moments if now - moment < timedelta(hours=1)]
    return (*recent[-_MAX_REMEMBERED:], now)


def _check_accepted_drift(worker: Worker, write: WorkerStatusUpdate, drift: DriftPolicy, now: datetime) -> None:
    if drift is not DriftPolicy.ACCEPT or write.status not in STOP_STATUSES:
        detail = "desired_status: a controller may change it only to accept a stop from outside (DRIFT_POLICY=accept)"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if worker.desired_status is DesiredStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "desired_status: TERMINATED is final")
    if worker.is_booked(now):
        detail = f"desired_status: it is booked for {worker.booking_id}, so a stop from outside is not accepted"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _attempt_mismatch(worker: Worker, detail: str) -> ProblemError:
    return ProblemError(ProblemCode.ATTEMPT_MISMATCH, detail, current={"launch_attempt": worker.launch_attempt})
