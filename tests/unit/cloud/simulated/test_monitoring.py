"""Simulated metrics: realistic, and determined by seed, instance and time."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import fields
from datetime import UTC, datetime, timedelta

from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider
from lcm.cloud.simulated.monitoring import simulated_metrics
from lcm.cloud.types import InstanceMetrics
from lcm.core import clock
from tests.support.aws.conformance_simulated import launch_of

REGION = "eu-central-1"
TUESDAY = datetime(2026, 1, 20, tzinfo=UTC).timestamp()
SUNDAY = datetime(2026, 1, 18, tzinfo=UTC).timestamp()
IDS = [f"i-{number:017x}" for number in range(40)]
LONG_AGO = TUESDAY - 30 * 86400


def cpu(instance_id: str, moment: float) -> float:
    value = simulated_metrics(1, instance_id, LONG_AGO, moment).cpu_utilization
    assert value is not None
    return value


def fleet(moment: float) -> float:
    return statistics.fmean(cpu(each, moment) for each in IDS)


def test_the_same_query_gives_the_same_result() -> None:
    assert simulated_metrics(1, IDS[0], LONG_AGO, TUESDAY + 40000) == simulated_metrics(
        1, IDS[0], LONG_AGO, TUESDAY + 40000
    )
    assert simulated_metrics(1, IDS[0], LONG_AGO, TUESDAY + 40000) != simulated_metrics(
        2, IDS[0], LONG_AGO, TUESDAY + 40000
    )
    assert simulated_metrics(1, IDS[0], LONG_AGO, TUESDAY + 40000) != simulated_metrics(
        1, IDS[1], LONG_AGO, TUESDAY + 40000
    )


def test_all_metrics_are_plausible() -> None:
    for instance_id in IDS:
        for hour in range(0, 7 * 24, 3):
            found = simulated_metrics(1, instance_id, LONG_AGO, TUESDAY + hour * 3600)
            for name in ("cpu_utilization", "memory_utilization", "disk_utilization"):
                assert 0 < getattr(found, name) <= 100
            for name in ("network_in", "network_out", "disk_read", "disk_write"):
                assert getattr(found, name) > 0


def test_afternoons_are_busier_than_nights_and_weekdays_than_sundays() -> None:
    afternoon = statistics.fmean(fleet(TUESDAY + hour * 3600) for hour in (13, 14, 15, 16))
    night = statistics.fmean(fleet(TUESDAY + hour * 3600) for hour in (1, 2, 3, 4))
    sunday = statistics.fmean(fleet(SUNDAY + hour * 3600) for hour in (13, 14, 15, 16))
    assert afternoon > 3 * night
    assert afternoon > 1.5 * sunday


def test_machines_have_different_profiles() -> None:
    noon = [cpu(each, TUESDAY + 12 * 3600) for each in IDS]
    assert statistics.pstdev(noon) > 10


def test_a_lab_takes_processor_and_memory_together() -> None:
    found = [simulated_metrics(1, each, LONG_AGO, TUESDAY + hour * 3600) for each in IDS[:10] for hour in range(24)]
    pairs = [(one.cpu_utilization or 0.0, one.memory_utilization or 0.0) for one in found]
    assert statistics.correlation([a for a, _ in pairs], [b for _, b in pairs]) > 0.8


def test_neighbouring_minutes_are_alike() -> None:
    steps = [abs(cpu(IDS[3], TUESDAY + m * 60) - cpu(IDS[3], TUESDAY + m * 60 + 60)) for m in range(1440)]
    assert statistics.fmean(steps) < 6


def test_a_booting_machine_is_busy() -> None:
    booted = TUESDAY + 3 * 3600
    fresh = simulated_metrics(1, IDS[0], booted, booted + 60).cpu_utilization
    settled = simulated_metrics(1, IDS[0], booted, booted + 1800).cpu_utilization
    assert fresh is not None
    assert settled is not None
    assert fresh > settled + 15


async def test_running_machines_have_metrics_and_stopped_ones_none() -> None:
    world = SimulatedCloud(seed=1)
    world.add_region(REGION)
    image = world.add_image(REGION, "cml", created_at=clock.now() - timedelta(days=1))
    provider = SimulatedProvider(world)
    ids = [
        (
            await provider.launch_instance(
                launch_of(f"w{n}", 1, region=REGION, image_id=image, subnet_id=None),
            )
        ).id
        for n in range(2)
    ]
    await asyncio.sleep(120)
    await provider.stop_instance(REGION, ids[1])
    await asyncio.sleep(120)
    found = await provider.get_instance_metrics(REGION, ids)
    assert set(found) == {ids[0]}
    assert all(getattr(found[ids[0]], each.name) is not None for each in fields(InstanceMetrics))
    assert clock.now() - found[ids[0]].at < timedelta(minutes=2)
