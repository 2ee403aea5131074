"""Plain counters of a controller, for Prometheus under their own names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import UntypedMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from lcm.core.controller.watch import WatchTriggeredHostedService


class CounterCollector(Collector):
    """Reads the counters when somebody scrapes. Untyped: a counter's name would have to end in `_sum_counts`."""

    def __init__(
        self, prefix: str, read: Callable[[], Mapping[str, int]], registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._prefix = prefix
        self._read = read
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        for name, value in self._read().items():
            text = name.removesuffix("_count").replace("_", " ").capitalize()
            yield UntypedMetricFamily(f"{self._prefix}_{name}", text, value=value)


def leadership_and_queue_stats(controller: WatchTriggeredHostedService[Any]) -> dict[str, Any]:
    """Who leads, and how much waits."""
    queue = controller.queue
    return {
        "leadership": {
            "is_leader": controller.is_leader,
            "term": controller.term,
            "instance_id": controller.election.instance_id,
            "leader": controller.known_leader,
            "watching": controller.watching,
        },
        "queue": {"depth": len(queue), "busy": queue.busy, "delayed": queue.delayed},
    }
