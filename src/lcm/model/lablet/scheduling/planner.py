"""Plans a worker for each pending lablet; a pure function.

Filter, score and select a ready worker; otherwise use a worker that is starting; otherwise request one more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lcm.model.calendar.schedule import first_boundary
from lcm.model.calendar.walk_ins import NOTHING_BOOKED, BookedCapacitySnapshot
from lcm.model.lablet.ports import DEFAULT_PORTS, PortRange
from lcm.model.lablet.scheduling.capacity import CandidateIndex, FreeCapacity, LabletShape
from lcm.model.lablet.scheduling.template_choice import TemplateChoice, TemplateSelector
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.calendar.schedule import Schedule
    from lcm.model.lablet.record import Lablet, Rejection
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Capacity, WorkerTemplate


MAX_REJECTIONS_WHEN_PLACED = 10
MAX_REJECTIONS_WHEN_WAITING = 50
"""How many rejections are recorded with a lablet; their total number is always recorded."""

_MAX_SKIP_REASON = 300
NO_CAPACITY = "no worker has enough capacity"

WAITING_FOR_BOOKED = "waiting for a worker that is booked for its class"

DEFAULT_LEAD_TIME = 900.0


@dataclass(frozen=True, slots=True)
class PlanningConfig:
    """How to plan, fixed at startup."""

    ports: PortRange = DEFAULT_PORTS
    lead_time: float = DEFAULT_LEAD_TIME
    """A worker is searched for this many seconds before the lablet starts."""


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """A lablet that fits on a ready worker."""

    lablet: Lablet
    worker_id: str
    score: float
    reason: str
    rejections: Sequence[Rejection]
    rejected: int


@dataclass(frozen=True, slots=True)
class WaitingLablet:
    """A lablet that has to wait, the reason, and why each worker was rejected."""

    lablet: Lablet
    reason: str
    rejections: Sequence[Rejection] = ()
    rejected: int = 0
    worker_id: str | None = None
    """The starting worker that will have capacity for it."""


@dataclass(frozen=True, slots=True)
class UnplaceableLablet:
    """A lablet that can never be placed: it has expired, or no instance type is large enough."""

    lablet: Lablet
    reason: str


@dataclass(slots=True)
class CapacityNeed:
    """A need for one more worker: for the lablet that caused it and for others that fit beside it."""

    key: str
    template: str
    aws_region: str | None
    reason: str
    resumes: str | None = None
    """The worker that is to be resumed for it; otherwise one is to be launched."""

    avoids_paused: bool = False
    """Whether workers of the template are paused there, none of which would do."""

    lablets: list[WaitingLablet] = field(default_factory=list)

    @property
    def licensed(self) -> bool:
        """Whether the lablet that caused it requires a licensed worker."""
        return bool(self.lablets) and self.lablets[0].lablet.requirements.license


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A worker or lablet that could not be planned. It stops no other."""

    kind: Literal["worker", "lablet"]
    id: str
    name: str
    reason: str


@dataclass(slots=True)
class SchedulingPlan:
    """What to do with all pending lablets."""

    placed: list[PlannedPlacement] = field(default_factory=list)
    waiting: list[WaitingLablet] = field(default_factory=list)
    needs: list[CapacityNeed] = field(default_factory=list)
    expired: list[UnplaceableLablet] = field(default_factory=list)
    unplaceable: list[UnplaceableLablet] = field(default_factory=list)
    skipped: list[SkippedRecord] = field(default_factory=list)
    next_check_in: float | None = None
    """Seconds until time alone changes something: a start that comes near, or an end."""

    def skip(self, lablet: Lablet, error: Exception) -> None:
        """Leave out a lablet that cannot be planned: it waits, and its record says why."""
        reason = f"it cannot be planned: {type(error).__name__}: {error}"[:_MAX_SKIP_REASON]
        self.skipped.append(SkippedRecord("lablet", lablet.id, lablet.name, reason))
        self.waiting.append(WaitingLablet(lablet, reason))

    def wake_at(self, moment: datetime | None, now: datetime) -> None:
        """Run the next cycle at this time at the latest."""
        if moment is not None:
            seconds = (moment - now).total_seconds()
            self.next_check_in = seconds if self.next_check_in is None else min(seconds, self.next_check_in)


