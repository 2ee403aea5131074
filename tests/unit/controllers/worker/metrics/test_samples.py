"""Samples stay within the bounds of the model: percentages are clamped, what is not finite is unknown."""

from __future__ import annotations

import math
from typing import Any

from lcm.cloud.types import InstanceMetrics
from lcm.cml.types import SystemStats, Usage
from lcm.controllers.worker.metrics.collector import CmlReading, build_sample
from lcm.controllers.worker.observe.observation import CmlObservation
from tests.support.records.workers import NOW, a_worker

WORKER = a_worker(status="RUNNING", instance_id="i-1")


def cloud(**figures: float) -> InstanceMetrics:
    return InstanceMetrics("i-1", NOW, **figures)


def reading(instance_id: str = "i-1", stats: SystemStats | None = None, **facts: Any) -> CmlReading:
    return CmlReading(
        instance_id, CmlObservation(**{"queried_at": NOW, "ready": True, "version": "2.9", **facts}), stats
    )


def test_values_are_clamped_not_dropped() -> None:
    sample = build_sample(
        WORKER, NOW, cloud(cpu_utilization=100.3, memory_utilization=-0.1, network_in=-5, disk_read=7), None
    )
    assert sample is not None
    assert (sample.cpu_utilization, sample.memory_utilization) == (100.0, 0.0)
    assert (sample.network_in, sample.disk_read) == (0.0, 7.0)


def test_what_is_no_number_is_not_known() -> None:
    sample = build_sample(WORKER, NOW, cloud(cpu_utilization=math.nan, network_in=math.inf, disk_write=1.0), None)
    assert sample is not None
    assert (sample.cpu_utilization, sample.network_in, sample.disk_write) == (None, None, 1.0)
    assert build_sample(WORKER, NOW, cloud(cpu_utilization=math.nan), None) is None


def test_counts_stay_within_the_range_of_json() -> None:
    stats = SystemStats(None, None, None, -1, 130.0, Usage(2**70, 2**71), None)
    sample = build_sample(WORKER, NOW, None, reading(stats=stats, labs=-3, nodes=2**60))
    assert sample is not None
    assert (sample.labs_count, sample.nodes_count) == (0, 2**53)
    assert sample.system_info == {
        "ready": True, "cpu_count": 0, "cpu_percent": 100.0, "memory_used": 2**53, "memory_total": 2**53,
    }  # fmt: skip


def test_without_a_value_there_is_no_sample() -> None:
    assert build_sample(WORKER, NOW, None, None) is None
    assert build_sample(WORKER, NOW, cloud(), None) is None
    assert build_sample(WORKER, NOW, None, reading(ready=False, error="no response")) is None
    assert build_sample(WORKER, NOW, None, reading(ready=None, version=None)) is None


def test_a_server_that_says_it_is_not_ready_has_said_something() -> None:
    sample = build_sample(WORKER, NOW, None, reading(ready=False))
    assert sample is not None
    assert (sample.cml_version, sample.system_info) == ("2.9", {"ready": False})


def test_a_reading_of_another_instance_does_not_count() -> None:
    assert build_sample(WORKER, NOW, None, reading("i-0", labs=3)) is None


def test_a_worker_without_an_instance_has_no_sample() -> None:
    assert build_sample(a_worker(), NOW, cloud(cpu_utilization=1.0), None) is None
