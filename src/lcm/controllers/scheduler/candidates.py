"""Where lablets of one shape can go: ready workers, the fullest first, then workers on their way.

Lablets with the same requirements are looked at together, so that a plan for a thousand lablets on ten thousand
workers asks each worker once for each shape and not once for each lablet.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lcm.controllers.scheduler.capacity import FreeCapacity, future_rejection_reason, is_arriving, is_resumable
from lcm.model.lablet.placement import check_hold, check_ready, rejection_reason
from lcm.model.lablet.record import LabletRequirements, Rejection
from lcm.model.worker.template import Allocation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

_MAX_REASON = 300


class LabletShape(NamedTuple):
    """What a lablet needs and where: all that matters for its placement."""

    requirements: LabletRequirements
    aws_region: str | None


def shape_of(lablet: Lablet) -> LabletShape:
    """The shape of a lablet."""
    return LabletShape(lablet.requirements, lablet.aws_region)


@dataclass(slots=True)
class _ShapeCandidates:
    """Of one shape. Heap entries of a worker that has become fuller since are passed over: a newer one is there."""

    candidates: list[tuple[float, str]] = field(default_factory=list)
    arriving: list[str] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # candidates that were not rejected so far


class CandidateIndex:
    """All workers as a plan fills them."""

    def __init__(
        self, workers: Iterable[Worker], now: datetime, ports: PortRange, launchable: Collection[str] = ()
    ) -> None:
        self._now = now
        self._ports = ports
        self.workers = {worker.id: worker for worker in sorted(workers, key=lambda each: each.id)}
        self.rooms = {
            worker.id: FreeCapacity(worker.capacity, worker.allocation)
            for worker in self.workers.values()
            if worker.capacity is not None
        }
        self._standing = {id_: check_ready(worker) or check_hold(worker, now) for id_, worker in self.workers.items()}
        coming = [worker for worker in self.workers.values() if is_arriving(worker, now)]
        self._coming = sorted(coming, key=lambda each: (each.created_at, each.id))
        self._paused = sorted(
            (each for each in self.workers.values() if each.template_name in launchable and is_resumable(each, now)),
            key=lambda each: (each.cost_per_hour_usd or 0.0, each.id),
        )
        self._shapes: dict[LabletShape, _ShapeCandidates] = {}
        self._none_paused: set[LabletShape] = set()  # paused workers only get fuller: who found none will find none

    def best(self, shape: LabletShape) -> tuple[Worker, float] | None:
        """The ready worker with the highest score on which it fits, ties by id; and its score."""
        outlook = self._of(shape)
        while outlook.candidates:
            negative, worker_id = outlook.candidates[0]
            room = self.rooms[worker_id]
            if worker_id not in outlook.known or room.score != -negative:
                heapq.heappop(outlook.candidates)
                continue
            lacking = room.lacks(shape.requirements, self._ports)
            if lacking is None:
                return self.workers[worker_id], room.score
            heapq.heappop(outlook.candidates)
            outlook.known.discard(worker_id)
            outlook.rejections.append(self._rejection(worker_id, lacking))
        return None

    def later(self, shape: LabletShape, own: str | None) -> Worker | None:
        """A worker on its way on which it will fit: its own first, then the one that is longest under way."""
        arriving = self._of(shape).arriving
        requirements = shape.requirements
        if own in arriving and self.rooms[own].fits(requirements, self._ports):
            return self.workers[own]
        for place, worker_id in enumerate(arriving):
            if self.rooms[worker_id].fits(requirements, self._ports):
                del arriving[:place]  # they will not get emptier: nobody of this shape need ask them again
                return self.workers[worker_id]
        arriving.clear()
        return None

    def paused(self, shape: LabletShape, beside: Iterable[str]) -> Worker | None:
        """The cheapest worker that a policy has stopped and on which it would fit, besides those named."""
        if shape in self._none_paused:
            return None
        spoken_for = set(beside)
        for worker in self._paused:
            if worker.id not in spoken_for and self.would_fit(worker.id, shape):
                return worker
        self._none_paused.add(shape)
        return None

    def would_fit(self, worker_id: str, shape: LabletShape) -> bool:
        """Whether it would fit on the worker once that has come up."""
        room = self.rooms.get(worker_id)
        return room is not None and self._why_not_later(self.workers[worker_id], shape, room.taken) is None

    def can_ever_fit(self, shape: LabletShape) -> bool:
        """Whether a worker that exists and is wanted would hold it if nothing else were there."""
        return any(self._why_not_later(worker, shape, Allocation()) is None for worker in self._coming)

    def take(self, worker_id: str, shape: LabletShape) -> None:
        """Plan a lablet of this shape onto the worker."""
        room = self.rooms[worker_id]
        room.take(shape.requirements, self._ports)
        now_at = -room.score
        for outlook in self._shapes.values():
            if worker_id in outlook.known:
                heapq.heappush(outlook.candidates, (now_at, worker_id))

    def rejections(self, shape: LabletShape) -> list[Rejection]:
        """Who was rejected so far, the last first: those come last that could have been chosen."""
        return self._of(shape).rejections

    def _of(self, shape: LabletShape) -> _ShapeCandidates:
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = self._look(shape)
        return found

    def _look(self, shape: LabletShape) -> _ShapeCandidates:
        outlook = _ShapeCandidates()
        for worker_id, worker in self.workers.items():
            reason = self._standing[worker_id] or self._why_not(worker, shape)
            if reason is not None:
                outlook.rejections.append(self._rejection(worker_id, reason))
                continue
            outlook.candidates.append((-self.rooms[worker_id].score, worker_id))
            outlook.known.add(worker_id)
        heapq.heapify(outlook.candidates)
        for worker in self._coming:
            if worker.id not in outlook.known and self.would_fit(worker.id, shape):
                outlook.arriving.append(worker.id)
        return outlook

    def _why_not(self, worker: Worker, shape: LabletShape) -> str | None:
        room = self.rooms.get(worker.id)
        return rejection_reason(
            worker,
            shape.requirements,
            now=self._now,
            aws_region=shape.aws_region,
            ports=self._ports,
            taken=None if room is None else room.taken,
        )

    def _why_not_later(self, worker: Worker, shape: LabletShape, taken: Allocation) -> str | None:
        return future_rejection_reason(
            worker, shape.requirements, taken=taken, aws_region=shape.aws_region, ports=self._ports
        )

    def _rejection(self, worker_id: str, reason: str) -> Rejection:
        name = self.workers[worker_id].name
        return Rejection.model_construct(worker_id=worker_id, worker_name=name, reason=reason[:_MAX_REASON])
