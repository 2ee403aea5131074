"""What a worker controller counts: for people at /admin/stats, for Prometheus under the same names."""

from __future__ import annotations

from dataclasses import asdict, dataclass

PREFIX = "lcm_worker_controller"


@dataclass(slots=True)
class Counters:
    """Since the process began; `running_worker_count` is of the last list."""

    provisioned_count: int = 0
    started_count: int = 0
    stopped_count: int = 0
    terminated_count: int = 0
    metrics_collected_count: int = 0
    idle_detection_count: int = 0
    auto_pause_count: int = 0
    license_registered_count: int = 0
    license_deregistered_count: int = 0
    scale_down_drain_count: int = 0
    running_worker_count: int = 0
    orphans_terminated_count: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)
