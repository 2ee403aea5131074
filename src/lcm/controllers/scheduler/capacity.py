"""What is left on a worker, or on one that is only planned, after what was planned so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.lablet.placement import (
    check_capacity,
    check_cml_version,
    check_hold,
    check_license,
    check_node_definitions,
    check_ports,
    check_region,
    placement_score,
    with_lablet,
)
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import LabletRequirements
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Allocation, Capacity


@dataclass(slots=True)
class FreeCapacity:
    """In the course of one plan it only gets fuller: what did not fit once need not be tried again."""

    capacity: Capacity
    taken: Allocation

    @property
    def score(self) -> float:
        """How full it is: the fullest that fits is the best."""
        return placement_score(self.capacity, self.taken)

    def fits(self, requirements: LabletRequirements, ports: PortRange) -> bool:
        """Whether there is enough left of everything."""
        return self.lacks(requirements, ports) is None

    def lacks(self, requirements: LabletRequirements, ports: PortRange) -> str | None:
        """What there is not enough of."""
        return check_capacity(self.capacity, self.taken, requirements) or check_ports(self.taken, requirements, ports)

    def take(self, requirements: LabletRequirements, ports: PortRange) -> None:
        """Plan one more lablet. Whoever reserves gives it its ports; here only their count matters."""
        numbers = ports.give(requirements.ports, self.taken.ports)
        assert numbers is not None, "too few ports: ask whether it fits first"
        self.taken = with_lablet(self.taken, requirements, numbers.values())


_ARRIVING_STATUSES = frozenset(
    {
        WorkerStatus.PENDING,
        WorkerStatus.PROVISIONING,
        WorkerStatus.STARTING,
        WorkerStatus.RUNNING,
        WorkerStatus.STOPPING,
        WorkerStatus.STOPPED,
    }
)
_LICENSE_LOST = frozenset({LicenseStatus.FAILED, LicenseStatus.DEREGISTERED})


def is_arriving(worker: Worker, now: datetime) -> bool:
    """Whether it is wanted running and nothing is known that keeps it from becoming ready."""
    return (
        worker.desired_status is DesiredStatus.RUNNING
        and worker.status in _ARRIVING_STATUSES
        and check_hold(worker, now) is None
        and not is_condition_true(worker.conditions, ConditionType.STUCK)
    )


def is_resumable(worker: Worker, now: datetime) -> bool:
    """Whether a policy stopped it, so that a policy may start it again."""
    return (
        worker.status is WorkerStatus.STOPPED
        and worker.desired_status is DesiredStatus.STOPPED
        and worker.paused_by_policy
        and worker.template_name is not None
        and check_hold(worker, now) is None
    )


def future_rejection_reason(
    worker: Worker, requirements: LabletRequirements, *, taken: Allocation, aws_region: str | None, ports: PortRange
) -> str | None:
    """Why the lablet cannot be placed on the worker once it is ready, as far as can be known; None: it will fit.

    What a worker that has not come up yet does not tell (version, node definitions, licence) is taken to be right.
    """
    return (
        _license_rejection_reason(worker, requirements)
        or check_capacity(worker.capacity, taken, requirements)
        or (None if worker.cml_version is None else check_cml_version(worker, requirements))
        or (None if worker.node_definitions is None else check_node_definitions(worker, requirements))
        or check_ports(taken, requirements, ports)
        or check_region(worker, aws_region)
    )


def _license_rejection_reason(worker: Worker, requirements: LabletRequirements) -> str | None:
    """A registration takes a while after CML has come up; without a token none will follow."""
    lacking = check_license(worker, requirements)
    if lacking is None or worker.license_status is LicenseStatus.REGISTERING:
        return None
    expected = worker.has_license_token or not worker.ready
    return None if expected and worker.license_status not in _LICENSE_LOST else lacking
