"""By what rules lablets are brought up and taken down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Hold, Worker


@dataclass(frozen=True, slots=True)
class Policy:
    """Deadlines in seconds, what stands still, and whether the worker controller has verified its workers."""

    start_timeout: float = 1800.0
    stop_timeout: float = 900.0
    worker_timeout: float = 900.0
    fleet_hold: Hold | None = None
    workers_verified: bool = True

    def hold_on(self, worker: Worker | None, now: datetime) -> Hold | None:
        """The hold that keeps a worker's labs as they are: the fleet's, or its own."""
        for hold in (self.fleet_hold, None if worker is None else worker.hold):
            if hold is not None and hold.active(now):
                return hold
        return None
