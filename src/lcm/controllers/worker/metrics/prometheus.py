"""Metrics of the worker controller: its counters, metrics of single workers, and metrics for alerts."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.http.exposition import LargeFamily, Row
from lcm.model.worker.conditions import ConditionType, is_condition_true
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
    from lcm.controllers.worker.discovery.scan import Discovery
    from lcm.controllers.worker.fleet_cache import FleetCache
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker


METRIC_PREFIX = "lcm_worker_controller"


@dataclass(slots=True)
class Counters:
    """Counted since the process started, also shown at /admin/stats; `running_worker_count` is of the last list."""

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
        """The counters by name."""
        return asdict(self)


_WORKER_ID: Final = "worker_id"
_DURATION: Final = "worker_reconciliation_duration_seconds"
# Few buckets: each is a series for each worker.
_BUCKETS: Final = (0.01, 0.1, 1.0, 10.0, 60.0)
_BOUNDS: Final = (*map(str, _BUCKETS), "+Inf")


class _DurationHistogram:
    """The durations of passes over one worker."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_BOUNDS)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.total += seconds


class PerWorkerMetrics(Collector):
    """Duration of passes, drift, instance state and license tier, by worker. A terminated worker's series are removed.

    The values are plain numbers and are formatted at each scrape: a large fleet has thousands of them.
    """

    def __init__(self) -> None:
        self._durations: dict[str, _DurationHistogram] = {}
        self._drifts: dict[str, dict[str, int]] = {}  # by worker: how often each kind was found
        self._states: dict[str, str] = {}
        self._tiers: dict[str, tuple[str, bool]] = {}  # by worker: the tier, and whether it is registered

    def passed(self, worker_id: str, seconds: float) -> None:
        """A pass ended."""
        durations = self._durations.get(worker_id)
        if durations is None:
            durations = self._durations[worker_id] = _DurationHistogram()
        durations.add(seconds)

    def observed(self, worker: Worker, observation: Observation) -> None:
        """A pass has observed the worker."""
        if worker.instance_id is not None and observation.instance.state is not None:
            self._states[worker.id] = observation.instance.state.value
        if observation.cml.product or observation.cml.license is not None:
            registered = observation.cml.license is not None and observation.cml.license.phase.value == "registered"
            self._tiers[worker.id] = (observation.cml.product or "unknown", registered)

    def drifted(self, worker_id: str, kind: str) -> None:
        """Drift was found."""
        counts = self._drifts.setdefault(worker_id, {})
        counts[kind] = counts.get(kind, 0) + 1

    def keep_only(self, worker_ids: Iterable[str]) -> None:
        """Remove the series of all other workers."""
        present = set(worker_ids)
        for series in (self._durations, self._drifts, self._states, self._tiers):
            for worker_id in series.keys() - present:
                del series[worker_id]

    def collect(self) -> Iterator[Metric]:
        """All current series."""
        yield from self.describe()

    def describe(self) -> tuple[Metric, ...]:
        """The families. Registration reads their names, and no series."""
        return (
            LargeFamily(
                _DURATION,
                "How long a pass over a worker took",
                "histogram",
                (_WORKER_ID, "le"),
                self._duration_rows,
            ),
            LargeFamily(
                "worker_drift_detected",
                "How often the state of an instance differed from its worker's status",
                "counter",
                (_WORKER_ID, "drift_type"),
                self._drift_rows,
            ),
            LargeFamily(
                "worker_ec2_state",
                "1 for the current state of the instance",
                "gauge",
                (_WORKER_ID, "state"),
                lambda: [Row("", each, 1) for each in self._states.items()],
            ),
            LargeFamily(
                "worker_cml_license_status",
                "1 if CML is registered",
                "gauge",
                (_WORKER_ID, "tier"),
                lambda: [Row("", (worker_id, name), int(on)) for worker_id, (name, on) in self._tiers.items()],
            ),
        )

    def _duration_rows(self) -> Iterator[Row]:
        for worker_id, spent in list(self._durations.items()):  # passes go on while the text is rendered
            total, labels, count = spent.total, (worker_id,), 0
            counts = tuple(spent.counts)
            for bound, more in zip(_BOUNDS, counts, strict=True):
                count += more
                yield Row("_bucket", (worker_id, bound), count)
            yield Row("_count", labels, count)
            yield Row("_sum", labels, total)

    def _drift_rows(self) -> list[Row]:
        return [
            Row("_total", (worker_id, kind), count)
            for worker_id, counts in self._drifts.items()
            for kind, count in counts.items()
        ]


