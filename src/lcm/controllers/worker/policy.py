"""By what rules workers are brought to what is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Hold, Worker


@dataclass(frozen=True, slots=True)
class Policy:
    """Deadlines in seconds, the settings of the fleet, and what stands still. No settings: they were never read."""

    provisioning_timeout: float = 900.0
    starting_timeout: float = 900.0
    stuck_after: float = 900.0
    cml_ready_timeout: float = 1800.0
    drain_timeout: float = 600.0
    license_release_timeout: float = 120.0
    settings: FleetSettings | None = None
    fleet_hold: Hold | None = None

    def hold_on(self, worker: Worker, now: datetime) -> Hold | None:
        """The hold that keeps this worker as it is: the fleet's, or its own."""
        for hold in (self.fleet_hold, worker.hold):
            if hold is not None and hold.active(now):
                return hold
        return None
