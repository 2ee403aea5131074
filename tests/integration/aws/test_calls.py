"""The number of calls grows with pages, not with workers: counted at the server, for a full cycle of a steady fleet."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from lcm.cloud.aws import AwsConfig, AwsProvider, RegionConfig
from lcm.cloud.types import HealthKind, InstanceSelection
from tests.support.aws.credentials import REGION, dummy_credentials
from tests.support.aws.ec2_wire import WireFake
from tests.support.aws.server import AwsServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _credentials() -> Iterator[None]:
    with dummy_credentials():
        yield


@pytest.mark.usefixtures("_credentials")
@pytest.mark.parametrize("count", [10, 200, 201, 500, 1_000, 2_500])
async def test_a_peak_cycle_stays_within_its_calls(count: int) -> None:
    server = AwsServer(WireFake(count))
    region = RegionConfig(region=REGION, endpoint_url=server.url)
    cloud = AwsProvider(AwsConfig({REGION: region}), CollectorRegistry())
    try:
        first = await cloud.sweep(REGION, InstanceSelection())
        assert first.complete
        before = server.calls()
        sweep = await cloud.sweep(REGION, InstanceSelection())
        notices = await cloud.health(REGION)
        metrics = await cloud.get_instance_metrics(REGION, list(sweep.instances))
        calls = server.calls() - before
    finally:
        await cloud.close()
        server.close()
    assert sweep.complete
    assert len(sweep.instances) == len(metrics) == count
    assert {notice.kind for notice in notices} == {HealthKind.INSTANCE_IMPAIRED, HealthKind.SYSTEM_IMPAIRED}
    assert calls["DescribeInstances"] == sweep.calls == ceil(count / 1000)
    assert calls["DescribeInstanceStatus"] == 3
    assert calls["GetMetricData"] == ceil(7 * count / 500)
    assert calls.total() <= ceil(count / 1000) + 3 + ceil(7 * count / 500)
