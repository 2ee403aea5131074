"""The state of the fleet as a whole."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.base import CARRIED, LenientModel, Record, UtcDatetime
from lcm.model.fleet.losses import RegionLosses
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.cost import MICRO, HourlyCost
from lcm.model.worker.record import Hold
from lcm.model.worker.status import WorkerStatus

InstallationId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{2,62}$", examples=["lcm-3f9k2m1xq0ab"])]
"""The value of the tag lcm:installation: 3 to 63 lower-case letters, digits and dashes, not starting with a dash."""


class Installation(Record):
    """The id of this installation. Only instances tagged with it are adopted, reported as leaked, or terminated."""

    installation_id: InstallationId


class FleetCapacity(LenientModel):
    """The total capacity of all running workers."""

    cpu_cores: int = 0
    memory_gb: float = 0
    storage_gb: float = 0
    max_nodes: int = 0


class Breaker(Record):
    """The breaker of a region. While it is open, no worker there is marked as lost."""

    region: str
    open: bool
    reason: str
    since: UtcDatetime
    affected: int = 0
    only_a_person_closes: bool = False


class FleetState(Record):
    """State that applies to the whole fleet.

    It changes with every worker that leaves service. So a concurrent scale-down, which counted
    the remaining workers before, gets a version conflict instead of stopping one too many.
    """

    hold: Hold | None = None
    breakers: dict[str, Breaker] = Field(default_factory=dict)
    losses: dict[str, RegionLosses] = Field(
        default_factory=dict, description="What the breaker of each region remembers of lost workers."
    )
    last_scale_down_at: UtcDatetime | None = None
    departures: int = 0
    schedules_version: str = Field(
        default="", description="Differs after each change of a schedule; empty if there never was one."
    )

    def accepted_losses(self, region: str) -> frozenset[str]:
        """The workers of a region whose loss does not count again."""
        losses = self.losses.get(region)
        return frozenset() if losses is None else frozenset(losses.accepted)


FIRST_TERM = 1
"""Terms are revisions of etcd and start here. A reset stores a lower one, so that every election is accepted."""


class LeadershipTerm(Record):
    """The latest leadership term that a controller has announced."""

    controller: str
    term: int
    announced_at: UtcDatetime
    startup_sweep_done: bool = False


class LeadershipReset(LenientModel):
    """The controller whose latest term was reset."""

    controller: str


class FleetSummary(LenientModel):
    """Counts, capacity and cost of the fleet, holds and open breakers, and the current leaders."""

    workers: int
    ready: int
    problems: int = Field(default=0, description="Number of workers with a problem.")
    by_status: dict[Annotated[WorkerStatus, CARRIED], int] = Field(default_factory=dict)
    by_region: dict[str, dict[Annotated[WorkerStatus, CARRIED], int]] = Field(default_factory=dict)
    lablets_by_status: dict[Annotated[LabletStatus, CARRIED], int] = Field(default_factory=dict)
    capacity: FleetCapacity = FleetCapacity()
    cost_per_hour_usd: float = Field(
        default=0, description="What all instances with a known price cost an hour now, disks included."
    )
    workers_without_price: int = Field(
        default=0, description="Workers that cost money at an unknown price. They are not in `cost_per_hour_usd`."
    )
    leaked_instances: int = Field(
        default=0,
        description="Instances of this installation that belong to no worker, as controllers last reported. They cost "
        "money at an unknown price and are not in `cost_per_hour_usd`.",
    )
    saved_per_hour_usd: float = 0
    saved_total_usd: float = 0
    hold: Hold | None = None
    held_workers: int = 0
    breakers: tuple[Breaker, ...] = ()
    leaders: tuple[LeadershipTerm, ...] = ()

    @property
    def cost(self) -> HourlyCost:
        """The cost as `fleet_cost` of all workers and leaked instances returns it."""
        return HourlyCost(round(self.cost_per_hour_usd * MICRO), self.workers_without_price + self.leaked_instances)
