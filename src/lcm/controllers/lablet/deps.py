"""By what rules lablets are brought up and taken down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.client.client import Client
    from lcm.cml.client.session import CMLSession
    from lcm.cml.types import Credentials
    from lcm.model.worker.record import Hold, Worker


@dataclass(frozen=True, slots=True)
class LabletPolicy:
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


@dataclass(frozen=True, slots=True)
class LabletDependencies:
    """What the controller works with: the control plane, and the way to the CML servers."""

    control: Client
    session: CMLSession
    forget: Callable[[str], None]  # drops what is known of an address, because another machine has it now


@dataclass(frozen=True, slots=True)
class LabletControllerConfig:
    """What it is told once, at the start."""

    account: Credentials
    policy: LabletPolicy = field(default_factory=LabletPolicy)
    sweep_interval: float = 600.0
    private_addresses: bool = False

    def address_of(self, worker: Worker) -> str | None:
        """Under which address a worker's CML is dialled."""
        if self.private_addresses:
            return worker.private_ip
        return worker.public_ip or worker.private_ip
