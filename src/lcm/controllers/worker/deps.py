"""What a worker controller is given: whom it works with, and what it is told once, at the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.controllers.worker.observe.launch_resolver import ImageFilter
from lcm.controllers.worker.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.client.client import Client
    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI
    from lcm.cloud.types import RegionLaunchSettings
    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials
    from lcm.model.worker.record import Worker


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the controller works with: the control plane, the cloud and the CML servers."""

    control: Client
    cloud: CloudProviderSPI
    metrics: MetricsSPI
    cml: CMLSystemSPI
    sites: Mapping[str, RegionLaunchSettings]


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What it is told once, at the start."""

    account: Credentials
    policy: Policy = field(default_factory=Policy)
    images: ImageFilter = field(default_factory=ImageFilter)
    metrics_interval: float = 60.0
    private_addresses: bool = False
    dedicated_account: bool = False

    def address_of(self, worker: Worker) -> str | None:
        """Under which address a worker's CML is dialled."""
        if self.private_addresses:
            return worker.private_ip
        return worker.public_ip or worker.private_ip
