"""The kinds of documents that the control plane keeps, and what can be asked of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.port import Kind
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.lablet.urgency import lablet_urgency, shown_until
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import worker_urgency

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue
    from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
    from lcm.model.worker.record import Worker

WORKERS = Kind(
    "workers",
    fields=(
        "name",
        "status",
        "desired_status",
        "aws_region",
        "template_name",
        "ready",
        "held",
        "at_rest",
        "created_at",
        "updated_at",
        "cost_per_hour_usd",
        "cpu_cores",
        "memory_gb",
        "storage_gb",
        "max_nodes",
        "saved_usd",
        "stopped_since",
        "stopped_by_policy",
        "urgency",
        "attention",
    ),
    unique=("name", "instance_id", "requested_for"),
    grouped=(
        "aws_region",
        "status",
        "ready",
        "held",
        "cost_per_hour_usd",
        "cpu_cores",
        "memory_gb",
        "storage_gb",
        "max_nodes",
        "saved_usd",
        "stopped_since",
        "stopped_by_policy",
    ),
)
LABLETS = Kind(
    "lablets",
    fields=(
        "name",
        "status",
        "owner",
        "worker_id",
        "definition",
        "definition_name",
        "wanted",
        "created_at",
        "updated_at",
        "urgency",
        "attention",
        "shown_until",
    ),
    unique=("name",),
    grouped=("status",),
)
DEFINITIONS = Kind("definitions", fields=("name", "enabled", "created_at"))
TOPOLOGIES = Kind("topologies")
LEADERSHIPS = Kind("leaderships")
TEMPLATES = Kind("templates", fields=("enabled",))
SETTINGS = Kind("settings")
FLEET = Kind("fleet")
DECISIONS = Kind("decisions")
CONTROLLER_REPORTS = Kind("controller_reports")
WORKER_SECRETS = Kind("worker_secrets")
INSTALLATION = Kind("installation")
RETENTION_MARKERS = Kind("forgotten")
IDEMPOTENT_RESPONSES = Kind("answers", fields=("at",))

ALL_KINDS = (
    WORKERS,
    LABLETS,
    DEFINITIONS,
    TOPOLOGIES,
    LEADERSHIPS,
    TEMPLATES,
    SETTINGS,
    FLEET,
    DECISIONS,
    CONTROLLER_REPORTS,
    WORKER_SECRETS,
    IDEMPOTENT_RESPONSES,
    INSTALLATION,
    RETENTION_MARKERS,
)

WORKER_HISTORY = "history"
AUDIT = "audit"
WORKER_CHANGED = "worker"
LABLET_HISTORY = "lablet-history"
LABLET_CHANGED = "lablet"


def worker_fields(worker: Worker) -> dict[str, FieldValue]:
    """What workers can be filtered, sorted and summed by."""
    size = worker.capacity
    cost = worker.cost_per_hour_usd or 0.0
    stopped = worker.status is WorkerStatus.STOPPED
    urgency = worker_urgency(worker)
    return {
        "name": worker.name,
        "status": worker.status.value,
        "desired_status": worker.desired_status.value,
        "aws_region": worker.aws_region,
        "template_name": worker.template_name,
        "ready": worker.ready,
        "held": worker.hold is not None,
        "at_rest": worker.at_rest,
        "created_at": worker.created_at.isoformat(),
        "updated_at": worker.updated_at.isoformat(),
        "cost_per_hour_usd": worker.cost_per_hour_usd,
        "cpu_cores": size.cpu_cores if size else None,
        "memory_gb": size.memory_gb if size else None,
        "storage_gb": size.storage_gb if size else None,
        "max_nodes": size.max_nodes if size else None,
        # What former stops have saved, and for a present one its beginning weighed by the price: from the sums of both
        # the savings of the whole fleet follow at any moment, without looking at a single record.
        "saved_usd": cost * worker.stopped_seconds / 3600,
        "stopped_since": cost * worker.status_since.timestamp() / 3600 if stopped else 0.0,
        "stopped_by_policy": worker.stopped_by_policy,
        "urgency": int(urgency),
        "attention": f"{int(urgency)} {worker.name}",  # problems first, and among equals by name
    }


def worker_unique_keys(worker: Worker) -> dict[str, str]:
    """What no two workers may share as long as neither is TERMINATED."""
    if worker.status is WorkerStatus.TERMINATED:
        return {}
    taken = {"name": worker.name}
    if worker.instance_id is not None:
        taken["instance_id"] = worker.instance_id
    if worker.requested_for is not None:
        taken["requested_for"] = worker.requested_for
    return taken


def lablet_fields(lablet: Lablet) -> dict[str, FieldValue]:
    """What lablets can be filtered and sorted by."""
    urgency = int(lablet_urgency(lablet))
    return {
        "name": lablet.name,
        "status": lablet.status.value,
        "owner": lablet.owner,
        "worker_id": lablet.worker_id,
        "definition": lablet.definition,
        "definition_name": lablet.definition.partition("@")[0],
        "wanted": lablet.wanted,
        "created_at": lablet.created_at.isoformat(),
        "updated_at": lablet.updated_at.isoformat(),
        "urgency": urgency,
        "attention": f"{urgency} {lablet.name}",  # problems first, and among equals by name
        "shown_until": shown_until(lablet),
    }


def lablet_unique_keys(lablet: Lablet) -> dict[str, str]:
    """What no two lablets may share as long as neither has ended."""
    return {} if lablet.status in FINAL_LABLET_STATUSES else {"name": lablet.name}


def definition_fields(definition: LabletDefinitionSummary) -> dict[str, FieldValue]:
    """What definitions can be filtered and sorted by."""
    return {
        "name": definition.name,
        "enabled": definition.enabled,
        "created_at": definition.created_at.isoformat(),
    }
