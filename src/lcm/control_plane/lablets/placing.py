"""Reserve a worker for a lablet, and give the reservation back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import Refusal
from lcm.control_plane.lablets.lablet_reporting import check_version
from lcm.control_plane.lablets.lifecycle import entering, moved
from lcm.control_plane.workers.lifecycle import changed
from lcm.model.lablet.placement import held, why_not, with_lablet, without_lablet
from lcm.model.lablet.status import IllegalLabletTransition, LabletStatus
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import Lablet, ScheduleWrite
    from lcm.model.worker.allocation import Allocation
    from lcm.model.worker.record import Worker


def place(
    lablet: Lablet, worker: Worker, write: ScheduleWrite, ports: PortRange, now: datetime
) -> tuple[Lablet, Allocation]:
    """The lablet with its worker and ports, and what is taken of the worker then; refused unless it fits as it is now.

    The worker's version is left to whoever reserves for several lablets at once.
    """
    check_version(lablet, write.version)
    if lablet.status is not LabletStatus.PENDING_SCHEDULING:
        raise IllegalLabletTransition(lablet.status, LabletStatus.SCHEDULED)
    if not lablet.wanted:
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, "the lablet is to end")
    needs = lablet.requirements
    why = why_not(worker, needs, now=now, aws_region=lablet.aws_region, ports=ports)
    given = ports.give(needs.ports, worker.allocation.ports)
    if why is not None or given is None:
        code = ProblemCode.HELD if held(worker, now) else ProblemCode.NOT_POSSIBLE_NOW
        raise Refusal(code, f"it does not fit on {worker.name}: {why or 'too few ports are free'}")
    placed = moved(
        lablet,
        now,
        **entering(lablet, LabletStatus.SCHEDULED, now),
        worker_id=worker.id,
        ports=given,
        placement=write.placement,
        placement_attempt=lablet.placement_attempt + 1,
        message="",
    )
    return placed, with_lablet(worker.allocation, needs, given.values())


def without(worker: Worker, lablets: Iterable[Lablet], now: datetime) -> Worker:
    """The worker without what these lablets, as they were before they left it, have taken of it."""
    taken = worker.allocation
    for lablet in lablets:
        taken = without_lablet(taken, lablet.requirements, lablet.ports.values())
    return changed(worker, now, allocation=taken)
