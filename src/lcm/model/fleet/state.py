"""The fleet as a whole."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.base import LenientModel, UtcDatetime
from lcm.model.decision import DecisionReport
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, WorkerStatus

InstallationId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{2,62}$", examples=["lcm-3f9k2m1xq0ab"])]
"""The value of the tag lcm:installation: 3 to 63 lower-case letters, digits and dashes, the first no dash."""


class Installation(LenientModel):
    """Which installation this is. Only instances that carry its id are adopted, called leaked, or ended."""

    installation_id: InstallationId


class FleetCapacity(LenientModel):
    """What running workers offer together."""

    cpu_cores: int = 0
    memory_gb: float = 0
    storage_gb: float = 0
    max_nodes: int = 0


class Breaker(LenientModel):
    """Whether marking workers as lost is suspended in a region, and why."""

    region: str
    open: bool
    reason: str
    since: UtcDatetime
    affected: int = 0
    only_a_person_closes: bool = False


class FleetState(LenientModel):
    """What holds for the fleet as a whole.

    It changes with every worker that leaves service, so that whoever counts
    how many are left and stops one more notices that another was faster.
    """

    hold: Hold | None = None
    breakers: dict[str, Breaker] = Field(default_factory=dict)
    last_scale_down_at: UtcDatetime | None = None
    departures: int = 0


class LeadershipTerm(LenientModel):
    """The newest term that a controller has announced."""

    controller: str
    term: int
    announced_at: UtcDatetime
    startup_sweep_done: bool = False


class FleetSummary(LenientModel):
    """Counts, capacity and cost; what is suspended; who leads."""

    workers: int
    ready: int
    problems: int = Field(default=0, description="Workers that need somebody's attention.")
    by_status: dict[WorkerStatus, int] = Field(default_factory=dict)
    by_region: dict[str, dict[WorkerStatus, int]] = Field(default_factory=dict)
    lablets_by_status: dict[LabletStatus, int] = Field(default_factory=dict)
    capacity: FleetCapacity = FleetCapacity()
    cost_per_hour_usd: float = 0
    saved_per_hour_usd: float = 0
    saved_total_usd: float = 0
    hold: Hold | None = None
    held_workers: int = 0
    breakers: tuple[Breaker, ...] = ()
    leaders: tuple[LeadershipTerm, ...] = ()


class PlannedWorker(LenientModel):
    """What would be done now for one worker, and why."""

    worker_id: str
    name: str
    status: WorkerStatus
    desired_status: DesiredStatus
    decision: DecisionReport | None = None


class FleetPlan(LenientModel):
    """What would be done now."""

    items: tuple[PlannedWorker, ...]
    next_cursor: str | None = None
