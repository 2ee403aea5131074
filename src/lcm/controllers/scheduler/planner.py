"""A place for each lablet that waits: pure. Filter, score, select; else capacity on its way; else one more worker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.controllers.scheduler.candidates import CandidateIndex, LabletShape, shape_of
from lcm.controllers.scheduler.capacity import FreeCapacity
from lcm.controllers.scheduler.plan import (
    CapacityNeed,
    PlannedPlacement,
    SchedulerConfig,
    SchedulingPlan,
    UnplaceableLablet,
    WaitingLablet,
)
from lcm.controllers.scheduler.template_choice import TemplateChoice, TemplateSelector
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.lablet.record import Lablet, Rejection
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Capacity, WorkerTemplate

MAX_REJECTIONS_WHEN_PLACED = 10
MAX_REJECTIONS_WHEN_WAITING = 50
"""How many rejections are kept with a lablet; how many there were is always told."""

NO_CAPACITY = "no worker has room for it"


def make_plan(
    pending: Sequence[Lablet],
    workers: Sequence[Worker],
    templates: Sequence[WorkerTemplate],
    *,
    now: datetime,
    rules: SchedulerConfig,
) -> SchedulingPlan:
    """What to do with all lablets that wait, as things are now."""
    made, due = split_pending(pending, now, rules)
    planner = _Planner(made, workers, templates, now, rules)
    for lablet in planner.in_order(due):
        planner.place_lablet(lablet)
    return made


def split_pending(
    pending: Sequence[Lablet], now: datetime, rules: SchedulerConfig
) -> tuple[SchedulingPlan, list[Lablet]]:
    """Those for which a worker is looked for now, and what is to be said of the rest: over, or too far ahead."""
    made, due = SchedulingPlan(), []
    for lablet in pending:
        if lablet.ends_at is not None and lablet.ends_at <= now:
            text = f"its end, {lablet.ends_at:%Y-%m-%d %H:%M} UTC, came before a worker was found"
            made.expired.append(UnplaceableLablet(lablet, text))
            continue
        made.wake_at(lablet.ends_at, now)
        looked_for = None if lablet.starts_at is None else lablet.starts_at - timedelta(seconds=rules.lead_time)
        if looked_for is not None and looked_for > now:
            text = f"it starts later: a worker is looked for from {looked_for:%Y-%m-%d %H:%M} UTC on"
            made.waiting.append(WaitingLablet(lablet, text))
            made.wake_at(looked_for, now)
            continue
        due.append(lablet)
    return made, due


@dataclass(slots=True)
class _RequestedWorker:
    """A worker that the plan asks for: resumed, or new."""

    need: CapacityNeed
    room: FreeCapacity
    aws_region: str | None
    resumed: str | None = None
    shapes: set[LabletShape] = field(default_factory=set)  # those that no longer fit


class _Planner:
    def __init__(
        self,
        made: SchedulingPlan,
        workers: Sequence[Worker],
        templates: Sequence[WorkerTemplate],
        now: datetime,
        rules: SchedulerConfig,
    ) -> None:
        present = sorted(workers, key=lambda each: each.id)
        self.plan = made
        self._rules = rules
        self._launchable = TemplateSelector(templates, present, now, rules.ports)
        self._outlooks = CandidateIndex(present, now, rules.ports, [each.name for each in self._launchable.enabled])
        self._choices: dict[LabletShape, TemplateChoice] = {}
        self._opened: list[_RequestedWorker] = []
        self._largest = _largest_capacity(
            [template.capacity for template in self._launchable.enabled]
            + [worker.capacity for worker in present if worker.capacity is not None]
        )

    # Whose turn it is

    def in_order(self, due: Sequence[Lablet]) -> list[Lablet]:
        """The largest first, which packs well; before all, those whose own worker has come up."""

        def key(lablet: Lablet) -> tuple[bool, float, datetime, str]:
            own = self._outlooks.workers.get(_scale_up_worker_id(lablet) or "")
            return own is None or not own.ready, -self._share(lablet), lablet.created_at, lablet.id

        return sorted(due, key=key)

    def _share(self, lablet: Lablet) -> float:
        """How much of the largest machine it takes, of what it takes most of."""
        needs, most = lablet.requirements, self._largest
        if most is None:
            return 0.0
        return max(
            needs.cpu_cores / most.cpu_cores,
            needs.memory_gb / most.memory_gb,
            needs.storage_gb / most.storage_gb,
            needs.nodes / most.max_nodes,
        )

    # Where it goes

    def place_lablet(self, lablet: Lablet) -> None:
        """A ready worker; else one on its way; else one that is asked for already; else one more."""
        shape = shape_of(lablet)
        best = self._outlooks.best(shape)
        if best is not None:
            self._place(lablet, shape, *best)
            return
        coming = self._outlooks.later(shape, _scale_up_worker_id(lablet))
        if coming is not None:
            self._outlooks.take(coming.id, shape)
            self.plan.waiting.append(self._wait(lablet, shape, arriving_worker_reason(coming.name), coming.id))
            return
        opened = self._opened_for(shape) or self._open(lablet, shape)
        if opened is not None:
            opened.room.take(shape.requirements, self._rules.ports)
            opened.need.lablets.append(self._wait(lablet, shape, f"{NO_CAPACITY}; another worker is asked for"))

    def _place(self, lablet: Lablet, shape: LabletShape, worker: Worker, score: float) -> None:
        rejections = self._outlooks.rejections(shape)
        reason = f"{worker.name} is the fullest worker that has room for it (score {score:.3f})"
        told = tuple(rejections[: -MAX_REJECTIONS_WHEN_PLACED - 1 : -1])
        self.plan.placed.append(PlannedPlacement(lablet, worker.id, score, reason, told, len(rejections)))
        self._outlooks.take(worker.id, shape)

    def _opened_for(self, shape: LabletShape) -> _RequestedWorker | None:
        for opened in self._opened:
            if shape in opened.shapes:
                continue
            suits = opened.resumed is None or self._outlooks.would_fit(opened.resumed, shape)
            near = shape.aws_region in (None, opened.aws_region)
            if near and suits and opened.room.fits(shape.requirements, self._rules.ports):
                return opened
            opened.shapes.add(shape)
        return None

    def _open(self, lablet: Lablet, shape: LabletShape) -> _RequestedWorker | None:
        """One more worker: a paused one that would do, or a new one of the cheapest template that would."""
        paused = self._outlooks.paused(shape, [each.resumed for each in self._opened if each.resumed is not None])
        if paused is not None:
            assert paused.template_name is not None
            room = self._outlooks.rooms[paused.id]
            need = self._need(lablet, paused.template_name, paused.aws_region)
            return self._keep(_RequestedWorker(need, room, paused.aws_region, resumed=paused.id))
        choice = self._choice(shape)
        if choice.template is not None:
            need = self._need(lablet, choice.template.name, shape.aws_region)
            return self._keep(
                _RequestedWorker(need, FreeCapacity(choice.template.capacity, Allocation()), shape.aws_region)
            )
        if choice.hopeless:
            self.plan.hopeless.append(UnplaceableLablet(lablet, choice.reason))
        else:
            self.plan.waiting.append(self._wait(lablet, shape, f"{NO_CAPACITY}; {choice.reason}"))
        return None

    def _choice(self, shape: LabletShape) -> TemplateChoice:
        choice = self._choices.get(shape)
        if choice is None:
            choice = self._launchable.choose(shape.requirements, shape.aws_region)
            if choice.hopeless and self._outlooks.can_ever_fit(shape):
                choice = replace(choice, hopeless=False)
            self._choices[shape] = choice
        return choice

    def _keep(self, opened: _RequestedWorker) -> _RequestedWorker:
        self._opened.append(opened)
        self.plan.needs.append(opened.need)
        return opened

    def _need(self, lablet: Lablet, template: str, aws_region: str | None) -> CapacityNeed:
        return CapacityNeed(
            capacity_need_key(lablet), template, aws_region, f"lablet {lablet.name} fits on no worker that is there"
        )

    def _wait(self, lablet: Lablet, shape: LabletShape, reason: str, worker_id: str | None = None) -> WaitingLablet:
        rejections: list[Rejection] = self._outlooks.rejections(shape)
        told = tuple(rejections[: -MAX_REJECTIONS_WHEN_WAITING - 1 : -1])
        return WaitingLablet(lablet, reason, told, len(rejections), worker_id)


def arriving_worker_reason(worker_name: str) -> str:
    """What is said of a lablet whose worker is on its way. It does not change while that comes up."""
    return f"it waits for worker {worker_name}, which is on its way"


def capacity_need_key(lablet: Lablet) -> str:
    """The name of a need. It stays until a worker has come of it: the same need asked again yields the same worker.

    After a placement, or when that worker was lost or turned out not to do, the need is another.
    """
    own = _scale_up_worker_id(lablet)
    return f"lablet:{lablet.id}:{lablet.placement_attempt}" + (f":{own}" if own else "")


def _scale_up_worker_id(lablet: Lablet) -> str | None:
    return None if lablet.placement is None else lablet.placement.scale_up_worker_id


def _largest_capacity(capacities: Sequence[Capacity]) -> Capacity | None:
    """The most there is of each."""
    if not capacities:
        return None
    return type(capacities[0]).model_construct(
        cpu_cores=max(each.cpu_cores for each in capacities),
        memory_gb=max(each.memory_gb for each in capacities),
        storage_gb=max(each.storage_gb for each in capacities),
        max_nodes=max(each.max_nodes for each in capacities),
    )
