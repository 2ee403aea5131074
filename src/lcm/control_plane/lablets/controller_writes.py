"""Writes of the scheduler and the lablet controller about lablets. Every write is fenced by the leader's term."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lcm.control_plane.bookings.measurements import measure_lab
from lcm.control_plane.bookings.protection import has_open_bookings, read_room, use_worker
from lcm.control_plane.calendar.schedule_reads import read_schedules_in
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets import lifecycle
from lcm.control_plane.lablets.service import save_and_release
from lcm.control_plane.workers.lifecycle import updated_record
from lcm.control_plane.workers.scaling import check_not_held
from lcm.core import clock
from lcm.model.calendar.schedule import closed_reason
from lcm.model.lablet.placement import lablet_end
from lcm.model.lablet.record import PlacementBatchResult, PlacementResult
from lcm.model.lablet.scheduling.block import WORKER_CONTROLLER
from lcm.model.lablet.status import IllegalLabletTransitionError
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Leader, Transaction
    from lcm.model.calendar.walk_ins import WalkInRoom
    from lcm.model.lablet.record import (
        Lablet,
        LabletStatusUpdate,
        PlacementBatch,
        PlacementRequest,
        ReleaseLabletRequest,
    )
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import Allocation

"""Its startup sweep must be done first: before that it is unknown which workers on record still have an instance."""


class LabletControllerWrites:
    """Writes of controllers about lablets. A term older than the newest known one changes nothing."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._run_fenced = context.unit_of_work.run_fenced

    async def status(self, leader: Leader, lablet_id: str, write: LabletStatusUpdate) -> Lablet:
        """Store what the controller observed or did."""

        async def attempt(tx: Transaction) -> tuple[Lablet, Lablet]:
            lablet = await tx.lablet(lablet_id)
            after = lifecycle.apply_lablet_status(lablet, write, tx.now)
            return lablet, await save_and_release(tx, lablet, after, "status_reported", write.reason)

        before, after = await self._run_fenced(leader, attempt)
        await measure_lab(self._context.store, before, after, clock.now())
        return after

    async def release(self, leader: Leader, lablet_id: str, write: ReleaseLabletRequest) -> Lablet:
        """Release the reservation of a lablet."""

        async def attempt(tx: Transaction) -> Lablet:
            lablet = await tx.lablet(lablet_id)
            after = lifecycle.apply_release(lablet, write, tx.now)
            return await save_and_release(tx, lablet, after, "released", write.reason)

        return await self._run_fenced(leader, attempt)

    async def schedule(self, leader: Leader, batch: PlacementBatch) -> PlacementBatchResult:
        """Reserve workers for many lablets, one commit per worker; rejected as a whole if placement is not allowed."""
        await self._run_fenced(leader, _check_placement_allowed)
        by_worker: dict[str, list[PlacementRequest]] = {}
        for item in batch.items:
            by_worker.setdefault(item.worker_id, []).append(item)
        reservations = [self._reserve(leader, worker_id, items) for worker_id, items in by_worker.items()]
        # Beside bookings they take turns, as each has to see what those before it leave.
        limit = 1 if await has_open_bookings(self._context.store) else len(reservations)
        done = await _gather(reservations, limit)
        results: dict[int, PlacementResult] = {}
        for group, items in zip(done, by_worker.values(), strict=True):
            if isinstance(group, BaseException):
                raise group  # reservations of the other groups stay, and are seen when lablets are listed again
            results |= {id(item): result for item, result in zip(items, group, strict=True)}
        return PlacementBatchResult(items=tuple(results[id(item)] for item in batch.items))

    async def _reserve(
        self, leader: Leader, worker_id: str, items: Sequence[PlacementRequest]
    ) -> list[PlacementResult]:
        async def attempt(tx: Transaction) -> list[PlacementResult]:
            await _check_placement_allowed(tx)
            worker = await tx.worker(worker_id)
            lablets = await tx.lablets([item.lablet_id for item in items])
            closed = closed_reason(worker, await read_schedules_in(tx), tx.earliest_now)
            if closed is not None:
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"it does not fit on {worker.name}: {closed}")
            room = await read_room(tx, self._context)
            reservation = _Reservation(self._context, tx, worker, lablets, room)
            results = [await reservation.reserve(item) for item in items]
            reservation.save()
            return results

        try:
            return await self._run_fenced(leader, attempt)
        except ProblemError as problem:
            if problem.code is ProblemCode.STALE_LEADER:
                raise
            return [_rejected(item, problem.code, problem.detail) for item in items]


async def _gather(
    reservations: Sequence[Coroutine[Any, Any, list[PlacementResult]]], limit: int
) -> list[list[PlacementResult] | BaseException]:
    turns = asyncio.Semaphore(max(1, limit))

    async def one(reservation: Coroutine[Any, Any, list[PlacementResult]]) -> list[PlacementResult]:
        async with turns:
            return await reservation

    return await asyncio.gather(*map(one, reservations), return_exceptions=True)


async def _check_placement_allowed(tx: Transaction) -> None:
    """Nothing is placed while the fleet is on hold, nor before the startup sweep has shown which workers exist."""
    await check_not_held(tx)
    if not await tx.startup_sweep_done(WORKER_CONTROLLER):
        detail = "nothing is placed until the leading worker controller has finished its startup sweep"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


class _Reservation:
    """The reservations of one commit on one worker: each lablet sees the allocation of those before it."""

    def __init__(
        self,
        context: ControlPlaneContext,
        tx: Transaction,
        worker: Worker,
        lablets: dict[str, Lablet],
        room: WalkInRoom,
    ) -> None:
        self._context = context
        self._tx = tx
        self._worker = worker
        self._lablets = lablets
        self._room = room
        self._placed: list[str] = []
        self._allocation: Allocation = worker.allocation

    async def reserve(self, item: PlacementRequest) -> PlacementResult:
        """Reserve for one lablet, or say why it is rejected."""
        lablet = self._lablets.get(item.lablet_id)
        if lablet is None:
            return _rejected(item, ProblemCode.NOT_FOUND, f"there is no lablet {item.lablet_id}")
        now = self._tx.now
        worker = self._worker.model_copy(update={"allocation": self._allocation})
        try:
            placed, allocation = lifecycle.place_lablet(lablet, worker, item, self._context.ports, now)
            if lablet.booking_id is None:
                await use_worker(self._tx, self._room, worker.id, lablet_end(lablet, now))
        except ProblemError as problem:
            return _rejected(item, problem.code, problem.detail)
        except IllegalLabletTransitionError as illegal:
            return _rejected(item, ProblemCode.ILLEGAL_TRANSITION, str(illegal))
        self._allocation = allocation
        self._lablets[lablet.id] = placed
        self._placed.append(lablet.id)
        reason = item.placement.reason
        self._tx.save_lablet(placed, "scheduled", reason, worker_id=worker.id, score=item.placement.score)
        return PlacementResult(lablet_id=lablet.id, placed=True, ports=placed.ports)

    def save(self) -> None:
        """Save the worker with the new allocation: its version is incremented once, its generation is not."""
        after = updated_record(self._worker, self._tx.now, allocation=self._allocation)
        self._tx.save_worker(after, "lablets_reserved", lablets=self._placed)


def _rejected(item: PlacementRequest, code: ProblemCode, detail: str) -> PlacementResult:
    return PlacementResult(lablet_id=item.lablet_id, placed=False, code=code.value, detail=detail)
