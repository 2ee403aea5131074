"""Reads the plan: what controllers will do next if nothing changes. Nothing is changed by it."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lcm.control_plane.calendar.booking_plan import plan_booking_boundaries, plan_booking_steps
from lcm.control_plane.calendar.schedule_plan import plan_boundaries, plan_schedule_changes
from lcm.control_plane.fleet.state_reads import read_controller_reports, read_fleet_state, read_leaders
from lcm.control_plane.lablets.planning import (
    decode_records,
    describe_scheduling,
    read_records,
    read_scheduling_inputs,
    run_planner,
)
from lcm.control_plane.read_gate import collection_paused
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.decisions import read_decisions
from lcm.control_plane.workers.scaling import count_running_workers
from lcm.core import clock
from lcm.core.singleflight import FreshSingleflight
from lcm.model.calendar.precedence import NO_OTHER_CLAIMS, OtherClaims
from lcm.model.calendar.schedule import schedule_claim
from lcm.model.fleet.plan import (
    MAX_LISTED,
    DecidedRecord,
    DecisionState,
    FleetPlan,
    PlannedLicenseOperation,
    PlannedPause,
    PlannedWorker,
    assess_decision,
    find_evaluator,
    plan_worker,
)
from lcm.model.fleet.settings import IdleAction
from lcm.model.lablet.scheduling.block import WORKER_CONTROLLER
from lcm.model.worker.idle import idle_policy_action, next_idle_action
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.lablets.planning import SchedulingInputs
    from lcm.model.fleet.plan import Evaluator, LabletPlan, PlannedBookingStep, PlannedScheduleChange
    from lcm.model.system import DiscoveryPlan, ReceivedControllerReport
    from lcm.model.worker.record import Hold

_NOT_AT_REST = Where(any_of={"at_rest": [False]})
_IN_SERVICE = Where(any_of={"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]})
_PRESENT = Where(none_of={"status": [WorkerStatus.TERMINATED.value]})
_WORKERS_PER_TURN = 50
_SHARED_SECONDS = 1.0
"""How long a computed plan is shown to others, if nothing is changed meanwhile."""
_PENDING_LICENSE = b'"pending_license_operation":{'


_State = tuple[str | None, int]


@dataclass(frozen=True, slots=True)
class PlanParts:
    """The parts of the plan that are not about one worker, and the whole of the lists that are cut in it."""

    plan: FleetPlan
    schedule_changes: Sequence[PlannedScheduleChange]
    booking_steps: Sequence[PlannedBookingStep]


@dataclass(frozen=True, slots=True)
class _SharedParts:
    """Parts of the plan, and the state of the store from before they were computed."""

    parts: PlanParts
    state: _State
    until: float

    def is_fresh(self, state: _State) -> bool:
        """Whether nothing was changed since, and little time has passed."""
        return self.state == state and asyncio.get_running_loop().time() < self.until


@dataclass(slots=True)
class HeldWorkers:
    """The workers whose actions wait for the end of a hold: the first of them, and how many there are."""

    listed: list[PlannedWorker] = field(default_factory=list)
    total: int = 0
    undecided: int = 0
    """For how many the decision is missing or not for their record as it is now."""
    schedule_changes: list[PlannedScheduleChange] = field(default_factory=list)
    """What schedules do then with further workers, which are at rest now."""


class PlanService:
    """The plan of the whole fleet, and of one worker."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._computing: FreshSingleflight[PlanParts] = FreshSingleflight()
        self._shared: _SharedParts | None = None

    async def page(self, after: str | None, limit: int) -> FleetPlan:
        """A page of workers that are not at rest. The first page has the other parts of the plan too."""
        gate = self._context.reads
        items, cursor = await gate.run_alone(partial(self._read_page, after, limit))
        if after is not None:
            return FleetPlan(items=items, next_cursor=cursor)
        plan = (await self._parts()).plan
        return plan.model_copy(update={**await self._present_state(), "items": items, "next_cursor": cursor})

    async def _parts(self) -> PlanParts:
        """The parts that take long to compute: one computation serves all who asked before it began.

        Whoever asks in the second after it gets the same, unless something was changed since it began.
        """
        state = await self._read_state()
        if self._shared is not None and self._shared.is_fresh(state):
            return self._shared.parts
        return await self._computing.run("plan", partial(self._context.reads.run_alone, self._compute_parts))

    async def _compute_parts(self) -> PlanParts:
        state = await self._read_state()
        if self._shared is not None and self._shared.is_fresh(state):
            # For those who asked during a computation: nothing was changed since it began, so its result is theirs too.
            return self._shared.parts
        with collection_paused():
            parts = await self._read_parts()
        self._shared = _SharedParts(parts, state, asyncio.get_running_loop().time() + _SHARED_SECONDS)
        return parts

    async def _read_state(self) -> _State:
        """What differs after any change: by this process, and by others as far as the journal has it."""
        newest = await self._context.store.read_journal(newest_first=True, limit=1)
        return newest[0].cursor if newest else None, self._context.unit_of_work.transactions

    async def _read_page(self, after: str | None, limit: int) -> tuple[tuple[PlannedWorker, ...], str | None]:
        page = await self._context.store.find(WORKERS, _NOT_AT_REST, after=after, limit=limit)
        items: list[PlannedWorker] = []
        for begin in range(0, len(page.items), _WORKERS_PER_TURN):
            some = page.items[begin : begin + _WORKERS_PER_TURN]
            items += await self._plan_workers(decode_records(some, Worker, "worker", []))
            await asyncio.sleep(0)  # others are served meanwhile
        return tuple(items), page.next_cursor

    async def worker(self, worker: Worker) -> PlannedWorker:
        """The plan for one worker."""
        (planned,) = await self._plan_workers([worker])
        return planned

    async def held(self, limit: int) -> HeldWorkers:
        """The workers for which something will be done when the hold of the fleet ends.

        Those with a hold of their own are not among them: it goes on.
        """
        parts = await self._parts()
        booked = {worker_id for step in parts.booking_steps for worker_id in step.workers}
        found, acting = await self._context.reads.run_alone(partial(self._find_held, limit, booked))
        found.schedule_changes = await self._schedule_changes_on_release(parts, acting | booked)
        return found

    async def _schedule_changes_on_release(
        self, parts: PlanParts, named: Collection[str]
    ) -> list[PlannedScheduleChange]:
        """The stops and starts that are due, but those of workers with a hold of their own."""
        now = clock.now()
        due = [each for each in parts.schedule_changes if each.at <= now and each.worker_id not in named]
        stored = await self._context.store.get_many(WORKERS, [each.worker_id for each in due])
        workers = {each.id: each for each in decode_records(list(stored.values()), Worker, "worker", [])}
        return [
            each
            for each in due
            if each.worker_id in workers and ((hold := workers[each.worker_id].hold) is None or not hold.active(now))
        ]

    async def _find_held(self, limit: int, booked: Collection[str]) -> tuple[HeldWorkers, set[str]]:
        store, found, after = self._context.store, HeldWorkers(), None
        acting = set[str]()
        now, evaluator, hold = await self._basis()
        while True:
            page = await store.find(WORKERS, _NOT_AT_REST, after=after, limit=MAX_LISTED)
            decisions = await read_decisions(store, [stored.id for stored in page.items])
            with_actions = []  # only these are decoded whole: of a large fleet most workers have none
            for stored in page.items:
                worker, decision = read_or_skip(stored, DecidedRecord, "worker"), decisions.get(stored.id)
                if worker is None or (worker.hold is not None and worker.hold.active(now)):
                    continue
                if assess_decision(worker, decision, evaluator, now)[0] is not DecisionState.CURRENT:
                    found.undecided += 1
                elif decision is not None and (decision.held_actions or decision.next_actions):
                    with_actions.append(stored)
            for each in decode_records(with_actions, Worker, "worker", []):
                if each.id not in booked:  # a class takes it, and so it runs
                    acting.add(each.id)
                    found.total += 1
                    if len(found.listed) < limit:
                        found.listed.append(plan_worker(each, decisions[each.id], evaluator, hold, now))
            after = page.next_cursor
            if after is None:
                return found, acting
            await asyncio.sleep(0)

    async def _plan_workers(self, workers: Sequence[Worker]) -> tuple[PlannedWorker, ...]:
        now, evaluator, hold = await self._basis()
        decisions = await read_decisions(self._context.store, [worker.id for worker in workers])
        return tuple(plan_worker(worker, decisions.get(worker.id), evaluator, hold, now) for worker in workers)

    async def _basis(self) -> tuple[datetime, Evaluator, Hold | None]:
        store, now = self._context.store, clock.now()
        evaluator = find_evaluator(await read_leaders(store), await read_controller_reports(store), now)
        return now, evaluator, (await read_fleet_state(store)).hold

    async def _present_state(self) -> dict[str, object]:
        """The parts that are read for each request."""
        now, evaluator, hold = await self._basis()
        return {
            "hold": hold if hold is not None and hold.active(now) else None,
            "evaluation": evaluator.silence,
            "discovery": _discovery(await read_controller_reports(self._context.store), evaluator),
        }

    async def _read_parts(self) -> PlanParts:
        now = clock.now()
        inputs = await read_scheduling_inputs(self._context, now)
        # With lablets to be placed all workers are read for them. That is most of the work, and done once.
        workers = inputs.workers if inputs.pending else await self._read_automated(inputs)
        pauses, pauses_total = await self._pauses(workers, inputs, now)
        licenses = _license_operations(workers)
        changes = await plan_schedule_changes(self._context.store, inputs.schedules, now)
        bookings = await plan_booking_boundaries(self._context.store, now)
        steps = await plan_booking_steps(self._context, now)
        plan = FleetPlan(
            items=(),
            schedule_changes=tuple(changes[:MAX_LISTED]),
            schedule_changes_total=len(changes),
            schedule_boundaries=plan_boundaries(inputs.schedules, now),
            booking_boundaries=tuple(bookings[:MAX_LISTED]),
            booking_boundaries_total=len(bookings),
            booking_steps=tuple(steps[:MAX_LISTED]),
            booking_steps_total=len(steps),
            lablets=await self._lablets(inputs, now),
            pauses=tuple(pauses),
            pauses_total=pauses_total,
            license_operations=tuple(licenses[:MAX_LISTED]),
            license_operations_total=len(licenses),
        )
        return PlanParts(plan, changes, steps)

    async def _read_automated(self, inputs: SchedulingInputs) -> list[Worker]:
        """The workers that may be paused, and those with a license operation to come."""
        store, found = self._context.store, dict[str, Worker]()
        if idle_policy_action(inputs.settings) is not None:
            for worker in await read_records(store, WORKERS, Worker, "worker", inputs.skipped, _IN_SERVICE):
                found[worker.id] = worker
        async for stored in find_all(store, WORKERS, _PRESENT):
            if _PENDING_LICENSE in stored.body and stored.id not in found:
                found.update({each.id: each for each in decode_records([stored], Worker, "worker", inputs.skipped)})
        return list(found.values())

    async def _lablets(self, inputs: SchedulingInputs, now: datetime) -> LabletPlan:
        plan = await run_planner(self._context, inputs, now)
        outcomes = inputs.outcomes(self._context, plan)
        names = {worker.id: worker.name for worker in inputs.workers}
        blocked = "; ".join(block.reason for block in inputs.blocks)
        return describe_scheduling(plan, outcomes, names, blocked)

    async def _pauses(
        self, workers: Sequence[Worker], inputs: SchedulingInputs, now: datetime
    ) -> tuple[list[PlannedPause], int]:
        """The next pauses or drains, earliest first. MIN_WORKERS bounds how many there can be."""
        settings = inputs.settings
        action = idle_policy_action(settings)
        if action is None:
            return [], 0
        allowed = max(0, await count_running_workers(self._context.store) - settings.scaling.min_workers)
        due: list[tuple[datetime, str, str]] = []
        for number, worker in enumerate(workers, start=1):
            in_service = worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING
            claims = NO_OTHER_CLAIMS
            if inputs.schedules:
                claims = OtherClaims(schedule=schedule_claim(worker, inputs.schedules, now))
            if in_service and (at := next_idle_action(worker, settings, now, claims)) is not None:
                due.append((at, worker.id, worker.name))
            if number % _WORKERS_PER_TURN == 0:
                await asyncio.sleep(0)  # others are served meanwhile
        first = heapq.nsmallest(min(MAX_LISTED, allowed), due)
        drain = action is IdleAction.DRAIN
        pauses = [PlannedPause(worker_id=id_, name=name, at=at, drain=drain) for at, id_, name in first]
        return pauses, min(allowed, len(due))


def _license_operations(workers: Sequence[Worker]) -> list[PlannedLicenseOperation]:
    return [
        PlannedLicenseOperation(
            worker_id=worker.id,
            name=worker.name,
            operation=pending.operation,
            requested_at=pending.requested_at,
            requested_by=pending.requested_by,
        )
        for worker in sorted(workers, key=lambda each: each.id)
        if (pending := worker.pending_license_operation) is not None
    ]


def _discovery(reports: Mapping[str, ReceivedControllerReport], evaluator: Evaluator) -> DiscoveryPlan | None:
    report = reports.get(WORKER_CONTROLLER)
    return None if report is None or evaluator.silence else report.report.discovery
