"""The fleet as a whole: summary, hold, breakers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.fleet.breaker import apply_report, close_breakers
from lcm.control_plane.fleet.state_reads import read_controller_reports, read_fleet_state, read_leaders, read_leaks
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.lifecycle import make_hold
from lcm.core import clock
from lcm.core.singleflight import FreshSingleflight
from lcm.model.base import read_word
from lcm.model.fleet.state import (
    FleetCapacity,
    FleetState,
    FleetSummary,
)
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.cost import HourlyCost
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Leader, Transaction
    from lcm.control_plane.store.port import FieldValue
    from lcm.model.worker.requests import BreakerReport, HoldRequest

_SUMMED_FIELDS = (
    "cost_per_hour_usd",
    "saved_usd",
    "stopped_since",
    "cpu_cores",
    "memory_gb",
    "storage_gb",
    "max_nodes",
    "cost_micro_usd",
    "price_unknown",
)


class FleetService:
    """Reads of the whole fleet, and switches that apply to all of it."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._summaries: FreshSingleflight[FleetSummary] = FreshSingleflight()

    async def summary(self) -> FleetSummary:
        """Counts, capacity and cost, from sums of the store. TERMINATED workers are included in the counts only."""
        # Every open page requests it after every change, so many requests come at once: one read serves them all.
        return await self._summaries.run("summary", self._read_summary)

    async def _read_summary(self) -> FleetSummary:
        store = self._context.store
        rows = await store.count_by(WORKERS, ["aws_region", "status", "ready", "held"], sums=_SUMMED_FIELDS)
        state = await read_fleet_state(store)
        with_problems = await store.count_by(
            WORKERS, ["urgency"], Where(below={"urgency": int(LAST_WORKER_PROBLEM) + 1})
        )
        _, leaked_instances = await read_leaks(store, await read_controller_reports(store))
        totals = _FleetTotals()
        for values, count, sums in rows:
            totals.add(values, count, sums)
        return FleetSummary(
            workers=totals.workers,
            ready=totals.ready,
            problems=sum(count for _, count, _ in with_problems),
            by_status=totals.by_status,
            by_region=totals.by_region,
            lablets_by_status=await self._lablets_by_status(),
            capacity=FleetCapacity(
                cpu_cores=int(totals.capacity[0]),
                memory_gb=totals.capacity[1],
                storage_gb=totals.capacity[2],
                max_nodes=int(totals.capacity[3]),
            ),
            cost_per_hour_usd=totals.cost.usd,
            workers_without_price=totals.cost.unknown,
            leaked_instances=leaked_instances,
            saved_per_hour_usd=round(totals.saved, 4),
            saved_total_usd=round(totals.total_saved(clock.now()), 2),
            hold=state.hold if state.hold is not None and state.hold.active(clock.now()) else None,
            held_workers=totals.held,
            breakers=tuple(breaker for _, breaker in sorted(state.breakers.items()) if breaker.open),
            leaders=tuple(await read_leaders(store)),
        )

    async def state(self) -> FleetState:
        """The fleet state: its hold, the open breakers, the last scale-down."""
        return await read_fleet_state(self._context.store)

    async def hold(self, caller: Caller, request: HoldRequest, key: IdempotencyKey | None = None) -> FleetState:
        """Put the fleet on hold: controllers stop changing workers."""

        async def attempt(tx: Transaction) -> FleetState:
            state = await tx.fleet()
            held = make_hold(request, caller.name, tx.now)
            if state.hold is not None and (state.hold.reason, state.hold.until) == (held.reason, held.until):
                return state
            return _save_state(tx, state.model_copy(update={"hold": held}), "fleet_held", request.reason)

        return await self._run(caller, key, attempt)

    async def release(self, caller: Caller, key: IdempotencyKey | None = None) -> FleetState:
        """Release the hold of the fleet."""

        async def attempt(tx: Transaction) -> FleetState:
            state = await tx.fleet()
            if state.hold is None:
                return state
            return _save_state(tx, state.model_copy(update={"hold": None}), "fleet_released")

        return await self._run(caller, key, attempt)

    async def reset_breakers(
        self, caller: Caller, region: str | None = None, key: IdempotencyKey | None = None
    ) -> FleetState:
        """Close all breakers, or the one of a region, on behalf of a person."""

        async def attempt(tx: Transaction) -> FleetState:
            state = await tx.fleet()
            regions = [name for name in state.breakers if region in (None, name)]
            if not regions:
                return state
            return close_breakers(tx, state, regions, "breaker_reset", region or "all regions")

        return await self._run(caller, key, attempt)

    async def _run(
        self, caller: Caller, key: IdempotencyKey | None, attempt: Callable[[Transaction], Awaitable[FleetState]]
    ) -> FleetState:
        body = await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)
        return FleetState.model_validate_json(body)

    async def report_breaker(self, leader: Leader, report: BreakerReport) -> FleetState:
        """Open or close a breaker on behalf of a controller. Some breakers only a person may close."""

        async def attempt(tx: Transaction) -> FleetState:
            return apply_report(tx, await tx.fleet(), report)

        return await self._context.unit_of_work.run_fenced(leader, attempt)

    async def _lablets_by_status(self) -> dict[LabletStatus, int]:
        rows = await self._context.store.count_by(LABLETS, ["status"])
        return {read_word(LabletStatus, status): count for (status,), count, _ in rows}


def _save_state(tx: Transaction, state: FleetState, action: str, reason: str = "") -> FleetState:
    tx.save_fleet(state)
    tx.audit(action, "fleet", reason)
    return state


class _FleetTotals:
    """Adds up the groups of workers."""

    def __init__(self) -> None:
        self.workers = self.ready = self.held = 0
        self.cost = HourlyCost()
        self.saved = self._saved_before = self._stopped_since = 0.0
        self.capacity = [0.0, 0.0, 0.0, 0.0]
        self.by_status: dict[WorkerStatus, int] = {}
        self.by_region: dict[str, dict[WorkerStatus, int]] = {}

    def add(self, values: tuple[FieldValue, ...], count: int, sums: tuple[float, ...]) -> None:
        region, status, ready, held = (
            str(values[0]),
            read_word(WorkerStatus, values[1]),
            bool(values[2]),
            bool(values[3]),
        )
        self.by_status[status] = self.by_status.get(status, 0) + count
        in_region = self.by_region.setdefault(region, {})
        in_region[status] = in_region.get(status, 0) + count
        self._saved_before += sums[1]
        self._stopped_since += sums[2]
        if status is WorkerStatus.TERMINATED:
            return
        self.workers += count
        self.held += count if held else 0
        self.cost = HourlyCost(self.cost.micro_usd + round(sums[7]), self.cost.unknown + round(sums[8]))
        if status is WorkerStatus.STOPPED:
            self.saved += sums[0]
        if ready:
            self.ready += count
            self.capacity = [one + more for one, more in zip(self.capacity, sums[3:7], strict=True)]

    def total_saved(self, now: datetime) -> float:
        """The savings of all stops until now, finished and current."""
        return self._saved_before + self.saved * now.timestamp() / 3600 - self._stopped_since
