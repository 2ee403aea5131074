"""Metrics for alerts: only the leader has values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lcm.controllers.worker.metrics.prometheus import AlertMetrics
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

NAMES = {
    "lcm_workers",
    "lcm_workers_stuck",
    "lcm_workers_impaired",
    "lcm_workers_maintenance",
    "lcm_breaker_open",
    "lcm_region_blind_seconds",
    "lcm_leaked_instances",
}
STUCK = with_condition((), ConditionType.STUCK, ConditionStatus.TRUE, now=NOW)


def controller(**changes: Any) -> Any:
    """What the metrics read from a worker reconciler."""
    monitors = {
        "eu-west-1": SimpleNamespace(
            breaker=SimpleNamespace(is_open=True), region_cache=SimpleNamespace(blind_seconds=90.0)
        ),
        "us-east-1": SimpleNamespace(
            breaker=SimpleNamespace(is_open=False), region_cache=SimpleNamespace(blind_seconds=0.0)
        ),
    }
    leaks = SimpleNamespace(current=(SimpleNamespace(region="us-east-1"), SimpleNamespace(region="us-east-1")))
    workers = [
        a_worker(status=WorkerStatus.RUNNING),
        a_worker(id="w-2", status=WorkerStatus.RUNNING, conditions=STUCK),
        a_worker(id="w-3", aws_region="us-east-1"),
    ]
    facts = {
        "is_leader": True,
        "cache": SimpleNamespace(records={worker.id: worker for worker in workers}),
        "regions": monitors,
        "discovery": SimpleNamespace(leaks=leaks),
    }
    return SimpleNamespace(**{**facts, **changes})


def values(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.value
    }


def test_a_leader_has_values_by_region(registry: CollectorRegistry) -> None:
    AlertMetrics(controller(), registry)
    assert values(registry) == {
        ("lcm_workers", "eu-west-1", "RUNNING"): 2,
        ("lcm_workers", "us-east-1", "PENDING"): 1,
        ("lcm_workers_stuck", "eu-west-1"): 1,
        ("lcm_breaker_open", "eu-west-1"): 1,
        ("lcm_region_blind_seconds", "eu-west-1"): 90,
        ("lcm_leaked_instances", "us-east-1"): 2,
    }


def test_zero_is_reported_as_zero(registry: CollectorRegistry) -> None:
    AlertMetrics(controller(), registry)
    assert registry.get_sample_value("lcm_workers_stuck", {"region": "us-east-1"}) == 0
    assert registry.get_sample_value("lcm_breaker_open", {"region": "us-east-1"}) == 0
    assert registry.get_sample_value("lcm_leaked_instances", {"region": "eu-west-1"}) == 0


def test_before_the_first_scan_nothing_is_said_of_leaks(registry: CollectorRegistry) -> None:
    AlertMetrics(controller(discovery=None), registry)
    assert registry.get_sample_value("lcm_leaked_instances", {"region": "eu-west-1"}) is None


def test_a_standby_has_no_values(registry: CollectorRegistry) -> None:
    AlertMetrics(controller(is_leader=False), registry)
    families = list(registry.collect())
    assert {family.name for family in families} == NAMES
    assert not [sample for family in families for sample in family.samples]
