"""Create a worker, change what people may change of it, ask for a licence operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import updated_worker
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import PendingLicenseOperation, Worker
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LostInstancePolicy, WorkerOrigin, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.requests import CreateWorkerRequest, LicenseRequest, UpdateWorkerRequest
    from lcm.model.worker.template import WorkerTemplate


def build_worker(
    request: CreateWorkerRequest, template: WorkerTemplate, *, worker_id: str, aws_region: str, now: datetime
) -> Worker:
    """The record of a new worker."""
    if not template.enabled:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, f"template {template.name} is disabled; enable it or choose another"
        )
    return Worker(
        id=worker_id,
        name=request.name,
        template_name=template.name,
        aws_region=aws_region,
        status=WorkerStatus.PENDING,
        status_since=now,
        desired_status=request.desired_status,
        instance_type=template.instance_type,
        origin=WorkerOrigin.CREATED,
        tags=dict(request.tags),
        has_license_token=request.license_token is not None,
        lost_instance_policy=request.lost_instance_policy,
        idle_detection_enabled=request.idle_detection_enabled,
        capacity=template.capacity,
        cost_per_hour_usd=template.cost_per_hour_usd,
        created_at=now,
        updated_at=now,
    )


def apply_patch(worker: Worker, request: UpdateWorkerRequest, now: datetime) -> Worker:
    """Change what was given. Tags replace the former ones as a whole; a licence token that is null is withdrawn."""
    if worker.status is WorkerStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is TERMINATED: its record is history now")
    given = request.model_fields_set
    fields: dict[str, Any] = {}
    for name in ("name", "tags", "idle_detection_enabled", "lost_instance_policy"):
        if name in given:
            fields[name] = getattr(request, name)
    if fields.get("lost_instance_policy") is LostInstancePolicy.REPLACE and worker.template_name is None:
        detail = "lost_instance_policy: a worker without a template cannot be replaced; it has to be terminate"
        raise ProblemError(ProblemCode.INVALID, detail)
    if "license_token" in given:
        fields["has_license_token"] = request.license_token is not None
    bump_generation = "lost_instance_policy" in fields or "license_token" in given
    after = updated_worker(worker, now, bump_generation=bump_generation, **fields)
    if after is worker and "license_token" in given and request.license_token is not None:
        # Another token in place of the former: the record looks the same, but somebody has asked for something else.
        moved = {"version": worker.version + 1, "generation": worker.generation + 1, "updated_at": now}
        return worker.model_copy(update=moved)
    return after


def apply_license_request(worker: Worker, request: LicenseRequest, by: str, now: datetime) -> Worker:
    """Ask for a registration or for giving the licence back; giving it back withdraws the token too."""
    if worker.status is WorkerStatus.TERMINATED or worker.desired_status is DesiredStatus.TERMINATED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, "the worker is terminated or about to be; its licence is given back"
        )
    registers = request.operation is LicenseOperation.REGISTER
    if registers and request.token is None and not worker.has_license_token:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker has no licence token yet; give one as token")
    pending = worker.pending_license_operation
    if pending is not None and pending.operation is request.operation and request.token is None:
        return worker
    operation = PendingLicenseOperation(operation=request.operation, requested_at=now, requested_by=by)
    return updated_worker(
        worker, now, bump_generation=True, pending_license_operation=operation, has_license_token=registers
    )
