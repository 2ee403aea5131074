"""Changes of a worker that people request: commands, holds, edits and license operations.

Each is a pure function that takes a worker and returns the worker as it should be, or raises `ProblemError`. An equal
worker means that there was nothing to do: nothing is written, and the response is the same as if something had been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lcm.control_plane.errors import ProblemError
from lcm.model.calendar.precedence import booking_claim
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Hold, Override, PendingLicenseOperation, Worker
from lcm.model.worker.status import (
    NO_ADDRESS_STATUSES,
    DesiredStatus,
    LicenseOperation,
    LicenseStatus,
    LostInstancePolicy,
    WorkerOrigin,
    WorkerStatus,
    check_transition,
)

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest, LicenseRequest, UpdateWorkerRequest
    from lcm.model.worker.template import WorkerTemplate


Record = TypeVar("Record", Worker, "Lablet")

MANUAL_PAUSE_REASON = "manual"

# A new request resets the drift counter: earlier stops from outside no longer count.
_DRIFT_RESET: dict[str, Any] = {"drifted": False, "drifted_at": ()}


def updated_record(record: Record, now: datetime, *, bump_generation: bool = False, **fields: Any) -> Record:
    """The worker or lablet with these fields.

    If any differs, the version is incremented; `bump_generation` increments the generation too.
    """
    if all(getattr(record, name) == value for name, value in fields.items()):
        return record
    fields |= {"version": record.version + 1, "generation": record.generation + bump_generation, "updated_at": now}
    return record.model_copy(update=fields)


def on_enter(worker: Worker, status: WorkerStatus, now: datetime) -> dict[str, Any]:
    """The fields that change on entering a status. Illegal transitions raise; the same status changes nothing."""
    check_transition(worker.status, status)
    if status is worker.status:
        return {}
    fields: dict[str, Any] = {"status": status, "status_since": now}
    if worker.status is WorkerStatus.STOPPED:
        fields["stopped_seconds"] = worker.stopped_seconds + (now - worker.status_since).total_seconds()
    if status is WorkerStatus.STOPPED:
        fields["stopped_by_policy"] = worker.paused_by_policy  # kept after a resume, to attribute the savings
    if status in NO_ADDRESS_STATUSES:
        fields["public_ip"] = None
    if status in (WorkerStatus.STARTING, WorkerStatus.RUNNING):
        fields["drifted"] = False
    if status is WorkerStatus.RUNNING:
        fields["last_resumed_at"] = now
    return fields


def pause_fields(worker: Worker, now: datetime, reason: str, *, by_policy: bool) -> dict[str, Any]:
    """The fields that change when the desired status goes from RUNNING to STOPPED."""
    if worker.desired_status is not DesiredStatus.RUNNING:
        return {"desired_status": DesiredStatus.STOPPED}
    counter = "auto_pause_count" if by_policy else "manual_pause_count"
    return {
        **_DRIFT_RESET,
        "desired_status": DesiredStatus.STOPPED,
        "last_paused_at": now,
        "pause_reason": reason,
        "paused_by_policy": by_policy,
        "override": None,
        counter: getattr(worker, counter) + 1,
    }


def resume_fields(worker: Worker, *, by_policy: bool) -> dict[str, Any]:
    """The fields that change when the desired status goes from STOPPED to RUNNING."""
    if worker.desired_status is not DesiredStatus.STOPPED:
        return {"desired_status": DesiredStatus.RUNNING}
    counter = "auto_resume_count" if by_policy else "manual_resume_count"
    return {
        **_DRIFT_RESET,
        "desired_status": DesiredStatus.RUNNING,
        "pause_reason": None,
        "paused_by_policy": False,
        "override": None,
        counter: getattr(worker, counter) + 1,
    }


def make_override(
    desired: DesiredStatus, until: datetime | None, by: str, now: datetime, reason: str | None = None
) -> Override:
    """What a person wants until a time. One whose end is in the past is rejected."""
    if until is not None and until <= now:
        raise ProblemError(ProblemCode.INVALID, f"until: {until.isoformat()} is not in the future")
    return Override(desired=desired, until=until, by=by, since=now, reason=reason or "")


def _override_after(
    worker: Worker, desired: DesiredStatus, override: Override | None, now: datetime
) -> dict[str, Override | None]:
    """The override after a person's command. A repeated command changes nothing: who gave it first, and when, stays."""
    present = worker.override
    kept = present is not None and present.desired is desired and present.active(now)
    if present is not None and kept and (override is None or override.until == present.until):
        return {"override": present}
    return {"override": override}


def start(worker: Worker, now: datetime, *, override: Override | None = None) -> Worker:
    """Set the desired status to RUNNING. A drain in progress is cancelled."""
    _check_commandable(worker, "start")
    fields = resume_fields(worker, by_policy=False) | _override_after(worker, DesiredStatus.RUNNING, override, now)
    fields["maintenance_restarts"] = ()
    if worker.status is WorkerStatus.DRAINING:
        fields |= on_enter(worker, WorkerStatus.RUNNING, now)
    elif worker.status is WorkerStatus.RUNNING and worker.desired_status is not DesiredStatus.RUNNING:
        # It has not left yet, so no transition will date this resume, and a policy would stop it again at once.
        fields["last_resumed_at"] = now
    return updated_record(worker, now, bump_generation=True, **fields)


