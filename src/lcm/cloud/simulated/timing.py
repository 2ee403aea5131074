"""How long things take in the simulated cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Timing:
    """Ranges in seconds, from which each event draws its own."""

    pending: Span = (8.0, 30.0)
    stopping: Span = (15.0, 60.0)
    shutting_down: Span = (10.0, 45.0)
    metal_factor: float = 8.0
    visible_after: Span = (0.0, 3.0)
    terminated_shown: float = 3600.0
    token_kept: float = 86400.0
    latency: Span = (0.02, 0.2)
    page_latency: Span = (0.05, 0.4)
    read_timeout: float = 30.0

    def of(self, span: Span, instance_type: str, chance: Random) -> float:
        """One duration for a machine of this type: bare metal checks its hardware and takes its time."""
        factor = self.metal_factor if instance_type.partition(".")[2].startswith("metal") else 1.0
        return chance.uniform(*span) * factor
