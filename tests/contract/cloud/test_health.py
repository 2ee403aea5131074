"""Health: impaired instances and scheduled maintenance."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import CloudUnreachableError
from lcm.cloud.types import HealthKind, InstanceState
from lcm.core import clock
from tests.support.aws.conformance import STATUS

if TYPE_CHECKING:
    from tests.support.aws.conformance import CloudBed


async def running(bed: CloudBed, *workers: str) -> list[str]:
    ids = [(await bed.cloud.launch_instance(bed.parameters(worker))).id for worker in workers]

    async def all_run() -> bool:
        seen = (await bed.cloud.describe(bed.region, ids)).instances.values()
        return [instance.state for instance in seen] == [InstanceState.RUNNING] * len(ids)

    await bed.eventually(all_run, "all run")
    return ids


async def test_healthy_instances_give_no_notice(bed: CloudBed) -> None:
    await running(bed, "w1", "w2")
    assert list(await bed.cloud.health(bed.region)) == []


@pytest.mark.parametrize("kind", [HealthKind.INSTANCE_IMPAIRED, HealthKind.SYSTEM_IMPAIRED])
async def test_an_impaired_instance_is_reported_until_it_recovers(bed: CloudBed, kind: HealthKind) -> None:
    [ill, _] = await running(bed, "w1", "w2")
    await bed.impair(ill, kind)
    assert [(notice.instance_id, notice.kind) for notice in await bed.cloud.health(bed.region)] == [(ill, kind)]
    await bed.heal(ill)
    assert list(await bed.cloud.health(bed.region)) == []


async def test_both_checks_of_an_instance_may_fail(bed: CloudBed) -> None:
    [ill] = await running(bed, "w1")
    await bed.impair(ill, HealthKind.INSTANCE_IMPAIRED)
    await bed.impair(ill, HealthKind.SYSTEM_IMPAIRED)
    notices = await bed.cloud.health(bed.region)
    assert {(notice.instance_id, notice.kind) for notice in notices} == {
        (ill, HealthKind.INSTANCE_IMPAIRED),
        (ill, HealthKind.SYSTEM_IMPAIRED),
    }


async def test_maintenance_is_reported_with_its_date(bed: CloudBed) -> None:
    [_, due] = await running(bed, "w1", "w2")
    date = clock.now().replace(microsecond=0) + timedelta(days=3)
    await bed.announce_maintenance(due, "The host is scheduled for a reboot", date)
    [notice] = await bed.cloud.health(bed.region)
    assert (notice.instance_id, notice.kind) == (due, HealthKind.MAINTENANCE)
    assert "scheduled for a reboot" in notice.detail
    assert notice.not_before == date


async def test_maintenance_that_is_over_is_no_news(bed: CloudBed) -> None:
    [due] = await running(bed, "w1")
    await bed.announce_maintenance(due, "A reboot", clock.now() + timedelta(hours=1))
    await bed.complete_maintenance(due)
    assert list(await bed.cloud.health(bed.region)) == []


async def test_health_of_a_whole_region_takes_three_calls(bed: CloudBed) -> None:
    await running(bed, *(f"w{number}" for number in range(bed.page_size + 1)))
    before = bed.calls().get(STATUS, 0)
    await bed.cloud.health(bed.region)
    assert bed.calls()[STATUS] - before == 3


async def test_unknown_health_is_an_error_and_not_good_health(bed: CloudBed) -> None:
    bed.outage(True)
    with pytest.raises(CloudUnreachableError):
        await bed.cloud.health(bed.region)
