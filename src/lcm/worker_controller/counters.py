"""What a worker controller counts: for people at /admin/stats, for Prometheus under the same names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

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


class CounterExport(Collector):
    """Reads the counters when somebody scrapes. Untyped: a counter's name would have to end in `_total`."""

    def __init__(self, read: Callable[[], Mapping[str, int]], registry: CollectorRegistry = REGISTRY) -> None:
        self._read = read
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        for name, value in self._read().items():
            text = name.removesuffix("_count").replace("_", " ").capitalize()
            yield UntypedMetricFamily(f"{PREFIX}_{name}", text, value=value)
