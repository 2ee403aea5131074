"""What controllers write: status, the intent to launch, what became of a licence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.commands.changing import changed, entering
from lcm.control_plane.commands.refusal import Refusal
from lcm.model.fleet_settings import DriftPolicy
from lcm.model.problems import ProblemCode
from lcm.model.status import DesiredStatus, LicenseStatus, WorkerStatus
from lcm.model.worker import LaunchIntent

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.requests import LaunchWrite, LicenseStatusWrite, StatusWrite
    from lcm.model.worker import Worker

_WRITTEN_AS_GIVEN = (
    "instance_id",
    "instance_type",
    "ami_id",
    "aws_account_id",
    "public_ip",
    "private_ip",
    "terminated_by",
    "terminated_reason",
)
_DRIFTED = (WorkerStatus.STOPPING, WorkerStatus.STOPPED)


def check_version(worker: Worker, version: int) -> None:
    """A writer that has not seen the present record must look again."""
    if version != worker.version:
        detail = f"the worker is at version {worker.version}, not {version}; read it again"
        raise Refusal(ProblemCode.VERSION_CONFLICT, detail, current={"version": worker.version})


def write_status(worker: Worker, write: StatusWrite, drift: DriftPolicy, now: datetime) -> Worker:
    """Take over what a controller found or did; a transition that is not legal raises and changes nothing."""
    check_version(worker, write.version)
    given = write.model_fields_set
    fields: dict[str, Any] = {name: getattr(write, name) for name in _WRITTEN_AS_GIVEN if name in given}
    if "conditions" in given:
        fields["conditions"] = write.conditions or ()
    fields |= entering(worker, write.status, now)
    if write.status is WorkerStatus.PENDING and worker.status is not WorkerStatus.PENDING:
        fields["launch_intent"] = None
    if write.status in (WorkerStatus.STOPPED, WorkerStatus.PENDING, WorkerStatus.TERMINATED):
        fields["public_ip"] = None
    if write.desired_status is not None:
        _check_accepted_drift(worker, write, drift)
        fields["desired_status"] = DesiredStatus.STOPPED
    return changed(worker, now, asks_anew="desired_status" in fields, **fields)


def store_intent(worker: Worker, write: LaunchWrite, now: datetime) -> Worker:
    """Store the intent of an attempt before its call; a replay of the stored one is no change."""
    check_version(worker, write.version)
    stored = worker.launch_intent
    if stored is not None and write.attempt == stored.attempt:
        if write.parameters == stored.parameters:
            return worker
        raise _attempt_refused(worker, f"attempt {write.attempt} is stored with other parameters")
    if worker.status is not WorkerStatus.PENDING:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, f"only a PENDING worker is launched; this one is {worker.status}")
    if write.attempt != worker.launch_attempt + 1:
        raise _attempt_refused(worker, f"the next attempt is {worker.launch_attempt + 1}, not {write.attempt}")
    intent = LaunchIntent(attempt=write.attempt, parameters=write.parameters, stored_at=now)
    return changed(worker, now, launch_intent=intent, launch_attempt=write.attempt)


def write_license_status(worker: Worker, write: LicenseStatusWrite, now: datetime) -> Worker:
    """Take over what CML says of the licence."""
    if write.version is not None:
        check_version(worker, write.version)
    fields: dict[str, Any] = {"license_status": write.status}
    if write.clear_pending:
        fields["pending_license_operation"] = None
    if write.status is LicenseStatus.DEREGISTERED:
        fields["has_license_token"] = False
    return changed(worker, now, **fields)


def _check_accepted_drift(worker: Worker, write: StatusWrite, drift: DriftPolicy) -> None:
    if drift is not DriftPolicy.ACCEPT or write.status not in _DRIFTED:
        detail = (
            "desired_status: a controller changes it only when a stop from outside is accepted (DRIFT_POLICY=accept)"
        )
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if worker.desired_status is DesiredStatus.TERMINATED:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, "desired_status: TERMINATED is final")


def _attempt_refused(worker: Worker, detail: str) -> Refusal:
    return Refusal(ProblemCode.ATTEMPT_MISMATCH, detail, current={"launch_attempt": worker.launch_attempt})
