"""Metrics: the latest values, in batches."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import CloudAccessDeniedError, CloudUnreachableError
from lcm.cloud.types import InstanceMetrics
from lcm.core import clock
from tests.support.aws.conformance import ALWAYS, METRICS, Refusal

if TYPE_CHECKING:
    from tests.support.aws.conformance import CloudBed

ID = "i-0123456789abcdef0"
BARE = "i-0123456789abcdef1"


def figures(instance_id: str, minutes_ago: float = 2) -> InstanceMetrics:
    return InstanceMetrics(
        instance_id=instance_id,
        at=clock.now() - timedelta(minutes=minutes_ago),
        cpu_utilization=41.5,
        memory_utilization=62.25,
        disk_utilization=33.0,
        network_in=120_000.0,
        network_out=90_000.0,
        disk_read=4_096.0,
        disk_write=8_192.0,
    )


async def test_all_seven_metrics_are_returned(bed: CloudBed) -> None:
    """cloud-and-cml.md: processor, memory, disk, network and disk traffic."""
    put = figures(ID)
    await bed.put_metrics(put)
    got = (await bed.metrics.get_instance_metrics(bed.region, [ID]))[ID]
    assert got.instance_id == ID
    assert abs(got.at - put.at) <= timedelta(minutes=5)
    for name in ("cpu_utilization", "memory_utilization", "disk_utilization"):
        assert getattr(got, name) == pytest.approx(getattr(put, name)), name
    for name in ("network_in", "network_out", "disk_read", "disk_write"):
        assert getattr(got, name) == pytest.approx(getattr(put, name)), name


async def test_missing_metrics_are_none(bed: CloudBed) -> None:
    await bed.put_metrics(replace(figures(ID), memory_utilization=None, disk_utilization=None))
    got = (await bed.metrics.get_instance_metrics(bed.region, [ID]))[ID]
    assert got.cpu_utilization == pytest.approx(41.5)
    assert got.memory_utilization is None
    assert got.disk_utilization is None


async def test_an_instance_without_metrics_is_left_out(bed: CloudBed) -> None:
    await bed.put_metrics(figures(ID))
    assert set(await bed.metrics.get_instance_metrics(bed.region, [ID, BARE])) == {ID}


async def test_the_latest_metrics_are_returned(bed: CloudBed) -> None:
    await bed.put_metrics(replace(figures(ID, 40), cpu_utilization=5.0))
    await bed.put_metrics(replace(figures(ID, 2), cpu_utilization=80.0))
    got = (await bed.metrics.get_instance_metrics(bed.region, [ID]))[ID]
    assert got.cpu_utilization == pytest.approx(80.0)


async def test_many_instances_are_queried_in_batches(bed: CloudBed) -> None:
    ids = [f"i-{number:017x}" for number in range(150)]
    for instance_id in (ids[0], ids[75], ids[149]):
        await bed.put_metrics(figures(instance_id))
    before = bed.calls().get(METRICS, 0)
    got = await bed.metrics.get_instance_metrics(bed.region, ids)
    assert set(got) == {ids[0], ids[75], ids[149]}
    assert all(each.disk_write is not None for each in got.values())
    assert bed.calls()[METRICS] - before <= -(-7 * 150 // 500)


async def test_no_instances_make_no_call(bed: CloudBed) -> None:
    before = bed.calls().get(METRICS, 0)
    assert dict(await bed.metrics.get_instance_metrics(bed.region, [])) == {}
    assert bed.calls().get(METRICS, 0) == before


async def test_failing_to_ask_is_an_error(bed: CloudBed) -> None:
    await bed.put_metrics(figures(ID))
    bed.refuse(METRICS, Refusal.DENIED, ALWAYS)
    with pytest.raises(CloudAccessDeniedError):
        await bed.metrics.get_instance_metrics(bed.region, [ID])
    bed.clear_faults()
    bed.outage(True)
    with pytest.raises(CloudUnreachableError):
        await bed.metrics.get_instance_metrics(bed.region, [ID])
