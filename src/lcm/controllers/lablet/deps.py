"""What the lablet controller depends on: its clients, its configuration and the policy for decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.settings import LabletControllerSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.client.client import Client
    from lcm.cml.client.session import CMLSession
    from lcm.cml.types import Credentials
    from lcm.model.worker.record import Hold, Worker


_DEFAULTS = LabletControllerSettings()  # defaults are declared once, with the settings


@dataclass(frozen=True, slots=True)
class LabletPolicy:
    """Timeouts in seconds, the fleet's hold, and whether the worker controller has verified its workers."""

    start_timeout: float = _DEFAULTS.lablet_start_timeout
    stop_timeout: float = _DEFAULTS.lablet_stop_timeout
    worker_timeout: float = _DEFAULTS.lablet_worker_timeout
    fleet_hold: Hold | None = None
    workers_verified: bool = True

    def hold_on(self, worker: Worker | None, now: datetime) -> Hold | None:
        """The hold that applies to a worker's labs: the fleet's or the worker's own."""
        for hold in (self.fleet_hold, None if worker is None else worker.hold):
            if hold is not None and hold.active(now):
                return hold
        return None


@dataclass(frozen=True, slots=True)
class LabletDependencies:
    """The clients of the controller: the control plane and the session with the CML servers."""

    control: Client
    session: CMLSession
    forget: Callable[[str], None]  # drops the sessions with an address, because another instance now uses it


@dataclass(frozen=True, slots=True)
class LabletControllerConfig:
    """Configuration that is fixed at startup."""

    account: Credentials
    policy: LabletPolicy = field(default_factory=LabletPolicy)
    sweep_interval: float = _DEFAULTS.lablet_sweep_interval
    private_addresses: bool = False

    def address_of(self, worker: Worker) -> str | None:
        """The address at which a worker's CML is reached."""
        if self.private_addresses:
            return worker.private_ip
        return worker.public_ip or worker.private_ip