def stop(worker: Worker, now: datetime, reason: str | None = None, *, override: Override | None = None) -> Worker:
    """Set the desired status to STOPPED, without waiting for lablets. A drain in progress ends at once."""
    _check_commandable(worker, "stop")
    _check_not_booked(worker, "stop", now)
    fields = pause_fields(worker, now, reason or MANUAL_PAUSE_REASON, by_policy=False)
    fields |= _override_after(worker, DesiredStatus.STOPPED, override, now)
    if worker.is_in_maintenance:  # a person's stop lasts: it is not started again when it has moved
        fields |= {"pause_reason": reason or MANUAL_PAUSE_REASON, "paused_by_policy": False, "last_paused_at": now}
    if worker.status is WorkerStatus.DRAINING:
        fields |= on_enter(worker, WorkerStatus.STOPPING, now)
    return updated_record(worker, now, bump_generation=True, **fields)


def terminate(worker: Worker, now: datetime, *, release_license: bool = True) -> Worker:
    """Set the desired status to TERMINATED. Once `release_license` was false, it stays false."""
    if worker.status is WorkerStatus.TERMINATED:
        return worker
    fields = {"desired_status": DesiredStatus.TERMINATED, "release_license": worker.release_license and release_license}
    return updated_record(worker, now, bump_generation=True, **fields)


def drain(worker: Worker, now: datetime, reason: str | None = None, *, by_policy: bool = False) -> Worker:
    """Accept no new lablets, wait for the existing ones to end, then stop."""
    _check_not_terminating(worker, "drain")
    if worker.status is WorkerStatus.DRAINING:
        return worker
    _check_not_booked(worker, "drain", now)
    if worker.status is not WorkerStatus.RUNNING:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a RUNNING worker can be drained; this one is {worker.status}"
        )
    fields = pause_fields(worker, now, reason or "drain", by_policy=by_policy)
    fields |= on_enter(worker, WorkerStatus.DRAINING, now)
    return updated_record(worker, now, bump_generation=True, **fields)


def cancel_drain(worker: Worker, now: datetime) -> Worker:
    """Accept lablets again."""
    _check_not_terminating(worker, "cancel-drain")
    if worker.status is not WorkerStatus.DRAINING:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"there is no drain to cancel; the worker is {worker.status}")
    fields = resume_fields(worker, by_policy=False) | on_enter(worker, WorkerStatus.RUNNING, now)
    return updated_record(worker, now, bump_generation=True, **fields)


def retry(worker: Worker, now: datetime) -> Worker:
    """Retry a failed worker: with its instance if it has one, otherwise with a new launch attempt."""
    _check_not_terminating(worker, "retry")
    if worker.status is not WorkerStatus.FAILED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"only a FAILED worker can be retried; this one is {worker.status}"
        )
    next_status = WorkerStatus.STARTING if worker.instance_id else WorkerStatus.PENDING
    fields = on_enter(worker, next_status, now) | {"replaced_at": (), "drifted_at": ()}
    if next_status is WorkerStatus.PENDING:
        fields["launch_intent"] = None  # it is settled: the next attempt has its own client token and parameters
    return updated_record(worker, now, bump_generation=True, **fields)


def trust(worker: Worker, now: datetime) -> Worker:
    """Accept the certificate that the worker's CML presents instead of the pinned one."""
    presented = worker.cml_certificate_presented
    if presented is None:
        detail = "there is no certificate to trust: its CML presents the pinned one, or has not presented any yet"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    return updated_record(worker, now, cml_certificate=presented, cml_certificate_presented=None)


def _check_not_terminating(worker: Worker, command: str) -> None:
    if worker.status is WorkerStatus.TERMINATED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"cannot {command}: the worker is TERMINATED; create a new one"
        )
    if worker.desired_status is DesiredStatus.TERMINATED:
        detail = f"cannot {command}: the worker is being terminated, which cannot be undone; create a new one"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


def _check_not_booked(worker: Worker, command: str, now: datetime) -> None:
    """A booking outranks a person's stop: it would be started again, with the labs of the class lost."""
    claim = booking_claim(worker, now)
    if claim is not None and worker.desired_status is DesiredStatus.RUNNING:
        detail = f"cannot {command}: {claim.reason}; cancel the class first, or terminate the worker to replace it"
        raise ProblemError(ProblemCode.BOOKED, detail)


def _check_commandable(worker: Worker, command: str) -> None:
    _check_not_terminating(worker, command)
    if worker.status is WorkerStatus.FAILED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"cannot {command}: the worker has FAILED; retry or terminate it"
        )


def make_hold(request: HoldRequest, by: str, now: datetime) -> Hold:
    """The requested hold. One whose end is in the past is rejected."""
    if request.until is not None and request.until <= now:
        raise ProblemError(ProblemCode.INVALID, f"until: {request.until.isoformat()} is not in the future")
    return Hold(reason=request.reason, by=by, since=now, until=request.until)


