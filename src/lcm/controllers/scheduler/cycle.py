"""One round: all lablets that wait, one plan for them, and what follows from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import Conflict, NotFound
from lcm.controllers.common.base import told
from lcm.controllers.scheduler.batches import in_batches, schedule_batch
from lcm.controllers.scheduler.placement_status import end_of, wait_of
from lcm.controllers.scheduler.plan import Plan, Waiting
from lcm.controllers.scheduler.planner import plan, sort_out
from lcm.controllers.scheduler.preconditions import why_closed
from lcm.controllers.scheduler.scale_up import Growth
from lcm.controllers.scheduler.worker_cache import WorkerView
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.client_internal import Internal
    from lcm.controllers.scheduler.controller import Counters
    from lcm.controllers.scheduler.plan import Placed, Rules
    from lcm.controllers.scheduler.preconditions import Closed
    from lcm.model.lablet.record import Lablet, LabletStatusWrite, Scheduled

log = structlog.get_logger(__name__)

SOON_SECONDS = 1.0
WAITING_SECONDS = 120.0
"""So often those that wait are looked at again whatever happens: what is in their way may end by time alone."""

SHORTEST_SECONDS = 0.01
"""A moment that is not quite reached is waited for, not spun for."""

COMING_SECONDS = 5.0
"""Workers are not watched: while one is on its way somebody has to look whether it has come up."""

CLOSED_SECONDS = 10.0
"""For so long nothing is said of a gate that opens by itself."""

_AFTER_REFUSAL = Backoff(base=0.2, longest=30.0)
"""Somebody else was faster: look again at once. Who is refused time and again takes longer."""

GATE_SECONDS = 0.25
"""For a gate that opens by itself is looked so often, without reading anything else."""

_BATCH = 100
_BATCHES_AT_ONCE = 2
_MOST_WRITES = 200
_AT_ONCE = 8
_NOT_PENDING = tuple(status for status in LabletStatus if status is not LabletStatus.PENDING_SCHEDULING)


class Rounds:
    """The rounds of one scheduler. One at a time: whoever calls sees to that."""

    def __init__(self, internal: Internal, leader: Callable[[], Leader], rules: Rules, counters: Counters) -> None:
        self._internal = internal
        self._leader = leader
        self._rules = rules
        self._counters = counters
        self._view = WorkerView(internal)
        self._growth = Growth(internal, leader, self._view, counters, rules.scale_up_cooldown)
        self._written: dict[str, int] = {}  # the version of a lablet that our own last write made
        self._refusals = 0  # rounds in a row in which a reservation was refused
        self._closed_since: float | None = None
        self.closed: str = ""

    def begin_term(self) -> None:
        """What was known before may be outdated."""
        self._view.outdate()
        self._growth.forget()
        self._written.clear()
        self._closed_since = None

    def is_news(self, lablet_id: str, version: int) -> bool:
        """Whether a change of a lablet is another's than our own."""
        return version > self._written.get(lablet_id, 0)

    def heard_of_an_end(self) -> bool:
        """A lablet has left its worker, which has room now; says whether anybody waits for that."""
        self._view.outdate()
        return self._counters.pending_lablet_count > 0

    async def run(self) -> float | None:
        """One round; in how many seconds another is due, None: when somebody changes something, or at the next poll."""
        if self._closed_since is not None:
            silence = self._silence(await why_closed(self._internal))
            if silence > 0:
                return min(silence, GATE_SECONDS)
        listing = self._internal.lablets(exclude_statuses=_NOT_PENDING)
        pending = [lablet async for lablet in listing]
        self._counters.rounds_count += 1
        self._counters.pending_lablet_count = len(pending)
        waiting_ids = {lablet.id for lablet in pending}
        self._written = {key: version for key, version in self._written.items() if key in waiting_ids}
        if not pending:
            return None
        closed = await why_closed(self._internal)
        self._note_gate(closed)
        if closed is not None:
            return await self._stand_still(pending, closed)
        workers = await self._view.workers()
        templates = [template async for template in self._internal.templates()]
        made = plan(pending, workers, templates, now=clock.now(), rules=self._rules)
        return await self._carry_out(made)

    # Doing it

    async def _carry_out(self, made: Plan) -> float | None:
        refused = await self._reserve(made.placed)
        asked, ask_in = await self._growth.ask(made.needs)
        waiting = [*made.waiting, *asked]
        left = await self._end(made)
        left += await self._explain(waiting)
        coming = any(each.worker_id is not None for each in waiting)
        self._refusals = self._refusals + 1 if refused else 0
        dues = [
            _AFTER_REFUSAL.exact(self._refusals - 1) if refused else None,
            SOON_SECONDS if left else None,
            COMING_SECONDS if coming else None,
            ask_in,
            made.next_look,
            WAITING_SECONDS if waiting else None,
        ]
        due = min((each for each in dues if each is not None), default=None)
        return None if due is None else max(due, SHORTEST_SECONDS)

    async def _reserve(self, placed: Sequence[Placed]) -> int:
        """Reserve what was planned; says how many were refused, because something has changed since it was read.

        While the control plane works on one batch the next is on its way.
        """
        slots = asyncio.Semaphore(_BATCHES_AT_ONCE)

        async def one(part: Sequence[Placed]) -> int:
            async with slots:
                batch = schedule_batch(part, clock.now())
                return self._take_in(part, await told(self._internal.schedule(self._leader(), batch)))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in in_batches(placed, _BATCH)]
        return sum(task.result() for task in tasks)

    def _take_in(self, part: Sequence[Placed], answers: Sequence[Scheduled]) -> int:
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
            self._view.outdate()
        return refused

    async def _end(self, made: Plan) -> int:
        now = clock.now()
        writes = [(each.lablet.id, end_of(each, LabletStatus.EXPIRED, now)) for each in made.expired]
        expired = await self._write(writes[:_MOST_WRITES])
        self._counters.expired_count += expired
        hopeless = [(each.lablet.id, end_of(each, LabletStatus.FAILED, now)) for each in made.hopeless]
        failed = await self._write(hopeless[:_MOST_WRITES])
        self._counters.failed_count += failed
        self._counters.pending_lablet_count -= expired + failed
        return len(writes[_MOST_WRITES:]) + len(hopeless[_MOST_WRITES:])

    async def _explain(self, waiting: Sequence[Waiting]) -> int:
        """Keep with each lablet what it waits for; says how many are left for the next round."""
        now = clock.now()
        writes = []
        for each in waiting:
            write = wait_of(each, now)
            if write is not None:
                writes.append((each.lablet.id, write))
        self._counters.explained_count += await self._write(writes[:_MOST_WRITES])
        return len(writes[_MOST_WRITES:])

    async def _write(self, writes: Sequence[tuple[str, LabletStatusWrite]]) -> int:
        """Write some at a time; says how many were written. Whoever was changed meanwhile is left to the next round."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(lablet_id: str, body: LabletStatusWrite) -> bool:
            async with slots:
                try:
                    after = await told(self._internal.lablet_status(self._leader(), lablet_id, body))
                except (Conflict, NotFound) as refusal:
                    log.info("lablet has changed meanwhile", lablet=lablet_id, why=str(refusal))
                    return False
            self._written[lablet_id] = after.version
            return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*write)) for write in writes]
        return sum(task.result() for task in tasks)

    # Standing still

    async def _stand_still(self, pending: Sequence[Lablet], closed: Closed) -> float | None:
        """Nothing is placed and nothing asked for; what is over is recorded, and what is waited for is said."""
        made, _ = sort_out(pending, clock.now(), self._rules)
        left = await self._end(made)
        silence = self._silence(closed)
        if silence > 0:
            return min(silence, GATE_SECONDS)
        over = {each.lablet.id for each in made.expired}
        left += await self._explain([Waiting(lablet, closed.reason) for lablet in pending if lablet.id not in over])
        return SOON_SECONDS if left or closed.passing else COMING_SECONDS

    def _silence(self, closed: Closed | None) -> float:
        """For how many seconds more nothing is said of a gate that is closed."""
        if closed is None or not closed.passing or self._closed_since is None:
            return 0.0
        return self._closed_since + CLOSED_SECONDS - asyncio.get_running_loop().time()

    def _note_gate(self, closed: Closed | None) -> None:
        reason = "" if closed is None else closed.reason
        if reason != self.closed:
            log.info("placement stands still" if reason else "placement goes on", reason=reason or None)
        self.closed = reason
        if closed is None:
            self._closed_since = None
        elif self._closed_since is None:
            self._closed_since = asyncio.get_running_loop().time()