def make_plan(
    pending: Sequence[Lablet],
    workers: Sequence[Worker],
    templates: Sequence[WorkerTemplate],
    *,
    now: datetime,
    config: PlanningConfig,
    schedules: Sequence[Schedule] = (),
    booked: BookedCapacitySnapshot = NOTHING_BOOKED,
) -> SchedulingPlan:
    """Make a plan for all pending lablets."""
    planner = Planner(pending, workers, templates, now=now, config=config, schedules=schedules, booked=booked)
    for lablet in planner.due:
        planner.place_lablet(lablet)
    return planner.plan


def split_pending(
    pending: Sequence[Lablet], now: datetime, config: PlanningConfig
) -> tuple[SchedulingPlan, list[Lablet]]:
    """The lablets that need a worker now, and a plan that covers the others: expired, or not due yet."""
    plan, due = SchedulingPlan(), []
    for lablet in pending:
        try:
            if _is_due(plan, lablet, now, config):
                due.append(lablet)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one record
            plan.skip(lablet, error)
    return plan, due


def _is_due(plan: SchedulingPlan, lablet: Lablet, now: datetime, config: PlanningConfig) -> bool:
    """Whether a lablet needs a worker now; otherwise the plan says what it waits for, or that it has expired."""
    if lablet.ends_at is not None and lablet.ends_at <= now:
        text = f"it expired at {lablet.ends_at:%Y-%m-%d %H:%M} UTC before a worker was found"
        plan.expired.append(UnplaceableLablet(lablet, text))
        return False
    if lablet.booking_id is not None:
        plan.wake_at(lablet.ends_at, now)
        return True  # its workers are there for it
    search_from = None if lablet.starts_at is None else lablet.starts_at - timedelta(seconds=config.lead_time)
    plan.wake_at(lablet.ends_at, now)
    if search_from is not None and search_from > now:
        text = f"it starts later; the search for a worker begins at {search_from:%Y-%m-%d %H:%M} UTC"
        plan.waiting.append(WaitingLablet(lablet, text))
        plan.wake_at(search_from, now)
        return False
    return True


@dataclass(slots=True)
class _RequestedWorker:
    """A worker that the plan requests: a resumed or a new one."""

    need: CapacityNeed
    capacity: FreeCapacity
    aws_region: str | None
    worker_id: str
    resumed: str | None = None
    shapes: set[LabletShape] = field(default_factory=set)  # shapes that no longer fit


