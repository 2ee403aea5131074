"""Metrics of single workers. A worker that is terminated takes its series with it.

They are plain numbers, put into form when somebody scrapes: in a large fleet each has thousands of them.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from lcm.controllers.worker.observe.observation import Observation
    from lcm.model.worker.record import Worker

_ID: Final = "worker_id"
_DURATION: Final = "worker_reconciliation_duration_seconds"
# Few: each is a series for each worker.
_BUCKETS: Final = (0.01, 0.1, 1.0, 10.0, 60.0)
_BOUNDS: Final = (*map(str, _BUCKETS), "+Inf")


class _Durations:
    """How often passes over one worker took how long."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_BOUNDS)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.total += seconds


class WorkerGauges(Collector):
    """Duration of passes, drift, the state of instances and the tier of licences, by worker."""

    def __init__(self) -> None:
        self._durations: dict[str, _Durations] = {}
        self._drifts: dict[str, dict[str, int]] = {}  # by worker: how often each kind was found
        self._states: dict[str, str] = {}
        self._tiers: dict[str, tuple[str, bool]] = {}  # by worker: which, and whether it is registered

    def passed(self, worker_id: str, seconds: float) -> None:
        """A pass ended."""
        durations = self._durations.get(worker_id)
        if durations is None:
            durations = self._durations[worker_id] = _Durations()
        durations.add(seconds)

    def seen(self, worker: Worker, seen: Observation) -> None:
        """What a pass has found."""
        if worker.instance_id is not None and seen.sight.state is not None:
            self._states[worker.id] = seen.sight.state.value
        if seen.cml.product or seen.cml.license is not None:
            registered = seen.cml.license is not None and seen.cml.license.phase.value == "registered"
            self._tiers[worker.id] = (seen.cml.product or "unknown", registered)

    def drifted(self, worker_id: str, kind: str) -> None:
        """Drift was found."""
        found = self._drifts.setdefault(worker_id, {})
        found[kind] = found.get(kind, 0) + 1

    def keep_only(self, worker_ids: Iterable[str]) -> None:
        """Remove the series of all others."""
        kept = set(worker_ids)
        for series in (self._durations, self._drifts, self._states, self._tiers):
            for worker_id in series.keys() - kept:
                del series[worker_id]

    def collect(self) -> Iterator[Metric]:
        """All series as they are now."""
        durations, drift, state, tier = self.describe()
        for worker_id, spent in self._durations.items():
            durations.samples += _histogram(worker_id, spent)
        drift.samples += [
            Sample("worker_drift_detected_total", {_ID: worker_id, "drift_type": kind}, count)
            for worker_id, found in self._drifts.items()
            for kind, count in found.items()
        ]
        state.samples += [
            Sample("worker_ec2_state", {_ID: worker_id, "state": name}, 1) for worker_id, name in self._states.items()
        ]
        tier.samples += [
            Sample("worker_cml_license_status", {_ID: worker_id, "tier": name}, registered)
            for worker_id, (name, registered) in self._tiers.items()
        ]
        yield from (durations, drift, state, tier)

    def describe(self) -> tuple[Metric, Metric, Metric, Metric]:
        """The names alone, so that registering does not have to collect."""
        return (
            HistogramMetricFamily(_DURATION, "How long a pass over a worker took", labels=[_ID]),
            CounterMetricFamily(
                "worker_drift_detected",
                "How often an instance was found in another state than its worker",
                labels=[_ID, "drift_type"],
            ),
            GaugeMetricFamily("worker_ec2_state", "1 for the state that the instance is in", labels=[_ID, "state"]),
            GaugeMetricFamily("worker_cml_license_status", "1 if CML is registered", labels=[_ID, "tier"]),
        )


def _histogram(worker_id: str, spent: _Durations) -> list[Sample]:
    mine = {_ID: worker_id}
    upto = list(accumulate(spent.counts))
    buckets = [
        Sample(f"{_DURATION}_bucket", {_ID: worker_id, "le": bound}, count)
        for bound, count in zip(_BOUNDS, upto, strict=True)
    ]
    return [*buckets, Sample(f"{_DURATION}_count", mine, upto[-1]), Sample(f"{_DURATION}_sum", mine, spent.total)]


_made: WeakKeyDictionary[CollectorRegistry, WorkerGauges] = WeakKeyDictionary()


def gauges_of(registry: CollectorRegistry) -> WorkerGauges:
    """The families of a registry, made once."""
    if registry not in _made:
        _made[registry] = WorkerGauges()
        registry.register(_made[registry])
    return _made[registry]
