"""Metrics in batches: their calls count in one rate limit and leave threads for others, and a window may be given."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.aws.config import RegionConfig, Tuning
from lcm.cloud.aws.gateway import AwsGateway, aws_call_metrics
from lcm.cloud.aws.monitoring import InstanceMetricsReader
from lcm.cloud.spi import METRICS_BATCH
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry


class Threads:
    """Replaces the threads: each call takes a tenth of a second and finds nothing."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.busy = 0
        self.most = 0

    async def run(self, prepare: Any) -> Any:
        self.requests.append(prepare().args[1])
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0.1)
        self.busy -= 1
        return {}


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def reader(registry: CollectorRegistry, threads: Threads) -> InstanceMetricsReader:
    region = RegionConfig(region="eu-central-1")
    return InstanceMetricsReader(AwsGateway(region, Tuning(), threads, aws_call_metrics(registry)))  # type: ignore[arg-type]


def batches(count: int) -> list[Sequence[str]]:
    ids = [f"i-{number:017x}" for number in range(count)]
    return [ids[begin : begin + METRICS_BATCH] for begin in range(0, count, METRICS_BATCH)]


@pytest.mark.parametrize("count", [1, 71, 72, 499, 500, 501, 1_000, 1_300])
async def test_batches_need_no_more_calls_than_all_at_once(
    reader: InstanceMetricsReader, threads: Threads, count: int
) -> None:
    for batch in batches(count):
        await reader.latest(batch)
    assert len(threads.requests) == ceil(7 * count / 500)
    assert max(len(request["MetricDataQueries"]) for request in threads.requests) <= 500


async def test_batches_that_are_read_at_once_leave_threads_for_others(
    reader: InstanceMetricsReader, threads: Threads
) -> None:
    await asyncio.gather(*(reader.latest(batch) for batch in batches(2_000)))
    assert threads.most == 4


async def test_calls_of_other_processes_count_in_the_rate_limit(reader: InstanceMetricsReader) -> None:
    """CloudWatch allows 50 calls a second to an account, however many replicas make them; 90 % of that is used."""
    began = clock.boottime()
    await asyncio.gather(*(reader.wait_for_calls(len(batch)) for batch in batches(10_000)))
    assert clock.boottime() - began == pytest.approx((140 - 45) / 45, rel=0.05)


async def test_the_window_is_that_of_whoever_asks(reader: InstanceMetricsReader, threads: Threads) -> None:
    end = datetime(2026, 1, 1, 9, 30, 12, tzinfo=UTC)
    await reader.latest(["i-1"], end)
    await reader.latest(["i-1"])
    asked, own = threads.requests
    assert (asked["StartTime"], asked["EndTime"]) == (end.replace(minute=10, second=0), end.replace(second=0))
    assert timedelta(0) <= clock.now() - own["EndTime"] <= timedelta(minutes=1)
