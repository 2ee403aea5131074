"""What the scheduler and the lablet controller write of lablets. Every write is fenced by the leader's term."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets import lifecycle
from lcm.control_plane.lablets.lifecycle import place_lablet
from lcm.control_plane.lablets.service import save_and_release
from lcm.control_plane.workers.controller_writes import run_fenced
from lcm.control_plane.workers.lifecycle import updated_worker
from lcm.control_plane.workers.scaling import check_not_held
from lcm.model.lablet.record import PlacementBatchResult, PlacementResult
from lcm.model.lablet.status import IllegalLabletTransitionError
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.workers.controller_writes import Leader
    from lcm.model.lablet.record import (
        Lablet,
        LabletStatusUpdate,
        PlacementBatch,
        PlacementRequest,
        ReleaseLabletRequest,
    )
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Allocation

WORKER_CONTROLLER = "worker-controller"
"""Whose start-up sweep must be done: before it nobody knows which of the workers on record still are."""


class LabletControllerWrites:
    """Writes of controllers about lablets. An older term than the newest known changes nothing."""

    def __init__(self, plane: ControlPlaneContext) -> None:
        self._plane = plane

    async def status(self, leader: Leader, lablet_id: str, write: LabletStatusUpdate) -> Lablet:
        """What was found or done."""

        async def attempt(change: Transaction) -> Lablet:
            lablet = await change.lablet(lablet_id)
            after = lifecycle.apply_lablet_status(lablet, write, change.now)
            return await save_and_release(change, lablet, after, "status_reported", write.reason)

        return await run_fenced(self._plane, leader, attempt)

    async def release(self, leader: Leader, lablet_id: str, write: ReleaseLabletRequest) -> Lablet:
        """Its reservation is given back."""

        async def attempt(change: Transaction) -> Lablet:
            lablet = await change.lablet(lablet_id)
            after = lifecycle.release_lablet(lablet, write, change.now)
            return await save_and_release(change, lablet, after, "released", write.reason)

        return await run_fenced(self._plane, leader, attempt)

    async def schedule(self, leader: Leader, batch: PlacementBatch) -> PlacementBatchResult:
        """Workers for many lablets, with one commit for each worker; refused as a whole where nobody may be placed."""
        await run_fenced(self._plane, leader, _check_placement_allowed)
        by_worker: dict[str, list[PlacementRequest]] = {}
        for item in batch.items:
            by_worker.setdefault(item.worker_id, []).append(item)
        done = await asyncio.gather(
            *(self._reserve(leader, worker_id, items) for worker_id, items in by_worker.items()),
            return_exceptions=True,
        )
        told: dict[int, PlacementResult] = {}
        for group, items in zip(done, by_worker.values(), strict=True):
            if isinstance(group, BaseException):
                raise group  # what the other groups have reserved stands, and is found when lablets are listed again
            told |= {id(item): answer for item, answer in zip(items, group, strict=True)}
        return PlacementBatchResult(items=tuple(told[id(item)] for item in batch.items))

    async def _reserve(
        self, leader: Leader, worker_id: str, items: Sequence[PlacementRequest]
    ) -> list[PlacementResult]:
        async def attempt(change: Transaction) -> list[PlacementResult]:
            await _check_placement_allowed(change)
            worker = await change.worker(worker_id)
            lablets = await change.lablets([item.lablet_id for item in items])
            reservation = _Reservation(self._plane, change, worker, lablets)
            answers = [reservation.answer(item) for item in items]
            reservation.save()
            return answers

        try:
            return await run_fenced(self._plane, leader, attempt)
        except ProblemError as refusal:
            if refusal.code is ProblemCode.STALE_LEADER:
                raise
            return [_rejected(item, refusal.code, refusal.detail) for item in items]


async def _check_placement_allowed(change: Transaction) -> None:
    """Nothing is placed under a hold of the fleet, nor before the start-up sweep has shown which workers still are."""
    await check_not_held(change)
    if not await change.swept(WORKER_CONTROLLER):
        detail = "nothing is placed until the leading worker controller has reported its start-up sweep done"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


class _Reservation:
    """What one commit takes of one worker: each lablet sees what those before it have taken."""

    def __init__(
        self, plane: ControlPlaneContext, change: Transaction, worker: Worker, lablets: dict[str, Lablet]
    ) -> None:
        self._plane = plane
        self._change = change
        self._worker = worker
        self._lablets = lablets
        self._placed: list[str] = []
        self._taken: Allocation = worker.allocation

    def answer(self, item: PlacementRequest) -> PlacementResult:
        """Reserve for one lablet, or say why not."""
        lablet = self._lablets.get(item.lablet_id)
        if lablet is None:
            return _rejected(item, ProblemCode.NOT_FOUND, f"there is no lablet {item.lablet_id}")
        now = self._change.now
        worker = self._worker.model_copy(update={"allocation": self._taken})
        try:
            placed, self._taken = place_lablet(lablet, worker, item, self._plane.ports, now)
        except ProblemError as refusal:
            return _rejected(item, refusal.code, refusal.detail)
        except IllegalLabletTransitionError as illegal:
            return _rejected(item, ProblemCode.ILLEGAL_TRANSITION, str(illegal))
        self._lablets[lablet.id] = placed
        self._placed.append(lablet.id)
        reason = item.placement.reason
        self._change.save_lablet(placed, "scheduled", reason, worker_id=worker.id, score=item.placement.score)
        return PlacementResult(lablet_id=lablet.id, placed=True, ports=placed.ports)

    def save(self) -> None:
        """Write the worker with all that was taken: its version moves once, its generation does not."""
        after = updated_worker(self._worker, self._change.now, allocation=self._taken)
        self._change.save(after, "lablets_reserved", lablets=self._placed)


def _rejected(item: PlacementRequest, code: ProblemCode, detail: str) -> PlacementResult:
    return PlacementResult(lablet_id=item.lablet_id, placed=False, code=code.value, detail=detail)
