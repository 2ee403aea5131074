"""Free capacity during planning: on ready workers, on workers that are starting, and on paused ones."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from lcm.model.calendar.schedule import closed_reason
from lcm.model.calendar.walk_ins import NOTHING_BOOKED, BookedCapacitySnapshot, WalkInRoom, describe_booked
from lcm.model.lablet.placement import (
    FOREVER,
    check_adopted,
    check_booking,
    check_capacity,
    check_cml_version,
    check_health,
    check_hold,
    check_license,
    check_node_definitions,
    check_ports,
    check_ready,
    check_region,
    check_team,
    lablet_end,
    placement_score,
    rejection_reason,
    with_lablet,
)
from lcm.model.lablet.record import LabletRequirements, Rejection
from lcm.model.lablet.scheduling.template_choice import lacks_license
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import LAUNCHING_STATUSES, DesiredStatus, LicenseStatus, WorkerStatus
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lcm.model.calendar.schedule import Schedule
    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Capacity


@dataclass(slots=True)
class FreeCapacity:
    """The capacity of an existing or planned worker. During one plan it only gets fuller."""

    capacity: Capacity
    taken: Allocation

    @property
    def score(self) -> float:
        """How full it is. The fullest worker that fits is the best."""
        return placement_score(self.capacity, self.taken)

    def fits(self, requirements: LabletRequirements, ports: PortRange) -> bool:
        """Whether the requirements fit."""
        return self.missing(requirements, ports) is None

    def missing(self, requirements: LabletRequirements, ports: PortRange) -> str | None:
        """What is missing; None if the requirements fit."""
        return check_capacity(self.capacity, self.taken, requirements) or check_ports(self.taken, requirements, ports)

    def take(self, requirements: LabletRequirements, ports: PortRange) -> None:
        """Plan one more lablet. The reservation assigns the real ports; here only their number matters."""
        numbers = ports.allocate(requirements.ports, self.taken.ports)
        assert numbers is not None, "too few ports: check whether it fits first"
        self.taken = with_lablet(self.taken, requirements, numbers.values())


_ARRIVING_STATUSES = frozenset({*LAUNCHING_STATUSES, WorkerStatus.RUNNING, WorkerStatus.STOPPING, WorkerStatus.STOPPED})
_LICENSE_LOST = frozenset({LicenseStatus.FAILED, LicenseStatus.DEREGISTERED})


def is_arriving(worker: Worker, now: datetime) -> bool:
    """Whether it is expected to become ready: its desired status is RUNNING and nothing known prevents it."""
    return (
        worker.desired_status is DesiredStatus.RUNNING
        and worker.status in _ARRIVING_STATUSES
        and check_hold(worker, now) is None
        and check_adopted(worker) is None
        and not is_condition_true(worker.conditions, ConditionType.STUCK)
        and not worker.lacks_kvm
        and not worker.is_impaired
    )


def is_resumable(worker: Worker, now: datetime) -> bool:
    """Whether a policy stopped it, so that it may be started again automatically."""
    return (
        worker.status is WorkerStatus.STOPPED
        and worker.desired_status is DesiredStatus.STOPPED
        and worker.paused_by_policy
        and worker.template_name is not None
        and not worker.lacks_kvm
        and not worker.is_booked(now)
        and check_hold(worker, now) is None
        and check_adopted(worker) is None
    )


def future_rejection_reason(
    worker: Worker,
    requirements: LabletRequirements,
    *,
    taken: Allocation,
    aws_region: str | None,
    ports: PortRange,
    team: str = "",
) -> str | None:
    """Why the lablet will not fit on the worker once it is ready, as far as known; None if it will fit.

    What a worker does not report before it is ready (version, node definitions, license) is assumed to match.
    """
    return (
        _license_rejection_reason(worker, requirements)
        or check_capacity(worker.capacity, taken, requirements)
        or (None if worker.cml_version is None else check_cml_version(worker, requirements))
        or (None if worker.node_definitions is None else check_node_definitions(worker, requirements))
        or check_ports(taken, requirements, ports)
        or check_region(worker, aws_region)
        or check_team(worker, team)
    )


def _license_rejection_reason(worker: Worker, requirements: LabletRequirements) -> str | None:
    """A registration takes a while after CML is ready; without a token there will be none."""
    missing = check_license(worker, requirements)
    if missing is None or worker.license_status is LicenseStatus.REGISTERING:
        return None
    # Before LCM has seen its CML, one that a person launched or found may be registered already.
    unseen = worker.cml_version is None and not lacks_license(worker)
    expected = worker.has_license_token or (unseen and not worker.ready)
    return None if expected and worker.license_status not in _LICENSE_LOST else missing


_MAX_REASON = 300
_INSTANT = timedelta(microseconds=1)


class LabletShape(NamedTuple):
    """The requirements, region and team of a lablet: everything that matters for its placement.

    `until` is its end, as far as that matters: the last maintenance that begins before it, or its end if that lies
    between classes. So there are few shapes.
    """

    requirements: LabletRequirements
    aws_region: str | None
    until: datetime | None = None
    booking_id: str | None = None
    team: str = ""


@dataclass(slots=True)
class _ShapeCandidates:
    """The candidates for one shape. Outdated heap entries of a worker are skipped: a newer entry exists."""

    heap: list[tuple[float, str]] = field(default_factory=list)
    arriving: list[str] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    eligible: set[str] = field(default_factory=set)  # candidates that have not been rejected


class CandidateIndex:
    """All workers, as the plan fills them."""

    def __init__(
        self,
        workers: Iterable[Worker],
        now: datetime,
        ports: PortRange,
        may_resume: Callable[[Worker], bool] = lambda _worker: False,
        schedules: Sequence[Schedule] = (),
        booked: BookedCapacitySnapshot = NOTHING_BOOKED,
    ) -> None:
        self._now = now
        self._room = WalkInRoom(booked, now)
        self._ports = ports
        self.workers = {worker.id: worker for worker in sorted(workers, key=lambda each: each.id)}
        self.free_capacity = {
            worker.id: FreeCapacity(worker.capacity, worker.allocation)
            for worker in self.workers.values()
            if worker.capacity is not None
        }
        # Outside its windows a worker takes no lablets: also one that is starting, or could be resumed.
        closed = (
            {id_: closed_reason(worker, schedules, now) for id_, worker in self.workers.items()} if schedules else {}
        )
        self._open = [worker for worker in self.workers.values() if closed.get(worker.id) is None]
        self._unavailable = {
            id_: check_ready(worker) or check_hold(worker, now) or closed.get(id_)
            for id_, worker in self.workers.items()
        }
        arriving = [worker for worker in self._open if is_arriving(worker, now)]
        self._arriving = sorted(arriving, key=lambda each: (each.created_at, each.id))
        self._paused = sorted(
            (each for each in self._open if is_resumable(each, now) and may_resume(each)),
            key=lambda each: (each.cost_per_hour_usd or 0.0, each.id),
        )
        self._known_ends = sorted({end for worker in self.workers.values() if (end := worker.known_end) is not None})
        self._shapes: dict[LabletShape, _ShapeCandidates] = {}
        self._none_paused: set[LabletShape] = set()  # paused workers only get fuller: no later search finds one

    def shape_of(self, lablet: Lablet) -> LabletShape:
        """The shape of a lablet."""
        until: datetime | None = None
        end = lablet_end(lablet, self._now)
        if self._known_ends:
            before = bisect_left(self._known_ends, end)
            # Right after the last maintenance that begins before its end; one without an end says so.
            until = end if end >= FOREVER else self._known_ends[before - 1] + _INSTANT if before else None
        if (booked := self._room.span) is not None and end > booked[0] and lablet.booking_id is None:
            after = FOREVER if end >= FOREVER else max(until or booked[1], booked[1]) + _INSTANT
            until = end if end <= booked[1] else after
        return LabletShape(lablet.requirements, lablet.aws_region, until, lablet.booking_id, lablet.team)

    def best_worker(self, shape: LabletShape) -> tuple[Worker, float] | None:
        """The ready worker with the highest score on which the shape fits, and its score. Ties are broken by id."""
        candidates = self._of(shape)
        while candidates.heap:
            negative, worker_id = candidates.heap[0]
            free = self.free_capacity[worker_id]
            if worker_id not in candidates.eligible or free.score != -negative:
                heapq.heappop(candidates.heap)
                continue
            missing = free.missing(shape.requirements, self._ports) or self._booked_reason(worker_id, shape)
            if missing is None:
                return self.workers[worker_id], free.score
            heapq.heappop(candidates.heap)
            candidates.eligible.discard(worker_id)
            candidates.rejections.append(self._rejection(worker_id, missing))
        return None

    def arriving_worker(self, shape: LabletShape, own: str | None) -> Worker | None:
        """A starting worker on which the shape will fit: the lablet's own first, then the oldest."""
        arriving = self._of(shape).arriving
        if own in arriving and self._has_room(own, shape):
            return self.workers[own]
        for place, worker_id in enumerate(arriving):
            if self._has_room(worker_id, shape):
                del arriving[:place]  # they only get fuller: no lablet of this shape needs to check them again
                return self.workers[worker_id]
        arriving.clear()
        return None

    def paused_worker(self, shape: LabletShape, excluding: Iterable[str]) -> Worker | None:
        """The cheapest worker stopped by a policy on which the shape would fit, except for those in `excluding`."""
        if shape in self._none_paused:
            return None
        excluded = set(excluding)
        for worker in self._paused:
            if worker.id not in excluded and self.would_fit(worker.id, shape):
                return worker
        self._none_paused.add(shape)
        return None

    def has_paused(self, template: str, aws_region: str | None) -> bool:
        """Whether any worker of the template is paused there; without a region, anywhere."""
        return any(
            each.template_name == template and aws_region in (None, each.aws_region)
            for each in self._open
            if is_resumable(each, self._now)
        )

    def matching(self, shape: LabletShape) -> list[tuple[Worker, float]]:
        """All ready workers on which the shape fits now, with their scores, the best first. Ties are broken by id."""
        self.best_worker(shape)  # moves candidates that have become too full to the rejections
        eligible = self._of(shape).eligible
        scores = [(self.free_capacity[each].score, each) for each in eligible]
        return [
            (self.workers[worker_id], score)
            for score, worker_id in sorted(scores, key=lambda each: (-each[0], each[1]))
            if self._has_room(worker_id, shape)
        ]

    def would_fit(self, worker_id: str, shape: LabletShape) -> bool:
        """Whether the shape would fit on the worker once that is ready."""
        free = self.free_capacity.get(worker_id)
        if free is None or self._booked_reason(worker_id, shape) is not None:
            return False
        return self._future_rejection(self.workers[worker_id], shape, free.taken) is None

    def can_ever_fit(self, shape: LabletShape) -> bool:
        """Whether the shape would fit on any starting worker if that were empty."""
        return any(self._future_rejection(worker, shape, Allocation()) is None for worker in self._arriving)

    def take(self, worker_id: str, shape: LabletShape) -> None:
        """Plan a lablet of this shape on the worker."""
        free = self.free_capacity[worker_id]
        free.take(shape.requirements, self._ports)
        self.use(worker_id, shape)
        priority = -free.score
        for candidates in self._shapes.values():
            if worker_id in candidates.eligible:
                heapq.heappush(candidates.heap, (priority, worker_id))

    def use(self, worker_id: str, shape: LabletShape) -> None:
        """Count that a lablet of this shape uses a worker beside the classes."""
        if shape.booking_id is None:
            self._room.use(worker_id, shape.until or self._now)

    def launch_problem(self, template: str, shape: LabletShape) -> str | None:
        """Which class would lack a worker if one were launched for the shape; None if none would."""
        shortage = self._room.launch_shortage(shape.aws_region, template, shape.until or self._now)
        if shortage is None:
            return None
        region = shape.aws_region or self._room.default_region
        return f"the workers of {region} are {describe_booked(shortage)}"

    def launch(self, worker_id: str, template: str, shape: LabletShape) -> None:
        """Count a worker that is launched for the shape."""
        self._room.launch(worker_id, shape.aws_region, template, shape.until or self._now)

    def has_time(self, worker_id: str, shape: LabletShape) -> bool:
        """Whether no class needs the worker, or one that is to be launched, before the shape ends."""
        return self._booked_reason(worker_id, shape) is None

    def _booked_reason(self, worker_id: str, shape: LabletShape) -> str | None:
        if shape.booking_id is not None or shape.until is None:
            return None
        shortage = self._room.shortage_on(worker_id, shape.until)
        return None if shortage is None else f"it is {describe_booked(shortage)}"

    def _has_room(self, worker_id: str, shape: LabletShape) -> bool:
        return self.free_capacity[worker_id].fits(shape.requirements, self._ports) and self.has_time(worker_id, shape)

    def rejections(self, shape: LabletShape) -> list[Rejection]:
        """The rejections so far. The last ones were candidates that became too full."""
        return self._of(shape).rejections

    def _of(self, shape: LabletShape) -> _ShapeCandidates:
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = self._build(shape)
        return found

    def _build(self, shape: LabletShape) -> _ShapeCandidates:
        candidates = _ShapeCandidates()
        for worker_id, worker in self.workers.items():
            reason = self._unavailable[worker_id] or self._rejection_reason(worker, shape)
            reason = reason or self._booked_reason(worker_id, shape)
            if reason is not None:
                candidates.rejections.append(self._rejection(worker_id, reason))
                continue
            candidates.heap.append((-self.free_capacity[worker_id].score, worker_id))
            candidates.eligible.add(worker_id)
        heapq.heapify(candidates.heap)
        for worker in self._arriving:
            if worker.id not in candidates.eligible and self.would_fit(worker.id, shape):
                candidates.arriving.append(worker.id)
        return candidates

    def _rejection_reason(self, worker: Worker, shape: LabletShape) -> str | None:
        free = self.free_capacity.get(worker.id)
        return rejection_reason(
            worker,
            shape.requirements,
            now=self._now,
            aws_region=shape.aws_region,
            ports=self._ports,
            taken=None if free is None else free.taken,
            until=shape.until,
            booking_id=shape.booking_id,
            team=shape.team,
        )

    def _future_rejection(self, worker: Worker, shape: LabletShape, taken: Allocation) -> str | None:
        if (booked := check_booking(worker, shape.booking_id, self._now)) is not None:
            return booked
        if worker.status is WorkerStatus.RUNNING and (health := check_health(worker, shape.until)) is not None:
            return health  # another one leaves its host with its start
        return future_rejection_reason(
            worker, shape.requirements, taken=taken, aws_region=shape.aws_region, ports=self._ports, team=shape.team
        )

    def _rejection(self, worker_id: str, reason: str) -> Rejection:
        name = self.workers[worker_id].name
        return Rejection.model_construct(worker_id=worker_id, worker_name=name, reason=reason[:_MAX_REASON])