class Planner:
    """Places the due lablets one by one. A caller that serves others meanwhile can pause after each."""

    def __init__(
        self,
        pending: Sequence[Lablet],
        workers: Sequence[Worker],
        templates: Sequence[WorkerTemplate],
        *,
        now: datetime,
        config: PlanningConfig,
        schedules: Sequence[Schedule] = (),
        booked: BookedCapacitySnapshot = NOTHING_BOOKED,
    ) -> None:
        self.plan, due = split_pending(pending, now, config)
        present = sorted(workers, key=lambda each: each.id)
        self._config = config
        self._launches_licensed = booked.launches_licensed
        self._templates = TemplateSelector(
            templates, present, now, config.ports, schedules, launches_licensed=booked.launches_licensed
        )
        self._candidates = CandidateIndex(present, now, config.ports, self._may_resume, schedules, booked)
        if due:
            self.plan.wake_at(first_boundary(schedules, now), now)
        self._choices: dict[LabletShape, TemplateChoice] = {}
        self._requested: list[_RequestedWorker] = []
        self._largest = _largest_capacity(
            [template.capacity for template in self._templates.enabled]
            + [worker.capacity for worker in present if worker.capacity is not None]
        )
        self.due = self._in_order(due)
        """The lablets to place, in this order."""

    def _may_resume(self, worker: Worker) -> bool:
        """Whether starting a paused worker is expected to work: its template is enabled, and nobody waits in vain."""
        enabled = any(each.name == worker.template_name for each in self._templates.enabled)
        return enabled and self._templates.wait_problem(worker.template_name or "", worker.aws_region) is None

    # Order

    def _in_order(self, due: Sequence[Lablet]) -> list[Lablet]:
        """First lablets whose requested worker is ready, then the others by size, largest first, which packs well."""

        def key(lablet: Lablet) -> tuple[bool, float, datetime, str]:
            own_worker = self._candidates.workers.get(_scale_up_worker_id(lablet) or "")
            return own_worker is None or not own_worker.ready, -self._share(lablet), lablet.created_at, lablet.id

        return sorted(due, key=key)

    def _share(self, lablet: Lablet) -> float:
        """Its dominant share of the largest instance."""
        needs, largest = lablet.requirements, self._largest
        if largest is None:
            return 0.0
        return max(
            needs.cpu_cores / largest.cpu_cores,
            needs.memory_gb / largest.memory_gb,
            needs.storage_gb / largest.storage_gb,
            needs.nodes / largest.max_nodes,
        )

    # Placement

    def candidates(self, lablet: Lablet) -> list[tuple[Worker, float]]:
        """The ready workers on which the lablet fits now, with their scores, the best first."""
        return self._candidates.matching(self._candidates.shape_of(lablet))

    def rejections(self, lablet: Lablet) -> list[Rejection]:
        """Why the others were rejected."""
        return self._candidates.rejections(self._candidates.shape_of(lablet))

    def place_lablet(self, lablet: Lablet) -> None:
        """Use a ready worker; else a starting one; else one that is already requested; else request one more.

        A lablet that cannot be planned is skipped: it must not stop the others.
        """
        try:
            self._place_lablet(lablet)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one record
            self.plan.skip(lablet, error)

    def _place_lablet(self, lablet: Lablet) -> None:
        shape = self._candidates.shape_of(lablet)
        best = self._candidates.best_worker(shape)
        if best is not None:
            self._place(lablet, shape, *best)
            return
        arriving = self._candidates.arriving_worker(shape, _scale_up_worker_id(lablet))
        if arriving is not None:
            self._candidates.take(arriving.id, shape)
            self.plan.waiting.append(self._wait(lablet, shape, arriving_worker_reason(arriving.name), arriving.id))
            return
        if shape.booking_id is not None:
            self.plan.waiting.append(self._wait(lablet, shape, WAITING_FOR_BOOKED))
            return
        requested = self._find_requested(shape) or self._request(lablet, shape)
        if requested is not None:
            requested.capacity.take(shape.requirements, self._config.ports)
            self._candidates.use(requested.worker_id, shape)
            requested.need.lablets.append(self._wait(lablet, shape, f"{NO_CAPACITY}; another worker is requested"))

    def _place(self, lablet: Lablet, shape: LabletShape, worker: Worker, score: float) -> None:
        rejections = self._candidates.rejections(shape)
        reason = f"{worker.name} is the fullest worker with enough capacity (score {score:.3f})"
        shown = tuple(rejections[: -MAX_REJECTIONS_WHEN_PLACED - 1 : -1])
        self.plan.placed.append(PlannedPlacement(lablet, worker.id, score, reason, shown, len(rejections)))
        self._candidates.take(worker.id, shape)

    def _find_requested(self, shape: LabletShape) -> _RequestedWorker | None:
        for requested in self._requested:
            if shape in requested.shapes:
                continue
            if requested.resumed is None:
                suits = self._launches_licensed is not False or not shape.requirements.license
            else:
                suits = self._candidates.would_fit(requested.resumed, shape)
            near = shape.aws_region in (None, requested.aws_region)
            suits = suits and self._candidates.has_time(requested.worker_id, shape)
            if near and suits and requested.capacity.fits(shape.requirements, self._config.ports):
                return requested
            requested.shapes.add(shape)
        return None

    def _request(self, lablet: Lablet, shape: LabletShape) -> _RequestedWorker | None:
        """Request one more worker: a paused one that fits, or a new one from the cheapest template that fits."""
        paused = self._candidates.paused_worker(
            shape, [each.resumed for each in self._requested if each.resumed is not None]
        )
        if paused is not None:
            assert paused.template_name is not None
            capacity = self._candidates.free_capacity[paused.id]
            need = self._need(lablet, paused.template_name, paused.aws_region, resumes=paused.id)
            return self._add_request(_RequestedWorker(need, capacity, paused.aws_region, paused.id, resumed=paused.id))
        choice = self._choice(shape)
        if choice.template is not None:
            name = choice.template.name
            problem = self._candidates.launch_problem(name, shape)
            if problem is not None:
                self.plan.waiting.append(self._wait(lablet, shape, f"{NO_CAPACITY}; {problem}"))
                return None
            worker_id = f"requested {len(self._requested)}"
            self._candidates.launch(worker_id, name, shape)
            capacity = FreeCapacity(choice.template.capacity, Allocation())
            need = self._need(lablet, name, shape.aws_region)
            return self._add_request(_RequestedWorker(need, capacity, shape.aws_region, worker_id))
        if choice.is_permanent:
            self.plan.unplaceable.append(UnplaceableLablet(lablet, choice.reason))
        else:
            self.plan.waiting.append(self._wait(lablet, shape, f"{NO_CAPACITY}; {choice.reason}"))
        return None

    def _choice(self, shape: LabletShape) -> TemplateChoice:
        choice = self._choices.get(shape)
        if choice is None:
            choice = self._templates.choose(shape.requirements, shape.aws_region)
            if choice.is_permanent and self._candidates.can_ever_fit(shape):
                choice = replace(choice, is_permanent=False)
            self._choices[shape] = choice
        return choice

    def _add_request(self, requested: _RequestedWorker) -> _RequestedWorker:
        self._requested.append(requested)
        self.plan.needs.append(requested.need)
        return requested

    def _need(self, lablet: Lablet, template: str, aws_region: str | None, resumes: str | None = None) -> CapacityNeed:
        reason = f"lablet {lablet.name} fits on no existing worker"
        avoids = resumes is None and self._candidates.has_paused(template, aws_region)
        return CapacityNeed(capacity_need_key(lablet), template, aws_region, reason, resumes, avoids)

    def _wait(self, lablet: Lablet, shape: LabletShape, reason: str, worker_id: str | None = None) -> WaitingLablet:
        rejections: list[Rejection] = self._candidates.rejections(shape)
        shown = tuple(rejections[: -MAX_REJECTIONS_WHEN_WAITING - 1 : -1])
        return WaitingLablet(lablet, reason, shown, len(rejections), worker_id)


def arriving_worker_reason(worker_name: str) -> str:
    """The reason of a lablet whose worker is starting. It stays the same until the worker is ready."""
    return f"waiting for worker {worker_name} to become ready"


def capacity_need_key(lablet: Lablet) -> str:
    """The idempotency key of a need: a repeated request with the same key returns the same worker.

    It changes after a placement, and when that worker was lost or turned out to be unsuitable.
    """
    own_worker = _scale_up_worker_id(lablet)
    return f"lablet:{lablet.id}:{lablet.placement_attempt}" + (f":{own_worker}" if own_worker else "")


def _scale_up_worker_id(lablet: Lablet) -> str | None:
    return None if lablet.placement is None else lablet.placement.scale_up_worker_id


def _largest_capacity(capacities: Sequence[Capacity]) -> Capacity | None:
    """The maximum of each resource."""
    if not capacities:
        return None
    return type(capacities[0]).model_construct(
        cpu_cores=max(each.cpu_cores for each in capacities),
        memory_gb=max(each.memory_gb for each in capacities),
        storage_gb=max(each.storage_gb for each in capacities),
        max_nodes=max(each.max_nodes for each in capacities),
    )
