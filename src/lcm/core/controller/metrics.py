"""Metrics of the controller machinery, under a prefix that the controller chooses.

Several controllers may share a process, a registry and a prefix: the label `controller` tells them apart. Queue and
lease values are read at scrape time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, WeakSet

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from lcm.core.workqueue import WAIT_BUCKETS, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LABEL = "controller"


class ObservedController(Protocol):
    """What is read from a controller at scrape time."""

    name: str
    queue: WorkQueue[str]

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> int: ...


class ControllerMetrics(Collector):
    """The metrics of one prefix in one registry, shared by all controllers that use them."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        self._prefix = prefix
        self._controllers: WeakSet[ObservedController] = WeakSet()
        self.reconciles = Counter(
            f"{prefix}_reconcile_total", "Reconciliations by result", [_LABEL, "result"], registry=registry
        )
        self.duration = Histogram(
            f"{prefix}_reconcile_duration_seconds",
            "Duration of a reconciliation",
            [_LABEL],
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self.reconnects = Counter(
            f"{prefix}_watch_reconnects_total", "Times a watch was lost and opened again", [_LABEL], registry=registry
        )
        self.leader_changes = Counter(
            f"{prefix}_leader_transitions_total", "Times leadership was won or lost", [_LABEL, "to"], registry=registry
        )
        registry.register(self)

    def attach(self, controller: ObservedController) -> None:
        """Export this controller's queue and leadership for as long as it exists."""
        self._controllers.add(controller)

    def collect(self) -> Iterator[Metric]:
        """Read every gauge from the controllers, sorted by name."""
        controllers = sorted(self._controllers, key=lambda controller: controller.name)
        for name, text, read in _GAUGES:
            family = GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=[_LABEL])
            for controller in controllers:
                family.add_metric([controller.name], read(controller))
            yield family
        waits = HistogramMetricFamily(
            f"{self._prefix}_queue_wait_seconds", "How long a key waited for its turn", labels=[_LABEL]
        )
        for controller in controllers:
            waits.add_metric([controller.name], *_cumulative_buckets(controller.queue))
        yield waits
        yield self._lane_depths(controllers)

    def _lane_depths(self, controllers: list[ObservedController]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            f"{self._prefix}_lane_queue_depth", "Keys that wait for their turn now, by lane", labels=[_LABEL, "lane"]
        )
        for controller in controllers:
            for lane, depth in sorted(controller.queue.depth_by_lane().items()):
                if lane:
                    family.add_metric([controller.name, lane], depth)
        return family

    def describe(self) -> Iterator[Metric]:
        """The names only, so that registering does not have to collect."""
        for name, text, _ in _GAUGES:
            yield GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=[_LABEL])
        yield HistogramMetricFamily(f"{self._prefix}_queue_wait_seconds", "", labels=[_LABEL])
        yield GaugeMetricFamily(f"{self._prefix}_lane_queue_depth", "", labels=[_LABEL, "lane"])


_GAUGES: tuple[tuple[str, str, Callable[[ObservedController], float]], ...] = (
    ("active_reconciles", "Reconciliations in progress", lambda controller: controller.queue.busy),
    (
        "resources_pending",
        "Resources awaiting reconciliation, now or by a timer",
        lambda controller: len(controller.queue) + controller.queue.delayed,
    ),
    ("queue_depth", "Keys that wait for their turn now", lambda controller: len(controller.queue)),
    ("leader", "1 while this process can prove that it leads", lambda controller: controller.is_leader),
    ("leader_term", "The term it leads in, 0 when it does not", lambda controller: controller.term),
)

_metrics_by_registry: WeakKeyDictionary[CollectorRegistry, dict[str, ControllerMetrics]] = WeakKeyDictionary()


def controller_metrics(prefix: str, registry: CollectorRegistry = REGISTRY) -> ControllerMetrics:
    """The metrics of a prefix, created on first use."""
    by_prefix = _metrics_by_registry.setdefault(registry, {})
    if prefix not in by_prefix:
        by_prefix[prefix] = ControllerMetrics(prefix, registry)
    return by_prefix[prefix]


def _cumulative_buckets(queue: WorkQueue[str]) -> tuple[list[tuple[str, float]], float]:
    buckets: list[tuple[str, float]] = []
    running = 0
    for bound, count in zip((*map(str, WAIT_BUCKETS), "+Inf"), queue.wait_counts, strict=True):
        running += count
        buckets.append((bound, float(running)))
    return buckets, queue.wait_total
