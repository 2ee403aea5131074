"""Metrics of single workers. A worker that is terminated takes its series with it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lcm.core.metrics import DURATION_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.model.worker import Worker
    from lcm.worker_controller.observation import Observation


class WorkerGauges:
    """Duration of passes, drift, the state of instances and the tier of licences, by worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._duration = Histogram(
            "worker_reconciliation_duration_seconds",
            "How long a pass over a worker took",
            ["worker_id"],
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._drift = Counter(
            "worker_drift_detected_total",
            "How often an instance was found in another state than its worker",
            ["worker_id", "drift_type"],
            registry=registry,
        )
        self._state = Gauge(
            "worker_ec2_state", "1 for the state that the instance is in", ["worker_id", "state"], registry=registry
        )
        self._tier = Gauge(
            "worker_cml_license_status", "1 if CML is registered", ["worker_id", "tier"], registry=registry
        )
        self._states: dict[str, str] = {}
        self._tiers: dict[str, str] = {}
        self._drifts: dict[str, set[str]] = {}
        self._timed: set[str] = set()

    def passed(self, worker_id: str, seconds: float) -> None:
        """A pass ended."""
        self._timed.add(worker_id)
        self._duration.labels(worker_id).observe(seconds)

    def seen(self, worker: Worker, seen: Observation) -> None:
        """What a pass has found."""
        if worker.instance_id is not None and seen.sight.state is not None:
            self.shows(worker.id, seen.sight.state.value)
        if seen.cml.product or seen.cml.license is not None:
            registered = seen.cml.license is not None and seen.cml.license.phase.value == "registered"
            self.licensed(worker.id, seen.cml.product or "unknown", registered=registered)

    def drifted(self, worker_id: str, kind: str) -> None:
        """Drift was found."""
        self._drifts.setdefault(worker_id, set()).add(kind)
        self._drift.labels(worker_id, kind).inc()

    def shows(self, worker_id: str, state: str) -> None:
        """The instance is in this state, and in no other."""
        before = self._states.get(worker_id)
        if before == state:
            return
        if before is not None:
            self._state.remove(worker_id, before)
        self._states[worker_id] = state
        self._state.labels(worker_id, state).set(1)

    def licensed(self, worker_id: str, tier: str, *, registered: bool) -> None:
        """What CML says of its licence."""
        before = self._tiers.get(worker_id)
        if before is not None and before != tier:
            self._tier.remove(worker_id, before)
        self._tiers[worker_id] = tier
        self._tier.labels(worker_id, tier).set(1 if registered else 0)

    def keep_only(self, worker_ids: Iterable[str]) -> None:
        """Remove the series of all others."""
        kept = set(worker_ids)
        for worker_id in (self._timed | self._states.keys() | self._tiers.keys() | self._drifts.keys()) - kept:
            self._remove(worker_id)

    def _remove(self, worker_id: str) -> None:
        if worker_id in self._timed:
            self._timed.discard(worker_id)
            self._duration.remove(worker_id)
        if (state := self._states.pop(worker_id, None)) is not None:
            self._state.remove(worker_id, state)
        if (tier := self._tiers.pop(worker_id, None)) is not None:
            self._tier.remove(worker_id, tier)
        for kind in self._drifts.pop(worker_id, ()):
            self._drift.remove(worker_id, kind)


_made: WeakKeyDictionary[CollectorRegistry, WorkerGauges] = WeakKeyDictionary()


def gauges_of(registry: CollectorRegistry) -> WorkerGauges:
    """The families of a registry, made once."""
    if registry not in _made:
        _made[registry] = WorkerGauges(registry)
    return _made[registry]
