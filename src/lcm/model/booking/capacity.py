"""What a booking takes: template and workers, how long its workers take, and those that could serve it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lcm.model.calendar.admission import LiveWorker, Resource
from lcm.model.lablet.placement import FOREVER, cheapest_template, check_adopted, lablet_end
from lcm.model.lablet.scheduling.template_choice import will_be_licensed
from lcm.model.lablet.seats import count_seats
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from lcm.model.calendar.admission import BookedCapacity
    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import Lablet, LabletRequirements
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

UNKNOWN_LAUNCH_TIME: Final = timedelta(minutes=45)
"""How long a worker takes until it is ready, while too few launches of its template were measured."""
UNKNOWN_LAB_TIME: Final = timedelta(minutes=10)
READY_BEFORE: Final = timedelta(minutes=5)
"""How long before the start every seat is to be ready."""
STAGGER: Final = timedelta(seconds=5)
"""Workers are launched one after the other, as AWS limits the rate of launches."""
QUARTER: Final = timedelta(minutes=15)
MIN_MEASUREMENTS: Final = 5
MAX_MEASUREMENTS: Final = 100

_LOST: Final = (WorkerStatus.FAILED, WorkerStatus.TERMINATING)
"""Whatever is desired: an instance that was terminated outside LCM does not come back."""


@dataclass(frozen=True, slots=True)
class SeatPlan:
    """The template for the seats and the number of its workers; without a template, what is short instead."""

    template: WorkerTemplate | None
    seats_per_worker: int = 0
    workers: int = 0
    short: Resource | None = None
    needed: int = 0
    allowed: int = 0


def plan_seats(
    templates: Sequence[WorkerTemplate], requirements: LabletRequirements, seats: int, ports: PortRange
) -> SeatPlan:
    """The cheapest template on which a seat fits, and how many of its workers the seats take."""
    template = cheapest_template(templates, requirements, ports=ports)
    if template is None:
        ports_needed, free = len(requirements.ports), ports.count_free(())
        if ports_needed > free:
            return SeatPlan(None, short=Resource.PORTS, needed=ports_needed, allowed=free)
        return SeatPlan(None, short=Resource.TEMPLATES, needed=1, allowed=0)
    per_worker = count_seats(template, requirements, ports) or seats  # needs nothing: all seats fit on one
    return SeatPlan(template, per_worker, math.ceil(seats / per_worker))


def warm_up_time(launch: timedelta, lab: timedelta, workers: int) -> timedelta:
    """How long before the start workers are booked, in quarters of an hour: so that proposed starts are round times."""
    needed = launch + lab + READY_BEFORE + STAGGER * workers
    return QUARTER * math.ceil(needed / QUARTER)


def p95(seconds: Sequence[float], unknown: timedelta) -> timedelta:
    """The 95th percentile of what was measured; `unknown` while that is too little."""
    if len(seconds) < MIN_MEASUREMENTS:
        return unknown
    ordered = sorted(seconds)
    return timedelta(seconds=ordered[math.ceil(0.95 * len(ordered)) - 1])


def live_worker(
    worker: Worker, walk_ins: Iterable[Lablet], templates: Mapping[str, WorkerTemplate], now: datetime
) -> LiveWorker:
    """A worker as admission counts it. `walk_ins` are the lablets on it that belong to no booking."""
    template = None if worker.template_name is None else templates.get(worker.template_name)
    alike = template is not None and worker.capacity == template.capacity
    name = template.name if template is not None and alike else ""
    starts = worker.desired_status is DesiredStatus.RUNNING
    registered = worker.license_status is LicenseStatus.REGISTERED
    registers = will_be_licensed(worker) and not registered
    return LiveWorker(
        worker.aws_region,
        name,
        _free_from(worker, walk_ins, now),
        registered or (registers and starts),  # one that is about to register counts
        worker.team,
        registers and not starts,
    )


def _free_from(worker: Worker, walk_ins: Iterable[Lablet], now: datetime) -> datetime | None:
    """From when on it could serve a booking; None: never, as far as is known."""
    if worker.status in _LOST or worker.desired_status is DesiredStatus.TERMINATED:
        return None
    if check_adopted(worker) is not None or worker.capacity is None or worker.lacks_kvm:
        return None
    free = now
    if worker.hold is not None and worker.hold.active(now):
        if worker.hold.until is None:
            return None
        free = worker.hold.until
    ends = [walk_in_end(each, now) for each in walk_ins]
    free = max([free, *ends])
    return None if free >= FOREVER else free


def walk_in_end(lablet: Lablet, now: datetime) -> datetime:
    """When a lablet that belongs to no booking leaves its worker at the latest."""
    if lablet.running_since is None:
        return lablet_end(lablet, now)
    return lablet.expires_at or FOREVER


def clipped(capacity: BookedCapacity, now: datetime) -> BookedCapacity:
    """The part of it that is not over: what was short before does not matter any more."""
    if capacity.start >= now:
        return capacity
    return replace(capacity, start=min(now, capacity.end))
