"""What the services of the control plane share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.settings import read_fleet_settings
from lcm.control_plane.read_gate import ReadGate, small_read_gate
from lcm.model.fleet.settings import FleetSettings
from lcm.model.lablet.lifetime import DEFAULT_MAX_LIFETIME
from lcm.model.lablet.scheduling.planner import PlanningConfig
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import timedelta

    from pydantic import SecretStr

    from lcm.control_plane.records.unit_of_work import UnitOfWork
    from lcm.control_plane.secrets.encryption import SecretBox
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.ports import PortRange


@dataclass(frozen=True, slots=True)
class ControlPlaneContext:
    """Store, unit of work and startup configuration.

    `regions` are those that workers may be in; the first is the default. `planning` is how the scheduler plans, with
    the ports of a worker that lablets may be given. `scale_up_license` is the license token of workers that scale-up
    launches. `max_lablet_lifetime` is how long an extended lablet may run in all. Expensive reads run through `reads`,
    explanations and previews of one worker through `small_reads`.
    """

    store: Store
    unit_of_work: UnitOfWork
    secret_box: SecretBox
    regions: tuple[str, ...]
    base_settings: FleetSettings = field(default_factory=FleetSettings)
    planning: PlanningConfig = field(default_factory=PlanningConfig)
    scale_up_license: SecretStr | None = None
    max_lablet_lifetime: timedelta | None = DEFAULT_MAX_LIFETIME
    reads: ReadGate = field(default_factory=ReadGate)
    small_reads: ReadGate = field(default_factory=small_read_gate)

    @property
    def ports(self) -> PortRange:
        """The ports of a worker that lablets may be given."""
        return self.planning.ports

    async def settings(self) -> FleetSettings:
        """The fleet settings in effect now."""
        return await read_fleet_settings(self.store, self.base_settings)

    def region(self, requested: str | None) -> str:
        """The requested region, or the default. A region that is not configured is rejected."""
        if requested is None:
            return self.regions[0]
        if requested not in self.regions:
            names = ", ".join(self.regions)
            raise ProblemError(
                ProblemCode.INVALID, f"aws_region: {requested} is not configured; configured regions: {names}"
            )
        return requested
