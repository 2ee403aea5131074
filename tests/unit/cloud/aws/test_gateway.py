"""The gateway's own rate limit, in virtual time, and calls that are cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.aws.clients import client_config
from lcm.cloud.aws.config import RegionConfig, Tuning
from lcm.cloud.aws.gateway import AwsGateway, aws_call_metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class NoThreads:
    """Replaces the threads: responds at once, and records the times."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def run(self, prepare: Any) -> Any:
        self.at.append(asyncio.get_running_loop().time())
        return {} if prepare() is not None else None


@pytest.fixture
def threads() -> NoThreads:
    return NoThreads()


@pytest.fixture
def gateway(registry: CollectorRegistry, threads: NoThreads) -> AwsGateway:
    return AwsGateway(RegionConfig(region="eu-central-1"), Tuning(), threads, aws_call_metrics(registry))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "burst", "a_second"),
    [("DescribeInstances", 90, 18), ("RunInstances", 4, 1.8), ("StopInstances", 45, 4.5), ("GetMetricData", 45, 45)],
)
async def test_calls_stay_below_the_limits_of_aws(
    gateway: AwsGateway, threads: NoThreads, operation: str, burst: int, a_second: float
) -> None:
    began = asyncio.get_running_loop().time()
    more = 20
    await asyncio.gather(*(gateway.call(operation, {}) for _ in range(burst + more)))
    at_once = sum(moment == began for moment in threads.at)
    assert at_once == burst
    assert threads.at[-1] - began == pytest.approx(more / a_second, rel=0.05)


async def test_operations_do_not_wait_for_one_another(gateway: AwsGateway, threads: NoThreads) -> None:
    began = asyncio.get_running_loop().time()
    launches = [asyncio.create_task(gateway.call("RunInstances", {})) for _ in range(10)]
    await gateway.call("DescribeInstances", {})
    assert asyncio.get_running_loop().time() == began
    await asyncio.gather(*launches)


async def test_a_call_cancelled_before_its_turn_is_not_made(gateway: AwsGateway, threads: NoThreads) -> None:
    calls = [asyncio.create_task(gateway.call("RunInstances", {})) for _ in range(10)]
    await asyncio.sleep(0)
    for call in calls[4:9]:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert len(threads.at) == 5
    assert threads.at[-1] - threads.at[0] == pytest.approx(0.5 / 1.8, rel=0.05), "the last did not wait for the others"


async def test_nothing_left_to_send_gives_no_response(gateway: AwsGateway) -> None:
    assert await gateway.call_prepared("StopInstances", lambda: None, instances=3) is None


def test_nothing_that_matters_is_left_to_botocores_defaults() -> None:
    config: Any = client_config(Tuning(), attempts=5)
    assert config.retries == {"mode": "standard", "total_max_attempts": 5}
    assert (config.connect_timeout, config.read_timeout) == (5.0, 30.0)
    assert config.max_pool_connections == 8


def test_one_set_of_families_for_a_registry(registry: CollectorRegistry) -> None:
    assert aws_call_metrics(registry) is aws_call_metrics(registry)