def hold(worker: Worker, request: HoldRequest, by: str, now: datetime) -> Worker:
    """Put this worker on hold: controllers stop changing it."""
    if worker.status is WorkerStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is TERMINATED; there is nothing to hold")
    requested = make_hold(request, by, now)
    current = worker.hold
    if current is not None and (current.reason, current.until) == (requested.reason, requested.until):
        return worker  # a repeated request: who set the hold first, and when, stays
    return updated_record(worker, now, bump_generation=True, hold=requested)


def release(worker: Worker, now: datetime) -> Worker:
    return updated_record(worker, now, bump_generation=True, hold=None)


def build_worker(
    request: CreateWorkerRequest, template: WorkerTemplate, *, worker_id: str, aws_region: str, now: datetime
) -> Worker:
    """The record of a new worker."""
    if not template.enabled:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"template {template.name} is disabled; enable it or choose another"
        )
    return worker_from_template(
        template,
        now,
        id=worker_id,
        name=request.name,
        aws_region=aws_region,
        desired_status=request.desired_status,
        origin=WorkerOrigin.CREATED,
        tags=dict(request.tags),
        has_license_token=request.license_token is not None,
        has_cml_credentials=request.cml_username is not None,
        lost_instance_policy=request.lost_instance_policy,
        idle_detection_enabled=request.idle_detection_enabled,
    )


def worker_from_template(template: WorkerTemplate, now: datetime, **fields: Any) -> Worker:
    """A new PENDING worker. Until its launch, changes of the template change it too; later ones do not."""
    return Worker(
        template_name=template.name,
        instance_type=template.instance_type,
        ami_name_pattern=template.ami_name_pattern,
        nested_virtualization=template.nested_virtualization,
        requires_kvm=template.requires_kvm,
        capacity=template.capacity,
        cost_per_hour_usd=template.cost_per_hour_usd,
        status=WorkerStatus.PENDING,
        status_since=now,
        created_at=now,
        updated_at=now,
        **fields,
    )


def apply_patch(worker: Worker, request: UpdateWorkerRequest, now: datetime, team: str | None = None) -> Worker:
    """Change the fields of the request. Tags replace the existing ones as a whole; a null license token deletes it.

    `team` is the id of the team that it is dedicated to from now on, empty for none; None changes nothing.
    """
    if worker.status is WorkerStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is TERMINATED; its record cannot be changed")
    set_fields = request.model_fields_set
    fields: dict[str, Any] = {}
    for name in ("name", "tags", "idle_detection_enabled", "lost_instance_policy"):
        if name in set_fields:
            fields[name] = getattr(request, name)
    if team is not None:
        fields["team"] = team
    if fields.get("lost_instance_policy") is LostInstancePolicy.REPLACE and worker.template_name is None:
        detail = "lost_instance_policy: must be terminate; a worker without a template cannot be replaced"
        raise ProblemError(ProblemCode.INVALID, detail)
    if "license_token" in set_fields:
        fields["has_license_token"] = request.license_token is not None
        fields["license_token_replaced"] = request.license_token is not None and _is_licensed(worker)
    if "cml_username" in set_fields:
        fields["has_cml_credentials"] = request.cml_username is not None
    bump_generation = "lost_instance_policy" in fields or "license_token" in set_fields
    after = updated_record(worker, now, bump_generation=bump_generation, **fields)
    if after is worker and "license_token" in set_fields and request.license_token is not None:
        # A new token replaces the old one: the record is the same, but the request is a new one.
        versions = {"version": worker.version + 1, "generation": worker.generation + 1, "updated_at": now}
        return worker.model_copy(update=versions)
    return after


def _is_licensed(worker: Worker) -> bool:
    return worker.license_status in (LicenseStatus.REGISTERED, LicenseStatus.REGISTERING)


def apply_license_request(
    worker: Worker, request: LicenseRequest, by: str, now: datetime, *, same_token: bool = False
) -> Worker:
    """Request a registration or a deregistration. Deregistering also deletes the token.

    A registered CML is deregistered first if the token is another one; `same_token` says that it is not.
    """
    if worker.status is WorkerStatus.TERMINATED or worker.desired_status is DesiredStatus.TERMINATED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, "the worker is terminated or being terminated; its license is deregistered"
        )
    registers = request.operation is LicenseOperation.REGISTER
    if registers and request.token is None and not worker.has_license_token:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker has no license token; pass one as token")
    pending = worker.pending_license_operation
    if pending is not None and pending.operation is request.operation and request.token is None:
        return worker
    another = worker.license_token_replaced or (request.token is not None and not same_token)
    before = pending is not None and pending.deregister_first
    operation = PendingLicenseOperation(
        operation=request.operation,
        deregister_first=registers and _is_licensed(worker) and (another or before),
        requested_at=now,
        requested_by=by,
    )
    return updated_record(
        worker,
        now,
        bump_generation=True,
        pending_license_operation=operation,
        has_license_token=registers,
        license_token_replaced=False,
    )
