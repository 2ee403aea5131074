"""The breaker of a region in the control plane: it counts losses in the commit that writes them, opens and closes.

Its memory is part of the fleet state, so that it outlives controllers and control planes alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import FLEET, WORKERS
from lcm.control_plane.store.port import Where
from lcm.model.fleet.losses import LOSS_WINDOW, RegionLosses, loss_limit
from lcm.model.fleet.state import Breaker, FleetState
from lcm.model.problems import ProblemCode
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import BreakerReport, WorkerStatusUpdate

_NOT_TERMINATED = [status.value for status in WorkerStatus if status is not WorkerStatus.TERMINATED]


def is_loss(worker: Worker, write: WorkerStatusUpdate) -> bool:
    """Whether this write gives up an instance although TERMINATED is not desired."""
    if worker.instance_id is None or worker.desired_status is DesiredStatus.TERMINATED:
        return False
    given_up = "instance_id" in write.model_fields_set and write.instance_id != worker.instance_id
    return given_up or write.status is WorkerStatus.TERMINATED


async def count_loss(tx: Transaction, worker: Worker, write: WorkerStatusUpdate) -> ProblemError | None:
    """Count the loss of a worker in the commit that writes it.

    Returns None if it may be written. Otherwise it must not be: the commit then only opens the breaker.
    """
    state, region = await tx.fleet(), worker.aws_region
    losses = state.losses.get(region, RegionLosses()).recent(tx.earliest_now)
    breaker = state.breakers.get(region)
    if breaker is not None and breaker.open:
        _save_losses(tx, state, region, losses.with_withheld([worker.id]))
        return ProblemError(ProblemCode.BREAKER_OPEN, f"the breaker is open: {breaker.reason}")
    if worker.id in losses.accepted:
        _save_losses(tx, state, region, losses.without(worker.id))
        return None
    after = losses.with_loss(worker.id, tx.now, ended=write.status is WorkerStatus.TERMINATED)
    workers = await _count_live(tx, region) + losses.ended_besides(worker.id)
    if len(after.counted) <= loss_limit(workers):
        _save_losses(tx, state, region, after)
        return None
    minutes = int(LOSS_WINDOW.total_seconds() // 60)
    reason = f"{region}: {len(after.counted)} of {workers} workers lost within {minutes} minutes"
    closes = (
        "only a person can close the breaker"
        if write.instance_absent
        else "a second scan that agrees, or a person, closes it"
    )
    state = state.model_copy(update={"losses": {**state.losses, region: losses.with_withheld([worker.id])}})
    open_breaker(tx, state, region, f"{reason}; {closes}", only_a_person_closes=write.instance_absent)
    return ProblemError(ProblemCode.BREAKER_OPEN, f"the breaker opens: {reason}; {closes}")


async def forget_loss(tx: Transaction, worker: Worker) -> None:
    """A worker has ended, or its instance was seen again: nothing about it is withheld or accepted any more."""
    # Looked at first without depending on it: nearly always there is nothing to forget.
    stored = await tx.store.get(FLEET, FLEET.name)
    region = worker.aws_region
    if stored is None or not _concerns(FleetState.model_validate_json(stored.body), worker):
        return
    state = await tx.fleet()
    if _concerns(state, worker):
        _save_losses(tx, state, region, state.losses[region].without(worker.id))


def apply_report(tx: Transaction, state: FleetState, report: BreakerReport) -> FleetState:
    """Open or close a breaker as a controller reports. Some breakers only a person may close."""
    current = state.breakers.get(report.region)
    if report.open:
        losses = state.losses.get(report.region, RegionLosses()).recent(tx.earliest_now).with_withheld(report.affected)
        state = state.model_copy(update={"losses": {**state.losses, report.region: losses}})
        return open_breaker(tx, state, report.region, report.reason, only_a_person_closes=report.only_a_person_closes)
    if current is None or current.only_a_person_closes:
        return state
    return close_breakers(tx, state, [report.region], "breaker_closed", report.reason)


def open_breaker(
    tx: Transaction, state: FleetState, region: str, reason: str, *, only_a_person_closes: bool
) -> FleetState:
    """Open the breaker of a region for the workers that are withheld, or update it."""
    current = state.breakers.get(region)
    breaker = Breaker(
        region=region,
        open=True,
        reason=reason,
        since=tx.now if current is None else current.since,
        affected=len(state.losses[region].withheld),
        only_a_person_closes=only_a_person_closes or (current is not None and current.only_a_person_closes),
    ).with_unknown_fields_of(current)
    after = state.model_copy(update={"breakers": {**state.breakers, region: breaker}})
    tx.save_fleet(after)
    if breaker != current:
        tx.audit("breaker_opened", "fleet", reason)
    return after


def close_breakers(tx: Transaction, state: FleetState, regions: list[str], action: str, reason: str) -> FleetState:
    """Close the breakers of regions and accept the losses for which they were open."""
    remaining = {name: breaker for name, breaker in state.breakers.items() if name not in regions}
    losses = {
        name: known.closed() if name in regions and name in state.breakers else known
        for name, known in state.losses.items()
    }
    after = state.model_copy(update={"breakers": remaining, "losses": losses})
    tx.save_fleet(after)
    tx.audit(action, "fleet", reason)
    return after


async def _count_live(tx: Transaction, region: str) -> int:
    where = Where(any_of={"aws_region": [region], "status": [*_NOT_TERMINATED]})
    return sum(count for _, count, _ in await tx.store.count_by(WORKERS, ["status"], where))


def _concerns(state: FleetState, worker: Worker) -> bool:
    losses = state.losses.get(worker.aws_region)
    return losses is not None and worker.id in (*losses.withheld, *losses.accepted)


def _save_losses(tx: Transaction, state: FleetState, region: str, losses: RegionLosses) -> None:
    tx.save_fleet(state.model_copy(update={"losses": {**state.losses, region: losses}}))
