"""What controllers write: status, the intent to launch, what became of a licence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import on_enter, updated_worker
from lcm.model.fleet.activity_summary import StatusEvent
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.problems import ProblemCode
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.record import LaunchIntent
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import LaunchIntentRequest, LicenseStatusUpdate, WorkerStatusUpdate

_COPIED_FIELDS = (
    "instance_id",
    "instance_type",
    "ami_id",
    "aws_account_id",
    "public_ip",
    "private_ip",
    "cml_version",
    "node_definitions",
    "terminated_by",
    "terminated_reason",
)
_DRIFT_STATUSES = (WorkerStatus.STOPPING, WorkerStatus.STOPPED)
_MAX_REMEMBERED = 20
STOPPED_EXTERNALLY = "stopped from outside"


def check_version(worker: Worker, version: int) -> None:
    """A writer that has not seen the present record must look again."""
    if version != worker.version:
        detail = f"the worker is at version {worker.version}, not {version}; read it again"
        raise ProblemError(ProblemCode.VERSION_CONFLICT, detail, current={"version": worker.version})


def apply_status(worker: Worker, write: WorkerStatusUpdate, drift: DriftPolicy, now: datetime) -> Worker:
    """Take over what a controller found or did; a transition that is not legal raises and changes nothing."""
    check_version(worker, write.version)
    given = write.model_fields_set
    fields: dict[str, Any] = {name: getattr(write, name) for name in _COPIED_FIELDS if name in given}
    if "conditions" in given:
        fields["conditions"] = write.conditions or ()
    fields |= on_enter(worker, write.status, now)
    if write.status is WorkerStatus.PENDING and worker.status is not WorkerStatus.PENDING:
        fields["launch_intent"] = None
        fields["replaced_at"] = _within_last_hour(worker.replaced_at, now)
    if "launch_intent" in given:
        _check_intent_settled(worker, write)
        fields["launch_intent"] = None
    if fields.get("instance_id", worker.instance_id) != worker.instance_id:
        fields["instance_since"] = None if write.instance_id is None else now
        # What is known of one instance's CML says nothing about the next one's.
        fields = {"cml_version": None, "node_definitions": None} | fields
    if write.drift:
        fields |= {"drifted": True, "drifted_at": _within_last_hour(worker.drifted_at, now)}
    if leaks_license(worker, write):
        fields["license_status"] = LicenseStatus.UNREGISTERED
    if write.status in (WorkerStatus.STOPPED, WorkerStatus.PENDING, WorkerStatus.TERMINATED):
        fields["public_ip"] = None
    if write.desired_status is not None:
        _check_accepted_drift(worker, write, drift)
        fields |= {"desired_status": DesiredStatus.STOPPED, "last_paused_at": now, "pause_reason": STOPPED_EXTERNALLY}
    return updated_worker(worker, now, bump_generation="desired_status" in fields, **fields)


def leaks_license(worker: Worker, write: WorkerStatusUpdate) -> bool:
    """Whether an instance ends with this write whose licence was not confirmed to have been given back."""
    if worker.license_status not in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING):
        return False
    given_up = "instance_id" in write.model_fields_set and write.instance_id != worker.instance_id
    return worker.instance_id is not None and (write.status is WorkerStatus.TERMINATED or given_up)


def audit_label(worker: Worker, write: WorkerStatusUpdate) -> str:
    """Under which label a step of automation is kept besides; none: the empty text. One commit, so none is lost."""
    if (worker.status, write.status) == (WorkerStatus.PENDING, WorkerStatus.PROVISIONING):
        return "provisioned"
    if (worker.status, write.status) == (WorkerStatus.DRAINING, WorkerStatus.STOPPING) and worker.paused_by_policy:
        return "drained"
    return ""


def activity_event(worker: Worker, write: WorkerStatusUpdate) -> StatusEvent | None:
    """What a write amounts to for people who look back; None: one of the usual steps."""
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


def apply_launch_intent(worker: Worker, write: LaunchIntentRequest, now: datetime) -> Worker:
    """Store the intent of an attempt before its call; a replay of the stored one is no change."""
    check_version(worker, write.version)
    stored = worker.launch_intent
    if stored is not None and write.attempt == stored.attempt:
        if write.parameters == stored.parameters:
            return worker
        raise _attempt_mismatch(worker, f"attempt {write.attempt} is stored with other parameters")
    if worker.status is not WorkerStatus.PENDING:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a PENDING worker is launched; this one is {worker.status}"
        )
    if write.attempt != worker.launch_attempt + 1:
        raise _attempt_mismatch(worker, f"the next attempt is {worker.launch_attempt + 1}, not {write.attempt}")
    intent = LaunchIntent(attempt=write.attempt, parameters=write.parameters, stored_at=now)
    return updated_worker(worker, now, launch_intent=intent, launch_attempt=write.attempt)


def apply_license_status(worker: Worker, write: LicenseStatusUpdate, now: datetime) -> Worker:
    """Take over what CML says of the licence."""
    if write.version is not None:
        check_version(worker, write.version)
    fields: dict[str, Any] = {"license_status": write.status}
    if write.clear_pending:
        fields["pending_license_operation"] = None
    if write.status is LicenseStatus.DEREGISTERED:
        fields["has_license_token"] = False
    # As long as nobody asks for anything else, what CML refused once it would refuse again.
    fields["license_failed_generation"] = worker.generation if write.status is LicenseStatus.FAILED else None
    return updated_worker(worker, now, **fields)


def _check_intent_settled(worker: Worker, write: WorkerStatusUpdate) -> None:
    if write.status is not WorkerStatus.PENDING and write.status is not WorkerStatus.FAILED:
        detail = (
            "launch_intent: only the intent of a worker that is PENDING or has FAILED can be settled as not launched"
        )
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if worker.instance_id is not None:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "launch_intent: the worker has an instance; it was launched")


def _within_last_hour(moments: tuple[datetime, ...], now: datetime) -> tuple[datetime, ...]:
    """The moments of the last hour and this one; more than a few are never of interest."""
    recent = [moment for moment in moments if now - moment < timedelta(hours=1)]
    return (*recent[-_MAX_REMEMBERED:], now)


def _check_accepted_drift(worker: Worker, write: WorkerStatusUpdate, drift: DriftPolicy) -> None:
    if drift is not DriftPolicy.ACCEPT or write.status not in _DRIFT_STATUSES:
        detail = (
            "desired_status: a controller changes it only when a stop from outside is accepted (DRIFT_POLICY=accept)"
        )
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if worker.desired_status is DesiredStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "desired_status: TERMINATED is final")


def _attempt_mismatch(worker: Worker, detail: str) -> ProblemError:
    return ProblemError(ProblemCode.ATTEMPT_MISMATCH, detail, current={"launch_attempt": worker.launch_attempt})
