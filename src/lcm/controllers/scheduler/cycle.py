"""One round: all lablets that wait, one plan for them, and what follows from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ConflictError, NotFoundError
from lcm.controllers.common.base import as_stale_term
from lcm.controllers.scheduler.placement_status import (
    ending_write,
    make_schedule_batch,
    reservation_batches,
    waiting_write,
)
from lcm.controllers.scheduler.plan import SchedulingPlan, WaitingLablet
from lcm.controllers.scheduler.planner import make_plan, split_pending
from lcm.controllers.scheduler.preconditions import find_placement_block
from lcm.controllers.scheduler.scale_up import ScaleUpRequester
from lcm.controllers.scheduler.worker_cache import WorkerCache
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.scheduler.controller import SchedulerCounters
    from lcm.controllers.scheduler.plan import PlannedPlacement, SchedulerConfig
    from lcm.controllers.scheduler.preconditions import PlacementBlocked
    from lcm.model.lablet.record import Lablet, LabletStatusUpdate, PlacementResult

log = structlog.get_logger(__name__)

UNFINISHED_WRITES_SECONDS = 1.0
WAITING_RECHECK_SECONDS = 120.0
"""So often those that wait are looked at again whatever happens: what is in their way may end by time alone."""

MIN_DELAY_SECONDS = 0.01
"""A moment that is not quite reached is waited for, not spun for."""

ARRIVING_RECHECK_SECONDS = 5.0
"""Workers are not watched: while one is on its way somebody has to look whether it has come up."""

BLOCK_REPORT_DELAY_SECONDS = 10.0
"""For so long nothing is said of a gate that opens by itself."""

_CONFLICT_BACKOFF = Backoff(base=0.2, longest=30.0)
"""Somebody else was faster: look again at once. Who is refused time and again takes longer."""

BLOCK_RECHECK_SECONDS = 0.25
"""For a gate that opens by itself is looked so often, without reading anything else."""

_BATCH_SIZE = 100
_MAX_CONCURRENT_BATCHES = 2
_MAX_WRITES_PER_CYCLE = 200
_MAX_CONCURRENT_WRITES = 8
_NOT_PENDING_STATUSES = tuple(status for status in LabletStatus if status is not LabletStatus.PENDING_SCHEDULING)


class SchedulingCycle:
    """The rounds of one scheduler. One at a time: whoever calls sees to that."""

    def __init__(
        self, internal: InternalApi, leader: Callable[[], Leader], rules: SchedulerConfig, counters: SchedulerCounters
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._rules = rules
        self._counters = counters
        self._view = WorkerCache(internal)
        self._growth = ScaleUpRequester(internal, leader, self._view, counters, rules.scale_up_cooldown)
        self._written: dict[str, int] = {}  # the version of a lablet that our own last write made
        self._refusals = 0  # rounds in a row in which a reservation was refused
        self._closed_since: float | None = None
        self.closed: str = ""

    def start_term(self) -> None:
        """What was known before may be outdated."""
        self._view.invalidate()
        self._growth.forget()
        self._written.clear()
        self._closed_since = None

    def is_external_change(self, lablet_id: str, version: int) -> bool:
        """Whether a change of a lablet is another's than our own."""
        return version > self._written.get(lablet_id, 0)

    def on_lablet_deleted(self) -> bool:
        """A lablet has left its worker, which has room now; says whether anybody waits for that."""
        self._view.invalidate()
        return self._counters.pending_lablet_count > 0

    async def run(self) -> float | None:
        """One round; in how many seconds another is due, None: when somebody changes something, or at the next poll."""
        if self._closed_since is not None:
            silence = self._silence(await find_placement_block(self._internal))
            if silence > 0:
                return min(silence, BLOCK_RECHECK_SECONDS)
        listing = self._internal.lablets(exclude_statuses=_NOT_PENDING_STATUSES)
        pending = [lablet async for lablet in listing]
        self._counters.rounds_count += 1
        self._counters.pending_lablet_count = len(pending)
        waiting_ids = {lablet.id for lablet in pending}
        self._written = {key: version for key, version in self._written.items() if key in waiting_ids}
        if not pending:
            return None
        closed = await find_placement_block(self._internal)
        self._note_gate(closed)
        if closed is not None:
            return await self._stand_still(pending, closed)
        workers = await self._view.workers()
        templates = [template async for template in self._internal.templates()]
        made = make_plan(pending, workers, templates, now=clock.now(), rules=self._rules)
        return await self._carry_out(made)

    # Doing it

    async def _carry_out(self, made: SchedulingPlan) -> float | None:
        refused = await self._reserve(made.placed)
        asked, ask_in = await self._growth.ask(made.needs)
        waiting = [*made.waiting, *asked]
        left = await self._end(made)
        left += await self._explain(waiting)
        coming = any(each.worker_id is not None for each in waiting)
        self._refusals = self._refusals + 1 if refused else 0
        dues = [
            _CONFLICT_BACKOFF.exact(self._refusals - 1) if refused else None,
            UNFINISHED_WRITES_SECONDS if left else None,
            ARRIVING_RECHECK_SECONDS if coming else None,
            ask_in,
            made.next_look,
            WAITING_RECHECK_SECONDS if waiting else None,
        ]
        due = min((each for each in dues if each is not None), default=None)
        return None if due is None else max(due, MIN_DELAY_SECONDS)

    async def _reserve(self, placed: Sequence[PlannedPlacement]) -> int:
        """Reserve what was planned; says how many were refused, because something has changed since it was read.

        While the control plane works on one batch the next is on its way.
        """
        slots = asyncio.Semaphore(_MAX_CONCURRENT_BATCHES)

        async def one(part: Sequence[PlannedPlacement]) -> int:
            async with slots:
                batch = make_schedule_batch(part, clock.now())
                return self._take_in(part, await as_stale_term(self._internal.schedule(self._leader(), batch)))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in reservation_batches(placed, _BATCH_SIZE)]
        return sum(task.result() for task in tasks)

    def _take_in(self, part: Sequence[PlannedPlacement], answers: Sequence[PlacementResult]) -> int:
        by_id = {each.lablet.id: each for each in part}
        refused = 0
        for answer in answers:
            planned = by_id[answer.lablet_id]
            if answer.placed:
                self._view.reserve(planned.worker_id, planned.lablet.requirements, answer.ports.values())
                continue
            refused += 1
            log.info("reservation refused", lablet=answer.lablet_id, worker=planned.worker_id, why=answer.detail)
        self._counters.placed_count += len(answers) - refused
        self._counters.reservation_refused_count += refused
        self._counters.pending_lablet_count -= len(answers) - refused
        if refused:
            self._view.invalidate()
        return refused

    async def _end(self, made: SchedulingPlan) -> int:
        now = clock.now()
        writes = [(each.lablet.id, ending_write(each, LabletStatus.EXPIRED, now)) for each in made.expired]
        expired = await self._write(writes[:_MAX_WRITES_PER_CYCLE])
        self._counters.expired_count += expired
        hopeless = [(each.lablet.id, ending_write(each, LabletStatus.FAILED, now)) for each in made.hopeless]
        failed = await self._write(hopeless[:_MAX_WRITES_PER_CYCLE])
        self._counters.failed_count += failed
        self._counters.pending_lablet_count -= expired + failed
        return len(writes[_MAX_WRITES_PER_CYCLE:]) + len(hopeless[_MAX_WRITES_PER_CYCLE:])

    async def _explain(self, waiting: Sequence[WaitingLablet]) -> int:
        """Keep with each lablet what it waits for; says how many are left for the next round."""
        now = clock.now()
        writes = []
        for each in waiting:
            write = waiting_write(each, now)
            if write is not None:
                writes.append((each.lablet.id, write))
        self._counters.explained_count += await self._write(writes[:_MAX_WRITES_PER_CYCLE])
        return len(writes[_MAX_WRITES_PER_CYCLE:])

    async def _write(self, writes: Sequence[tuple[str, LabletStatusUpdate]]) -> int:
        """Write some at a time; says how many were written. Whoever was changed meanwhile is left to the next round."""
        slots = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)

        async def one(lablet_id: str, body: LabletStatusUpdate) -> bool:
            async with slots:
                try:
                    after = await as_stale_term(self._internal.lablet_status(self._leader(), lablet_id, body))
                except (ConflictError, NotFoundError) as refusal:
                    log.info("lablet has changed meanwhile", lablet=lablet_id, why=str(refusal))
                    return False
            self._written[lablet_id] = after.version
            return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*write)) for write in writes]
        return sum(task.result() for task in tasks)

    # Standing still

    async def _stand_still(self, pending: Sequence[Lablet], closed: PlacementBlocked) -> float | None:
        """Nothing is placed and nothing asked for; what is over is recorded, and what is waited for is said."""
        made, _ = split_pending(pending, clock.now(), self._rules)
        left = await self._end(made)
        silence = self._silence(closed)
        if silence > 0:
            return min(silence, BLOCK_RECHECK_SECONDS)
        over = {each.lablet.id for each in made.expired}
        left += await self._explain(
            [WaitingLablet(lablet, closed.reason) for lablet in pending if lablet.id not in over]
        )
        return UNFINISHED_WRITES_SECONDS if left or closed.passing else ARRIVING_RECHECK_SECONDS

    def _silence(self, closed: PlacementBlocked | None) -> float:
        """For how many seconds more nothing is said of a gate that is closed."""
        if closed is None or not closed.passing or self._closed_since is None:
            return 0.0
        return self._closed_since + BLOCK_REPORT_DELAY_SECONDS - asyncio.get_running_loop().time()

    def _note_gate(self, closed: PlacementBlocked | None) -> None:
        reason = "" if closed is None else closed.reason
        if reason != self.closed:
            log.info("placement stands still" if reason else "placement goes on", reason=reason or None)
        self.closed = reason
        if closed is None:
            self._closed_since = None
        elif self._closed_since is None:
            self._closed_since = asyncio.get_running_loop().time()