_by_registry: WeakKeyDictionary[CollectorRegistry, PerWorkerMetrics] = WeakKeyDictionary()


def per_worker_metrics(registry: CollectorRegistry) -> PerWorkerMetrics:
    """The collector of a registry, created once."""
    if registry not in _by_registry:
        _by_registry[registry] = PerWorkerMetrics()
        registry.register(_by_registry[registry])
    return _by_registry[registry]


_REGION = "region"


class ReconcilerView(Protocol):
    """What the metrics read from a worker reconciler."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def cache(self) -> FleetCache: ...

    @property
    def regions(self) -> Mapping[str, RegionMonitor]: ...

    @property
    def discovery(self) -> Discovery | None: ...


class AlertMetrics(Collector):
    """Workers by status, stuck workers, open breakers and leaked instances, by region; only the leader has values."""

    def __init__(self, reconciler: ReconcilerView, registry: CollectorRegistry = REGISTRY) -> None:
        self._reconciler = reconciler
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        families = _alert_families()
        if self._reconciler.is_leader:
            self._fill(families)
        yield from families.values()

    def describe(self) -> Iterator[Metric]:
        """The names alone, so that registration does not collect."""
        yield from _alert_families().values()

    def _fill(self, families: Mapping[str, GaugeMetricFamily]) -> None:
        records = list(self._reconciler.cache.records.values())
        by_status = Counter((worker.aws_region, worker.status) for worker in records)
        by_condition = Counter(
            (worker.aws_region, name)
            for worker in records
            for name, kind in _CONDITION_METRICS.items()
            if is_condition_true(worker.conditions, kind)
        )
        discovery = self._reconciler.discovery
        by_leak = Counter(leak.region for leak in discovery.leaks.current) if discovery is not None else None
        for region, monitor in sorted(self._reconciler.regions.items()):
            for status in WorkerStatus:
                if status is not WorkerStatus.TERMINATED:
                    families["lcm_workers"].add_metric([region, status.value], by_status[region, status])
            for name in _CONDITION_METRICS:
                families[name].add_metric([region], by_condition[region, name])
            families["lcm_breaker_open"].add_metric([region], monitor.breaker.is_open)
            families["lcm_region_blind_seconds"].add_metric([region], monitor.region_cache.blind_seconds)
            if by_leak is not None:
                families["lcm_leaked_instances"].add_metric([region], by_leak[region])


_CONDITION_METRICS: Final = {
    "lcm_workers_stuck": ConditionType.STUCK,
    "lcm_workers_impaired": ConditionType.IMPAIRED,
    "lcm_workers_maintenance": ConditionType.MAINTENANCE,
}


def _alert_families() -> dict[str, GaugeMetricFamily]:
    texts = {
        "lcm_workers_stuck": "Workers that are stuck",
        "lcm_workers_impaired": "Workers whose instance fails a status check of EC2",
        "lcm_workers_maintenance": "Workers for whose instance EC2 has announced maintenance",
        "lcm_breaker_open": "1 while the breaker is open: no worker of the region is marked as lost",
        "lcm_region_blind_seconds": "For how long no sweep of the region has been complete",
        "lcm_leaked_instances": "Leaked instances",
    }
    workers = GaugeMetricFamily("lcm_workers", "Workers that are not TERMINATED", labels=[_REGION, "status"])
    by_region = {name: GaugeMetricFamily(name, text, labels=[_REGION]) for name, text in texts.items()}
    return {"lcm_workers": workers, **by_region}
