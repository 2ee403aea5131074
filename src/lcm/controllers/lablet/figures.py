"""What a lablet controller knows of itself: for people at /admin/stats, for Prometheus read off the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.controllers.common.figures import machinery_figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from lcm.controllers.lablet.controller import LabletReconciler


def figures_of(reconciler: LabletReconciler) -> dict[str, Any]:
    """The counters, and beside them how it stands with leading, queue, lablets and labs that no lablet has."""
    return {
        **reconciler.stats(),
        **machinery_figures(reconciler),
        "lablets": {status.value: count for status, count in reconciler.by_status().items()},
        "strays": dict(reconciler.strays.counts()),
    }


class Gauges(Collector):
    """Lablets by status, those that are stuck, and labs that no lablet has; a standby shows none."""

    def __init__(self, reconciler: LabletReconciler, registry: CollectorRegistry = REGISTRY) -> None:
        self._reconciler = reconciler
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        lablets, stuck, strays = _families()
        if self._reconciler.is_leader:
            for status, count in self._reconciler.by_status().items():
                lablets.add_metric([status.value], count)
            stuck.add_metric([], self._reconciler.stuck())
            for kind, count in self._reconciler.strays.counts().items():
                strays.add_metric([kind], count)
        yield from (lablets, stuck, strays)

    def describe(self) -> Iterator[Metric]:
        """The names alone, so that registering does not have to collect."""
        yield from _families()


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("lcm_lablets_assigned", "Lablets that have a worker", labels=["status"]),
        GaugeMetricFamily("lcm_lablets_stuck", "Lablets whose lab is not removed in time"),
        GaugeMetricFamily("lcm_stray_labs", "Labs on workers that no lablet has", labels=["kind"]),
    )
