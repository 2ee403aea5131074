"""Capacity that is not there yet but will be: workers on their way, and paused ones that can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.model.lablet.placement import (
    elsewhere,
    held,
    missing_definitions,
    shortage,
    too_few_ports,
    unlicensed,
    wrong_version,
)
from lcm.model.worker.conditions import ConditionType, holds
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import Requirements
    from lcm.model.worker.allocation import Allocation
    from lcm.model.worker.record import Worker

_COMING = frozenset(
    {
        WorkerStatus.PENDING,
        WorkerStatus.PROVISIONING,
        WorkerStatus.STARTING,
        WorkerStatus.RUNNING,
        WorkerStatus.STOPPING,
        WorkerStatus.STOPPED,
    }
)
_LICENCE_LOST = frozenset({LicenseStatus.FAILED, LicenseStatus.DEREGISTERED})


def on_its_way(worker: Worker, now: datetime) -> bool:
    """Whether it is wanted running and nothing is known that keeps it from becoming ready."""
    return (
        worker.desired_status is DesiredStatus.RUNNING
        and worker.status in _COMING
        and held(worker, now) is None
        and not holds(worker.conditions, ConditionType.STUCK)
    )


def resumable(worker: Worker, now: datetime) -> bool:
    """Whether a policy stopped it, so that a policy may start it again."""
    return (
        worker.status is WorkerStatus.STOPPED
        and worker.desired_status is DesiredStatus.STOPPED
        and worker.paused_by_policy
        and worker.template_name is not None
        and held(worker, now) is None
    )


def why_not_later(
    worker: Worker, requirements: Requirements, *, taken: Allocation, aws_region: str | None, ports: PortRange
) -> str | None:
    """Why the lablet cannot be placed on the worker once it is ready, as far as can be known; None: it will fit.

    What a worker that has not come up yet does not tell (version, node definitions, licence) is taken to be right.
    """
    return (
        _stays_unlicensed(worker, requirements)
        or shortage(worker.capacity, taken, requirements)
        or (None if worker.cml_version is None else wrong_version(worker, requirements))
        or (None if worker.node_definitions is None else missing_definitions(worker, requirements))
        or too_few_ports(taken, requirements, ports)
        or elsewhere(worker, aws_region)
    )


def _stays_unlicensed(worker: Worker, requirements: Requirements) -> str | None:
    """A registration takes a while after CML has come up; without a token none will follow."""
    lacking = unlicensed(worker, requirements)
    if lacking is None or worker.license_status is LicenseStatus.REGISTERING:
        return None
    expected = worker.has_license_token or not worker.ready
    return None if expected and worker.license_status not in _LICENCE_LOST else lacking
