"""One scheduling cycle: reads all pending lablets, makes one plan for them, and executes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ConflictError, NotFoundError
from lcm.controllers.common.schedules import ScheduleCache
from lcm.controllers.scheduler.placement_status import (
    ending_write,
    make_schedule_batch,
    reservation_batches,
    waiting_write,
)
from lcm.controllers.scheduler.scale_up import ScaleUpRequester
from lcm.controllers.scheduler.worker_cache import WorkerCache
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.model.lablet.scheduling.block import PlacementBlock, hold_block, verification_block
from lcm.model.lablet.scheduling.planner import SchedulingPlan, WaitingLablet, make_plan, split_pending
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.scheduler.config import SchedulerConfig
    from lcm.controllers.scheduler.controller import SchedulerCounters
    from lcm.model.fleet.state import FleetState
    from lcm.model.lablet.record import Lablet, LabletStatusUpdate, PlacementResult
    from lcm.model.lablet.scheduling.planner import PlannedPlacement


log = structlog.get_logger(__name__)

UNFINISHED_WRITES_SECONDS = 1.0
WAITING_RECHECK_SECONDS = 120.0
"""Waiting lablets are checked again after this time in any case: some obstacles end without an event."""

MIN_DELAY_SECONDS = 0.01
"""The shortest delay between two cycles, so that rounding does not cause a busy loop."""

ARRIVING_RECHECK_SECONDS = 5.0
"""Workers are not watched, so a worker that is starting has to be polled."""

BLOCK_REPORT_DELAY_SECONDS = 10.0
"""A transient block is reported only after this time."""

_CONFLICT_BACKOFF = Backoff(base=0.2, max_delay=30.0)
"""After a conflict the cycle is repeated at once; repeated conflicts take longer."""

BLOCK_RECHECK_SECONDS = 0.25
"""A transient block is checked this often, without reading anything else."""

_BATCH_SIZE = 100
_MAX_CONCURRENT_BATCHES = 2
_MAX_WRITES_PER_CYCLE = 200
_MAX_CONCURRENT_WRITES = 8
_NOT_PENDING_STATUSES = tuple(status for status in LabletStatus if status is not LabletStatus.PENDING_SCHEDULING)


async def find_placement_block(internal: InternalApi, fleet: FleetState) -> PlacementBlock | None:
    """Why placement is blocked; None if it is allowed."""
    block = hold_block(fleet, clock.earliest_now())
    return block if block is not None else verification_block(await internal.leaders())


class SchedulingCycle:
    """The cycles of one scheduler. The caller makes sure that only one runs at a time."""

    def __init__(
        self, internal: InternalApi, leader: Callable[[], Leader], config: SchedulerConfig, counters: SchedulerCounters
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._config = config
        self._counters = counters
        self._workers = WorkerCache(internal)
        self._schedules = ScheduleCache(internal)
        self._scale_up = ScaleUpRequester(internal, leader, self._workers, counters, config.scale_up_cooldown)
        self._own_versions: dict[str, int] = {}  # the version of each lablet after our own last write
        self._conflicts = 0  # consecutive cycles with a rejected reservation
        self._skipped: set[tuple[str, str]] = set()  # the records that were skipped in the last plan, and why
        self._blocked_since: float | None = None
        self.blocked_reason: str = ""

    def start_term(self) -> None:
        """Drop all state: it may be stale."""
        self._workers.invalidate()
        self._scale_up.forget()
        self._own_versions.clear()
        self._blocked_since = None

    def is_external_change(self, lablet_id: str, version: int) -> bool:
        """Whether a change of a lablet is not one of our own writes."""
        return version > self._own_versions.get(lablet_id, 0)

    def on_lablet_deleted(self) -> bool:
        """A lablet has left its worker, which now has capacity. Returns whether any lablet is waiting for it."""
        self._workers.invalidate()
        return self._counters.pending_lablet_count > 0

    async def run(self) -> float | None:
        """Run one cycle. Returns the seconds until the next one; None to wait for a change or the next poll."""
        if self._blocked_since is not None:
            delay = self._report_delay(await find_placement_block(self._internal, await self._internal.fleet()))
            if delay > 0:
                return min(delay, BLOCK_RECHECK_SECONDS)
        listing = self._internal.lablets(exclude_statuses=_NOT_PENDING_STATUSES)
        # One whose words only a newer version knows is left to that version.
        pending = [lablet async for lablet in listing if not lablet.unknown_words]
        self._counters.rounds_count += 1
        self._counters.pending_lablet_count = len(pending)
        waiting_ids = {lablet.id for lablet in pending}
        self._own_versions = {key: version for key, version in self._own_versions.items() if key in waiting_ids}
        if not pending:
            return None
        fleet = await self._internal.fleet()
        block = await find_placement_block(self._internal, fleet)
        self._log_block(block)
        if block is not None:
            return await self._handle_block(pending, block)
        workers = await self._workers.workers()
        templates = [template async for template in self._internal.templates()]
        schedules = await self._schedules.refresh(fleet)
        now = clock.earliest_now()
        booked = await self._internal.booked_capacity()
        plan = make_plan(pending, workers, templates, now=now, config=self._config, schedules=schedules, booked=booked)
        self._count_skipped(plan)
        return await self._execute(plan)

    # Execution

    async def _execute(self, plan: SchedulingPlan) -> float | None:
        rejected = await self._reserve(plan.placed)
        requested, request_in = await self._scale_up.request(plan.needs)
        waiting = [*plan.waiting, *requested]
        left = await self._end(plan)
        left += await self._explain(waiting)
        arriving = any(each.worker_id is not None for each in waiting)
        self._conflicts = self._conflicts + 1 if rejected else 0
        dues = [
            _CONFLICT_BACKOFF.delay_without_jitter(self._conflicts - 1) if rejected else None,
            UNFINISHED_WRITES_SECONDS if left else None,
            ARRIVING_RECHECK_SECONDS if arriving else None,
            request_in,
            plan.next_check_in,
            WAITING_RECHECK_SECONDS if waiting else None,
        ]
        due = min((each for each in dues if each is not None), default=None)
        return None if due is None else max(due, MIN_DELAY_SECONDS)

    def _count_skipped(self, plan: SchedulingPlan) -> None:
        """Count and log the records that could not be planned; each is logged once, not in every cycle."""
        self._counters.skipped_record_count = len(plan.skipped)
        skipped = {(each.id, each.reason) for each in plan.skipped}
        for each in plan.skipped:
            if (each.id, each.reason) not in self._skipped:
                log.error("record skipped", kind=each.kind, id=each.id, name=each.name, reason=each.reason)
        self._skipped = skipped

    async def _reserve(self, placed: Sequence[PlannedPlacement]) -> int:
        """Reserve the planned placements. Returns how many were rejected because something has changed.

        The next batch is sent while the control plane processes the previous one.
        """
        slots = asyncio.Semaphore(_MAX_CONCURRENT_BATCHES)

        async def one(part: Sequence[PlannedPlacement]) -> int:
            async with slots:
                batch = make_schedule_batch(part, clock.now())
                return self._apply_results(part, await self._internal.schedule(self._leader(), batch))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in reservation_batches(placed, _BATCH_SIZE)]
        return sum(task.result() for task in tasks)

    def _apply_results(self, part: Sequence[PlannedPlacement], results: Sequence[PlacementResult]) -> int:
        by_id = {each.lablet.id: each for each in part}
        rejected = 0
        for result in results:
            planned = by_id[result.lablet_id]
            if result.placed:
                self._workers.reserve(planned.worker_id, planned.lablet.requirements, result.ports.values())
                continue
            rejected += 1
            log.info("reservation rejected", lablet=result.lablet_id, worker=planned.worker_id, why=result.detail)
        self._counters.placed_count += len(results) - rejected
        self._counters.reservation_refused_count += rejected
        self._counters.pending_lablet_count -= len(results) - rejected
        if rejected:
            self._workers.invalidate()
        return rejected

    async def _end(self, plan: SchedulingPlan) -> int:
        now = clock.now()
        writes = [(each.lablet.id, ending_write(each, LabletStatus.EXPIRED, now)) for each in plan.expired]
        expired = await self._write(writes[:_MAX_WRITES_PER_CYCLE])
        self._counters.expired_count += expired
        unplaceable = [(each.lablet.id, ending_write(each, LabletStatus.FAILED, now)) for each in plan.unplaceable]
        failed = await self._write(unplaceable[:_MAX_WRITES_PER_CYCLE])
        self._counters.failed_count += failed
        self._counters.pending_lablet_count -= expired + failed
        return len(writes[_MAX_WRITES_PER_CYCLE:]) + len(unplaceable[_MAX_WRITES_PER_CYCLE:])

    async def _explain(self, waiting: Sequence[WaitingLablet]) -> int:
        """Record with each lablet what it waits for. Returns how many are left for the next cycle."""
        now = clock.now()
        writes = []
        for each in waiting:
            write = waiting_write(each, now)
            if write is not None:
                writes.append((each.lablet.id, write))
        self._counters.explained_count += await self._write(writes[:_MAX_WRITES_PER_CYCLE])
        return len(writes[_MAX_WRITES_PER_CYCLE:])

    async def _write(self, writes: Sequence[tuple[str, LabletStatusUpdate]]) -> int:
        """Write a few at a time. Returns how many were written. Changed lablets are left for the next cycle."""
        slots = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)

        async def one(lablet_id: str, body: LabletStatusUpdate) -> bool:
            async with slots:
                try:
                    after = await self._internal.lablet_status(self._leader(), lablet_id, body)
                except (ConflictError, NotFoundError) as error:
                    log.info("lablet has changed in the meantime", lablet=lablet_id, why=str(error))
                    return False
            self._own_versions[lablet_id] = after.version
            return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*write)) for write in writes]
        return sum(task.result() for task in tasks)

    # Blocked placement

    async def _handle_block(self, pending: Sequence[Lablet], block: PlacementBlock) -> float | None:
        """Place nothing and request nothing. Expired lablets are recorded, and the block is reported to the others."""
        plan, _ = split_pending(pending, clock.earliest_now(), self._config)
        self._count_skipped(plan)
        left = await self._end(plan)
        delay = self._report_delay(block)
        if delay > 0:
            return min(delay, BLOCK_RECHECK_SECONDS)
        over = {each.lablet.id for each in plan.expired}
        left += await self._explain(
            [WaitingLablet(lablet, block.reason) for lablet in pending if lablet.id not in over]
        )
        return UNFINISHED_WRITES_SECONDS if left or block.is_transient else ARRIVING_RECHECK_SECONDS

    def _report_delay(self, block: PlacementBlock | None) -> float:
        """The seconds during which a block is not reported yet."""
        if block is None or not block.is_transient or self._blocked_since is None:
            return 0.0
        return self._blocked_since + BLOCK_REPORT_DELAY_SECONDS - asyncio.get_running_loop().time()

    def _log_block(self, block: PlacementBlock | None) -> None:
        reason = "" if block is None else block.reason
        if reason != self.blocked_reason:
            log.info("placement is blocked" if reason else "placement resumes", reason=reason or None)
        self.blocked_reason = reason
        if block is None:
            self._blocked_since = None
        elif self._blocked_since is None:
            self._blocked_since = asyncio.get_running_loop().time()
