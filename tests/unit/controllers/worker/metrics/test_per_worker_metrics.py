"""Series of single workers, as a scrape shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from lcm.controllers.worker.metrics.prometheus import per_worker_metrics

SPENT = "worker_reconciliation_duration_seconds"


def test_passes_are_counted_by_how_long_they_took() -> None:
    registry = CollectorRegistry()
    gauges = per_worker_metrics(registry)
    for seconds in (0.004, 0.01, 0.05, 90.0):
        gauges.passed("w-1", seconds)
    gauges.passed("w-2", 5.0)
    buckets = {
        bound: registry.get_sample_value(f"{SPENT}_bucket", {"worker_id": "w-1", "le": bound})
        for bound in ("0.01", "0.1", "1.0", "10.0", "60.0", "+Inf")
    }
    assert buckets == {"0.01": 2, "0.1": 3, "1.0": 3, "10.0": 3, "60.0": 3, "+Inf": 4}
    assert registry.get_sample_value(f"{SPENT}_count", {"worker_id": "w-1"}) == 4
    assert registry.get_sample_value(f"{SPENT}_sum", {"worker_id": "w-1"}) == 90.064
    assert registry.get_sample_value(f"{SPENT}_count", {"worker_id": "w-2"}) == 1


def test_drift_is_counted_by_kind_and_goes_with_the_worker() -> None:
    registry = CollectorRegistry()
    gauges = per_worker_metrics(registry)
    for worker_id, kind in (("w-1", "stopped"), ("w-1", "stopped"), ("w-1", "missing"), ("w-2", "stopped")):
        gauges.drifted(worker_id, kind)
    gauges.passed("w-2", 0.1)

    def drift(worker_id: str, kind: str) -> float | None:
        labels = {"worker_id": worker_id, "drift_type": kind}
        return registry.get_sample_value("worker_drift_detected_total", labels)

    assert (drift("w-1", "stopped"), drift("w-1", "missing"), drift("w-2", "stopped")) == (2, 1, 1)
    gauges.keep_only(["w-1"])
    assert (drift("w-1", "stopped"), drift("w-2", "stopped")) == (2, None)
    assert registry.get_sample_value(f"{SPENT}_count", {"worker_id": "w-2"}) is None


def test_the_families_of_a_registry_are_made_once() -> None:
    registry = CollectorRegistry()
    assert per_worker_metrics(registry) is per_worker_metrics(registry)
    assert per_worker_metrics(registry) is not per_worker_metrics(CollectorRegistry())
