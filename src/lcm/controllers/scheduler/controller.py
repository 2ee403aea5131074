"""What a resource scheduler counts: for people at /admin/stats, for Prometheus under the same names."""

from __future__ import annotations

from dataclasses import asdict, dataclass

PREFIX = "lcm_resource_scheduler"


@dataclass(slots=True)
class Counters:
    """Since the process began; `pending_lablet_count` is of the last round."""

    rounds_count: int = 0
    placed_count: int = 0
    reservation_refused_count: int = 0
    scale_up_accepted_count: int = 0
    scale_up_refused_count: int = 0
    failed_count: int = 0
    expired_count: int = 0
    explained_count: int = 0
    pending_lablet_count: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)
