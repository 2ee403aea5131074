"""The gateway's own rate limit, in virtual time, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.aws.clients import client_config
from lcm.cloud.aws.config import RegionConfig, Tuning
from lcm.cloud.aws.gateway import OPERATIONS, AwsGateway, aws_call_metrics
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization, authorized

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tests.support.virtual.time import VirtualClock


class NoThreads:
    """Replaces the threads: responds at once, and records the times."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def run(self, prepare: Any) -> Any:
        work = prepare()
        self.at.append(asyncio.get_running_loop().time())
        return {} if work is not None else None


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


async def test_a_call_that_waited_too_long_for_its_token_is_not_sent(
    gateway: AwsGateway, threads: NoThreads, registry: CollectorRegistry
) -> None:
    """Eight of ten launches have no token at once; at 1.8 a second, four of them get theirs within 2.4 s."""
    with authorized(SendAuthorization(clock.boottime(), 3.0)):
        calls = [asyncio.create_task(gateway.call_prepared("RunInstances", dict, instances=1)) for _ in range(12)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, NotAuthorizedError)]
    assert (len(threads.at), len(refused)) == (8, 4)
    assert max(threads.at) - min(threads.at) < 2.4
    counted = registry.get_sample_value("lcm_aws_calls_total", {"operation": "RunInstances", "outcome": "not_sent"})
    assert counted == 4
    await gateway.call("RunInstances", {})
    assert len(threads.at) == 9, "the tokens of dropped calls are there for others"


async def test_a_call_is_not_sent_after_a_suspension_while_it_waited_for_its_token(
    gateway: AwsGateway, threads: NoThreads, virtual_clock: VirtualClock
) -> None:
    with authorized(SendAuthorization(clock.boottime(), 7.5)):
        calls = [asyncio.create_task(gateway.call_prepared("RunInstances", dict, instances=1)) for _ in range(6)]
    await asyncio.sleep(0)
    virtual_clock.suspended += 303  # four calls were sent
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [dict] * 4 + [NotAuthorizedError] * 2
    assert len(threads.at) == 4


def test_nothing_that_matters_is_left_to_botocores_defaults() -> None:
    config: Any = client_config(Tuning(), attempts=5)
    assert config.retries == {"mode": "standard", "total_max_attempts": 5}
    assert (config.connect_timeout, config.read_timeout) == (5.0, 30.0)
    assert config.max_pool_connections == 8


def test_one_set_of_families_for_a_registry(registry: CollectorRegistry) -> None:
    assert aws_call_metrics(registry) is aws_call_metrics(registry)


def test_what_alerts_watch_is_counted_from_zero(registry: CollectorRegistry) -> None:
    """A series that begins at 1 has not increased, and an alert on its increase stays silent."""
    aws_call_metrics(registry)
    policy = json.loads((Path(__file__).parents[4] / "deploy" / "iam-policy.json").read_text(encoding="utf-8"))
    listed = [each["Action"] for each in policy["Statement"]]
    allowed = {name for each in listed for name in ([each] if isinstance(each, str) else each)}
    called = {name.partition(":")[2] for name in allowed - {"ec2:CreateTags", "iam:PassRole", "sts:AssumeRole"}}
    assert called == set(OPERATIONS)
    for operation in called:
        for outcome in ("denied", "quota", "unauthenticated"):
            labels = {"operation": operation, "outcome": outcome}
            assert registry.get_sample_value("lcm_aws_calls_total", labels) == 0
        assert registry.get_sample_value("lcm_aws_throttled_total", {"operation": operation}) == 0
