"""What a plan says, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.model.lablet.ports import DEFAULT_PORTS, PortRange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.model.lablet.record import Lablet, Rejection


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What the scheduler is told once."""

    ports: PortRange = DEFAULT_PORTS
    lead_time: float = 900.0
    """Seconds before its start at which a worker is looked for."""

    scale_up_cooldown: float = 30.0
    """Seconds between two rounds of requests for more workers."""


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """A lablet that fits on a ready worker."""

    lablet: Lablet
    worker_id: str
    score: float
    reason: str
    rejections: Sequence[Rejection]
    rejected: int


@dataclass(frozen=True, slots=True)
class WaitingLablet:
    """A lablet that has to wait, for what and why nobody was chosen."""

    lablet: Lablet
    reason: str
    rejections: Sequence[Rejection] = ()
    rejected: int = 0
    worker_id: str | None = None
    """The worker on its way that will have room for it."""


@dataclass(frozen=True, slots=True)
class UnplaceableLablet:
    """A lablet that no worker will ever have: its time has passed, or no machine is large enough."""

    lablet: Lablet
    reason: str


@dataclass(slots=True)
class CapacityNeed:
    """One more worker, for the lablet that named it and those that will fit beside it."""

    key: str
    template: str
    aws_region: str | None
    reason: str
    lablets: list[WaitingLablet] = field(default_factory=list)

    @property
    def licensed(self) -> bool:
        """Whether a worker without a licence would be of no use to the lablet that named it."""
        return bool(self.lablets) and self.lablets[0].lablet.requirements.license


@dataclass(slots=True)
class SchedulingPlan:
    """What to do with all that wait."""

    placed: list[PlannedPlacement] = field(default_factory=list)
    waiting: list[WaitingLablet] = field(default_factory=list)
    needs: list[CapacityNeed] = field(default_factory=list)
    expired: list[UnplaceableLablet] = field(default_factory=list)
    hopeless: list[UnplaceableLablet] = field(default_factory=list)
    next_look: float | None = None
    """Seconds until a moment that changes something by itself: a start that comes near, an end."""

    def wake_at(self, moment: datetime | None, now: datetime) -> None:
        """Look again at that moment, if not before."""
        if moment is not None:
            seconds = (moment - now).total_seconds()
            self.next_look = seconds if self.next_look is None else min(seconds, self.next_look)
