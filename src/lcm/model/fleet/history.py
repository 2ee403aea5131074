"""The fleet over time: samples of its counts, capacity, use and cost, taken at fixed times."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field

from lcm.model.base import CARRIED, LenientModel, Record, UtcDatetime
from lcm.model.fleet.state import FleetCapacity, FleetSummary
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

HistoryRange: TypeAlias = Literal["24h", "7d", "30d"]

HISTORY_RANGES: Final[dict[HistoryRange, tuple[timedelta, timedelta]]] = {
    "24h": (timedelta(hours=24), timedelta(minutes=5)),
    "7d": (timedelta(days=7), timedelta(hours=1)),
    "30d": (timedelta(days=30), timedelta(hours=1)),
}
"""How far back each range goes, and the interval of its samples."""


class FleetUse(LenientModel):
    """What lablets use of the ready workers."""

    cpu_cores: float = 0
    memory_gb: float = 0
    nodes: int = 0


class FleetSample(Record):
    """The fleet at one time."""

    at: UtcDatetime
    workers: int = 0
    ready: int = 0
    problems: int = 0
    by_status: dict[Annotated[WorkerStatus, CARRIED], int] = Field(default_factory=dict)
    lablets: int = Field(default=0, description="Lablets that have a worker.")
    cost_per_hour_usd: float = 0
    workers_without_price: int = 0
    leaked_instances: int = 0
    saved_per_hour_usd: float = 0
    saved_total_usd: float = 0
    capacity: FleetCapacity = FleetCapacity()
    used: FleetUse = FleetUse()


class FleetHistory(LenientModel):
    """Samples of the fleet, oldest first. A time without a sample was not recorded: no control plane ran."""

    range: HistoryRange
    since: UtcDatetime
    until: UtcDatetime
    interval_seconds: int
    items: tuple[FleetSample, ...] = ()


def sample_fleet(at: datetime, summary: FleetSummary, used: FleetUse, lablets: int) -> FleetSample:
    """A sample of the fleet as its summary describes it. TERMINATED workers are left out."""
    return FleetSample(
        at=at,
        workers=summary.workers,
        ready=summary.ready,
        problems=summary.problems,
        by_status={status: count for status, count in summary.by_status.items() if status != WorkerStatus.TERMINATED},
        lablets=lablets,
        cost_per_hour_usd=summary.cost_per_hour_usd,
        workers_without_price=summary.workers_without_price,
        leaked_instances=summary.leaked_instances,
        saved_per_hour_usd=summary.saved_per_hour_usd,
        saved_total_usd=summary.saved_total_usd,
        capacity=summary.capacity,
        used=used,
    )
