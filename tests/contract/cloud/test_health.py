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
    from lcm.cloud.types import HealthNotice
    from tests.support.aws.conformance import CloudBed


async def running(bed: CloudBed, *workers: str) -> list[str]:
    ids = [(await bed.cloud.launch_instance(bed.parameters(worker))).id for worker in workers]

    async def all_run() -> bool:
        seen = (await bed.cloud.describe(bed.region, ids)).instances.values()
        return [instance.state for instance in seen] == [InstanceState.RUNNING] * len(ids)

    await bed.eventually(all_run, "all run")
    return ids


async def problems(bed: CloudBed) -> list[HealthNotice]:
    """All notices but those of checks that have no result yet: they depend on how long ago the instance was started."""
    return [notice for notice in await bed.cloud.health(bed.region) if notice.kind is not HealthKind.CHECKS_PENDING]


async def test_healthy_instances_give_no_notice(bed: CloudBed) -> None:
    await running(bed, "w1", "w2")
    assert await problems(bed) == []


@pytest.mark.parametrize("kind", [HealthKind.INSTANCE_IMPAIRED, HealthKind.SYSTEM_IMPAIRED])
async def test_an_impaired_instance_is_reported_until_it_recovers(bed: CloudBed, kind: HealthKind) -> None:
    [ill, _] = await running(bed, "w1", "w2")
    await bed.impair(ill, kind)
    assert [(notice.instance_id, notice.kind) for notice in await problems(bed)] == [(ill, kind)]
    await bed.heal(ill)
    assert await problems(bed) == []


async def test_both_checks_of_an_instance_may_fail(bed: CloudBed) -> None:
    [ill] = await running(bed, "w1")
    await bed.impair(ill, HealthKind.INSTANCE_IMPAIRED)
    await bed.impair(ill, HealthKind.SYSTEM_IMPAIRED)
    notices = await problems(bed)
    assert {(notice.instance_id, notice.kind) for notice in notices} == {
        (ill, HealthKind.INSTANCE_IMPAIRED),
        (ill, HealthKind.SYSTEM_IMPAIRED),
    }


async def test_maintenance_is_reported_with_its_date(bed: CloudBed) -> None:
    [_, due] = await running(bed, "w1", "w2")
    date = clock.now().replace(microsecond=0) + timedelta(days=3)
    await bed.announce_maintenance(due, "The host is scheduled for a reboot", date)
    [notice] = await problems(bed)
    assert (notice.instance_id, notice.kind) == (due, HealthKind.MAINTENANCE)
    assert "scheduled for a reboot" in notice.detail
    assert (notice.not_before, notice.code) == (date, "system-reboot")


async def test_maintenance_may_be_brought_forward_and_canceled(bed: CloudBed) -> None:
    [due] = await running(bed, "w1")
    date = clock.now().replace(microsecond=0) + timedelta(days=9)
    await bed.announce_maintenance(due, "A reboot", date)
    await bed.move_maintenance(due, date - timedelta(days=5))
    assert [notice.not_before for notice in await problems(bed)] == [date - timedelta(days=5)]
    await bed.cancel_maintenance(due)
    assert await problems(bed) == []


async def test_maintenance_of_a_stopped_instance_is_listed_and_its_checks_are_not(bed: CloudBed) -> None:
    [due] = await running(bed, "w1")
    await bed.announce_maintenance(due, "A reboot", clock.now() + timedelta(days=3))
    await bed.impair(due, HealthKind.SYSTEM_IMPAIRED)
    await bed.cloud.stop_instance(bed.region, due)

    async def stopped() -> bool:
        seen = (await bed.cloud.describe(bed.region, [due])).instances.get(due)
        return seen is not None and seen.state is InstanceState.STOPPED

    await bed.eventually(stopped, "it is stopped")
    assert [notice.kind for notice in await problems(bed)] == [HealthKind.MAINTENANCE]


async def test_maintenance_that_is_over_is_no_news(bed: CloudBed) -> None:
    [due] = await running(bed, "w1")
    await bed.announce_maintenance(due, "A reboot", clock.now() + timedelta(hours=1))
    await bed.complete_maintenance(due)
    assert await problems(bed) == []


async def test_health_of_a_whole_region_takes_three_calls(bed: CloudBed) -> None:
    await running(bed, *(f"w{number}" for number in range(bed.page_size + 1)))
    before = bed.calls().get(STATUS, 0)
    await bed.cloud.health(bed.region)
    assert bed.calls()[STATUS] - before == 3


async def test_unknown_health_is_an_error_and_not_good_health(bed: CloudBed) -> None:
    bed.outage(True)
    with pytest.raises(CloudUnreachableError):
        await bed.cloud.health(bed.region)
