"""The metrics of the lablet controller, for /admin/stats and for Prometheus under the same names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.controllers.common.status_report import leadership_and_queue_stats
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from lcm.controllers.lablet.controller import LabletReconciler
    from lcm.model.lablet.status import LabletStatus as Status


METRIC_PREFIX: Final = "lcm_lablet_controller"


@dataclass(slots=True)
class LabletCounters:
    """Counters since the start of the process."""

    labs_imported_count: int = 0
    labs_deleted_count: int = 0
    lablets_running_count: int = 0
    lablets_terminated_count: int = 0
    lablets_expired_count: int = 0
    lablets_failed_count: int = 0
    lablets_rescheduled_count: int = 0
    sweeps_count: int = 0
    strays_removed_count: int = 0

    def record_transition(self, before: Status, after: Status) -> None:
        """Count a change of status."""
        if after is before:
            return
        match after:
            case LabletStatus.RUNNING:
                self.lablets_running_count += 1
            case LabletStatus.TERMINATED:
                self.lablets_terminated_count += 1
            case LabletStatus.EXPIRED:
                self.lablets_expired_count += 1
            case LabletStatus.FAILED:
                self.lablets_failed_count += 1
            case LabletStatus.PENDING_SCHEDULING:
                self.lablets_rescheduled_count += 1

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


def lablet_stats(reconciler: LabletReconciler) -> dict[str, Any]:
    """The content of /admin/stats: counters, leadership, queue, lablets by status and stray labs."""
    return {
        **reconciler.stats(),
        **leadership_and_queue_stats(reconciler),
        "lablets": {status.value: count for status, count in reconciler.by_status().items()},
        "strays": dict(reconciler.strays.counts()),
    }


class LabletGauges(Collector):
    """Gauges: lablets by status, stuck lablets, and stray labs. A standby exports none."""

    def __init__(self, reconciler: LabletReconciler, registry: CollectorRegistry = REGISTRY) -> None:
        self._reconciler = reconciler
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        lablets, stuck, strays = _metric_families()
        if self._reconciler.is_leader:
            for status, count in self._reconciler.by_status().items():
                lablets.add_metric([status.value], count)
            stuck.add_metric([], self._reconciler.stuck())
            for kind, count in self._reconciler.strays.counts().items():
                strays.add_metric([kind], count)
        yield from (lablets, stuck, strays)

    def describe(self) -> Iterator[Metric]:
        """The names only, so that registration does not need to collect."""
        yield from _metric_families()


def _metric_families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("lcm_lablets_assigned", "Lablets that have a worker", labels=["status"]),
        GaugeMetricFamily("lcm_lablets_stuck", "Lablets whose lab was not removed in time"),
        GaugeMetricFamily("lcm_stray_labs", "Labs on workers that belong to no lablet", labels=["kind"]),
    )
