"""What a worker controller is created with: its dependencies, its configuration and the policy of its decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.controllers.worker.observe.launch_resolver import ImageFilter
from lcm.settings import WorkerControllerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lcm.client.client import Client
    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI
    from lcm.cloud.types import RegionLaunchSettings
    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.record import Hold, Worker


_DEFAULTS = WorkerControllerSettings()  # defaults are declared once, with the settings


@dataclass(frozen=True, slots=True)
class Policy:
    """Timeouts in seconds, fleet settings and the fleet hold. `settings` is None until they were read once."""

    provisioning_timeout: float = _DEFAULTS.provisioning_timeout
    starting_timeout: float = _DEFAULTS.starting_timeout
    stuck_after: float = _DEFAULTS.stuck_after
    cml_ready_timeout: float = _DEFAULTS.cml_ready_timeout
    capacity_wait_limit: float = _DEFAULTS.capacity_wait_limit
    drain_timeout: float = _DEFAULTS.drain_timeout
    license_release_timeout: float = _DEFAULTS.license_release_timeout
    telemetry_missing_after: float = _DEFAULTS.telemetry_missing_after
    check_interval: float = 30.0
    """How often a worker that is not at rest is checked."""

    settings: FleetSettings | None = None
    fleet_hold: Hold | None = None
    schedules: tuple[Schedule, ...] = ()

    def hold_on(self, worker: Worker, now: datetime) -> Hold | None:
        """The hold that applies to this worker: the fleet's, or its own."""
        for hold in (self.fleet_hold, worker.hold):
            if hold is not None and hold.active(now):
                return hold
        return None


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The systems that the controller calls: the control plane, the cloud and the CML servers."""

    control: Client
    cloud: CloudProviderSPI
    metrics: MetricsSPI
    cml: CMLSystemSPI
    sites: Mapping[str, RegionLaunchSettings]


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings that are read once, when the process starts."""

    account: Credentials
    policy: Policy = field(default_factory=Policy)
    images: ImageFilter = field(default_factory=ImageFilter)
    metrics_interval: float = _DEFAULTS.metrics_collect_interval
    private_addresses: bool = False
    dedicated_account: bool = False

    def address_of(self, worker: Worker) -> str | None:
        """The address at which a worker's CML is called."""
        if self.private_addresses:
            return worker.private_ip
        return worker.public_ip or worker.private_ip
