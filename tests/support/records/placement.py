"""Pending lablets, and workers that could take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.model.lablet.record import Lablet, LabletRequirements
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from lcm.model.worker.template import Capacity, WorkerTemplate
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

CML_READY = Condition(type=ConditionType.CML_READY, status=ConditionStatus.TRUE, since=NOW)
STUCK = Condition(type=ConditionType.STUCK, status=ConditionStatus.TRUE, since=NOW)


def a_capacity(cpu: int = 8, memory: float = 32, storage: float = 200, nodes: int = 50) -> Capacity:
    """The capacity of a worker."""
    return Capacity(cpu_cores=cpu, memory_gb=memory, storage_gb=storage, max_nodes=nodes)


def a_ready_worker(number: int = 1, **changes: Any) -> Worker:
    """A worker that accepts lablets."""
    facts: dict[str, Any] = {
        "id": f"w-{number:04}",
        "name": f"worker-{number}",
        "status": WorkerStatus.RUNNING,
        "conditions": (CML_READY,),
        "license_status": LicenseStatus.REGISTERED,
        "has_license_token": True,
        "capacity": a_capacity(),
        "cml_version": "2.7.0+build.4",
        "node_definitions": ("alpine", "iosv"),
    }
    return a_worker(**{**facts, **changes})


def needs(cpu: float = 1, memory: float = 1, storage: float = 1, nodes: int = 1, **more: Any) -> LabletRequirements:
    """The requirements of a lablet."""
    return LabletRequirements(cpu_cores=cpu, memory_gb=memory, storage_gb=storage, nodes=nodes, **more)


def a_lablet(number: int = 1, requirements: LabletRequirements | None = None, **changes: Any) -> Lablet:
    """A lablet that is PENDING_SCHEDULING."""
    facts: dict[str, Any] = {
        "id": f"l-{number:04}",
        "name": f"lablet-{number}",
        "owner": "ada",
        "definition": "lab@1",
        "requirements": requirements or needs(),
        "status_since": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Lablet(**{**facts, **changes})


def a_template(name: str, capacity: Capacity, cost: float, **changes: Any) -> WorkerTemplate:
    """A worker template."""
    facts = {"name": name, "instance_type": "t3.large", "capacity": capacity, "cost_per_hour_usd": cost}
    return WorkerTemplate(**{**facts, **changes})
