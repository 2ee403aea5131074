"""Imported workers: what is recorded of a discovered instance, and how a person adopts it.

An imported worker takes no lablets until it is adopted. Its template and price follow from its tag `template_name` or
its instance type; CPU and memory are what EC2 says about the instance type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import TEMPLATES, find_all
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.workers.lifecycle import updated_record
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import Worker
from lcm.model.worker.status import STOP_STATUSES, DesiredStatus, WorkerOrigin, WorkerStatus
from lcm.model.worker.template import Capacity, WorkerTemplate

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.worker.requests import AdoptWorkerRequest, ImportWorkerRequest

TEMPLATE_TAG = "template_name"


async def import_worker(tx: Transaction, request: ImportWorkerRequest, worker_id: str, region: str) -> Worker:
    """Record a discovered instance as a new worker."""
    stopped = request.status in STOP_STATUSES
    worker = Worker(
        id=worker_id,
        name=request.name or request.instance_id,
        template_name=None,
        aws_region=region,
        aws_account_id=request.aws_account_id,
        status=request.status,
        status_since=tx.now,
        desired_status=DesiredStatus.STOPPED if stopped else DesiredStatus.RUNNING,
        instance_id=request.instance_id,
        instance_since=tx.now,
        instance_type=request.instance_type,
        instance_cpu_cores=request.cpu_cores,
        instance_memory_gb=request.memory_gb,
        ami_id=request.ami_id,
        public_ip=None if stopped else request.public_ip,
        private_ip=request.private_ip,
        origin=WorkerOrigin.IMPORTED,
        has_cml_credentials=False,
        previous_worker_id=request.previous_worker_id,
        tags=request.tags,
        idle_detection_enabled=False,
        last_resumed_at=tx.now if request.status is WorkerStatus.RUNNING else None,
        cml_version=request.cml_version,
        created_at=tx.now,
        updated_at=tx.now,
    )
    worker = worker.model_copy(update=await _template_fields(tx.store, worker))
    return tx.save_worker(worker, "imported", f"discovery found instance {request.instance_id}")


async def complete_import(tx: Transaction, worker: Worker, request: ImportWorkerRequest) -> Worker:
    """Add what its instance type offers to a worker that was imported while EC2 did not say it."""
    if worker.origin is not WorkerOrigin.IMPORTED or worker.instance_cpu_cores is not None or request.cpu_cores is None:
        return worker
    worker = await tx.worker(worker.id)
    fields: dict[str, Any] = {"instance_cpu_cores": request.cpu_cores, "instance_memory_gb": request.memory_gb}
    if worker.capacity is not None and request.memory_gb is not None:
        offered = {"cpu_cores": request.cpu_cores, "memory_gb": request.memory_gb}
        fields["capacity"] = worker.capacity.model_copy(update=offered)
    return tx.save_worker(updated_record(worker, tx.now, **fields), "import_completed")


async def build_adopted(store: Store, worker: Worker, request: AdoptWorkerRequest, now: datetime) -> Worker:
    """The imported worker as one of ours. It may be adopted repeatedly, with other values."""
    if worker.origin is not WorkerOrigin.IMPORTED:
        raise ProblemError(
            ProblemCode.NOT_POSSIBLE_NOW, "only an imported worker can be adopted; this one was created by LCM"
        )
    if worker.status is WorkerStatus.TERMINATED or worker.desired_status is DesiredStatus.TERMINATED:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, "the worker is terminated or being terminated")
    fields: dict[str, Any] = {"adopted_at": worker.adopted_at or now, "schedulable": request.schedulable}
    if request.template_name is not None:
        fields |= await _fields_of_named_template(store, worker, request.template_name)
    elif worker.capacity is None:
        fields |= await _template_fields(store, worker)
    if request.schedulable and fields.get("capacity", worker.capacity) is None:
        detail = (
            "template_name: required, because no template has this worker's instance type"
            f" ({worker.instance_type or 'unknown'}): its disk and its number of nodes are not known;"
            " name a template, or adopt it with schedulable false"
        )
        raise ProblemError(ProblemCode.INVALID, detail)
    fields["requires_kvm"] = request.schedulable and await _requires_kvm(
        store, fields.get("template_name", worker.template_name)
    )
    if request.idle_detection_enabled is not None:
        fields["idle_detection_enabled"] = request.idle_detection_enabled
    if request.license_token is not None:
        fields["has_license_token"] = True
    return updated_record(worker, now, bump_generation=True, **fields)


async def _template_fields(store: Store, worker: Worker) -> dict[str, Any]:
    """Template, price and capacity by the tag or by the instance type; nothing if neither fits."""
    templates = await _templates(store)
    by_type = _by_type(templates, worker.instance_type)
    named = next((each for each in templates if each.name == worker.tags.get(TEMPLATE_TAG)), by_type)
    return {} if named is None else _fields_of(worker, named, by_type)


async def _fields_of_named_template(store: Store, worker: Worker, name: str) -> dict[str, Any]:
    templates = await _templates(store)
    named = next((each for each in templates if each.name == name), None)
    if named is None:
        known = ", ".join(sorted(each.name for each in templates))
        raise ProblemError(
            ProblemCode.INVALID, f"template_name: there is no template {name}; existing templates: {known}"
        )
    return _fields_of(worker, named, _by_type(templates, worker.instance_type))


async def _requires_kvm(store: Store, template_name: str | None) -> bool:
    """Whether its template requires KVM. Nobody asks that of an instance that only runs here, without lablets."""
    return any(each.requires_kvm for each in await _templates(store) if each.name == template_name)


def _fields_of(worker: Worker, template: WorkerTemplate, priced: WorkerTemplate | None) -> dict[str, Any]:
    """What EC2 says about the instance comes before the template; the price is that of the instance type, if known."""
    size = template.capacity
    capacity = Capacity(
        cpu_cores=worker.instance_cpu_cores or size.cpu_cores,
        memory_gb=worker.instance_memory_gb or size.memory_gb,
        storage_gb=size.storage_gb,
        max_nodes=size.max_nodes,
    )
    price = (priced or template).cost_per_hour_usd
    return {"template_name": template.name, "capacity": capacity, "cost_per_hour_usd": price}


async def _templates(store: Store) -> list[WorkerTemplate]:
    stored = [each async for each in find_all(store, TEMPLATES)]
    found = readable_records(stored, WorkerTemplate, "template")
    return sorted(found, key=lambda each: (not each.enabled, each.name))


def _by_type(templates: list[WorkerTemplate], instance_type: str | None) -> WorkerTemplate | None:
    return next((each for each in templates if each.instance_type == instance_type), None)
