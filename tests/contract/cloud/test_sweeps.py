"""Sweeps: which instances they contain, and when a missing instance means anything."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.types import WORKER_TAG, InstanceSelection, InstanceState, Sweep
from lcm.core import clock
from tests.support.aws.conformance import ALWAYS, DESCRIBE, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.aws.conformance import CloudBed

UNKNOWN_ID = "i-0123456789abcdef0"


async def launch(bed: CloudBed, workers: Iterable[str]) -> list[str]:
    """Launch an instance for each worker, and wait until all are visible."""
    ids = [(await bed.cloud.launch_instance(bed.parameters(worker))).id for worker in workers]

    async def all_seen() -> bool:
        return set((await bed.cloud.describe(bed.region, ids)).instances) == set(ids)

    await bed.eventually(all_seen, "all are visible")
    return ids


async def sweep(bed: CloudBed, selection: InstanceSelection | None = None) -> Sweep:
    return await bed.cloud.sweep(bed.region, selection or InstanceSelection())


async def test_an_empty_region_is_completely_empty(bed: CloudBed) -> None:
    before = clock.boottime()
    seen = await sweep(bed)
    assert seen.complete
    assert not seen.error
    assert not seen.instances
    assert seen.region == bed.region
    assert before <= seen.began_at <= clock.boottime()


async def test_a_sweep_shows_all_instances_page_by_page(bed: CloudBed) -> None:
    ids = await launch(bed, [f"w{number}" for number in range(2 * bed.page_size + 2)])
    before = bed.calls()[DESCRIBE]
    seen = await sweep(bed)
    assert seen.complete
    assert set(seen.instances) == set(ids)
    assert all(key == instance.id for key, instance in seen.instances.items())
    assert seen.account_id == bed.account_id
    assert seen.calls == bed.calls()[DESCRIBE] - before == 3


async def test_sweeps_at_once_are_each_right(bed: CloudBed) -> None:
    ids = await launch(bed, [f"w{number}" for number in range(bed.page_size + 1)])
    for seen in await asyncio.gather(*(sweep(bed) for _ in range(3))):
        assert seen.complete
        assert set(seen.instances) == set(ids)


async def test_a_sweep_selects_by_any_of_the_tag_keys(bed: CloudBed) -> None:
    ours, bare, theirs = (bed.parameters(name) for name in ("ours", "bare", "theirs"))
    launched = [
        await bed.cloud.launch_instance(ours),
        await bed.cloud.launch_instance(replace(bare, tags={"Name": "somebody's"})),
        await bed.cloud.launch_instance(replace(theirs, tags={"cml-managed": "true"})),
    ]
    ids = [instance.id for instance in launched]

    async def all_seen() -> bool:
        return set((await bed.cloud.describe(bed.region, ids)).instances) == set(ids)

    await bed.eventually(all_seen, "all are visible")
    assert set((await sweep(bed)).instances) == {ids[0]}
    assert set((await sweep(bed, InstanceSelection((WORKER_TAG, "cml-managed")))).instances) == {ids[0], ids[2]}
    assert set((await sweep(bed, InstanceSelection(("no-such-key",)))).instances) == set()


async def test_a_sweep_selects_by_image_too(bed: CloudBed) -> None:
    image = await bed.add_image("cml-2.9", bed.account_id, clock.now() - timedelta(days=1))
    other = await bed.cloud.launch_instance(replace(bed.parameters("bare"), image_id=image, tags={"Name": "x"}))
    ours = await launch(bed, ["w1"])

    async def both() -> bool:
        seen = await sweep(bed, InstanceSelection((WORKER_TAG,), (image,)))
        return set(seen.instances) == {other.id, *ours}

    await bed.eventually(both, "tagged instances and those of the image are seen")
    assert set((await sweep(bed, InstanceSelection((), (image,)))).instances) == {other.id}


async def test_terminated_instances_are_shown_as_long_as_the_provider_does(bed: CloudBed) -> None:
    [gone, there] = await launch(bed, ["w1", "w2"])
    await bed.cloud.terminate_instance(bed.region, gone)

    async def over() -> bool:
        return (await sweep(bed)).instances[gone].state is InstanceState.TERMINATED

    await bed.eventually(over, "it is seen as terminated")
    await bed.forget_terminated()
    seen = await sweep(bed)
    assert seen.complete
    assert set(seen.instances) == {there}


async def test_a_new_instance_may_be_missing_in_a_complete_sweep(bed: CloudBed) -> None:
    [there] = await launch(bed, ["w1"])
    bed.hide_new_instances(86400)
    hidden = await bed.cloud.launch_instance(bed.parameters("w2"))
    seen = await sweep(bed)
    assert seen.complete
    assert set(seen.instances) == {there}
    bed.reveal_instances()
    assert hidden.id in (await sweep(bed)).instances


async def test_a_page_that_fails_makes_a_sweep_incomplete_and_raises_nothing(bed: CloudBed) -> None:
    ids = await launch(bed, [f"w{number}" for number in range(2 * bed.page_size + 1)])
    bed.fail_page(2)
    seen = await sweep(bed)
    assert not seen.complete
    assert seen.error
    assert len(seen.instances) == bed.page_size
    assert set(seen.instances) < set(ids)
    bed.clear_faults()
    again = await sweep(bed)
    assert again.complete
    assert set(again.instances) == set(ids)


async def test_a_sweep_during_an_outage_shows_nothing_and_proves_nothing(bed: CloudBed) -> None:
    await launch(bed, ["w1"])
    bed.outage(True)
    seen = await sweep(bed)
    assert not seen.complete
    assert seen.error
    assert not seen.instances
    bed.outage(False)
    assert (await sweep(bed)).complete


async def test_a_refused_sweep_proves_nothing(bed: CloudBed) -> None:
    await launch(bed, ["w1"])
    for refusal in (Refusal.DENIED, Refusal.INTERNAL):
        bed.refuse(DESCRIBE, refusal, ALWAYS)
        seen = await sweep(bed)
        assert not seen.complete
        assert not seen.instances
        bed.clear_faults()


async def test_a_sweep_that_stays_throttled_proves_nothing(bed: CloudBed) -> None:
    await launch(bed, ["w1"])
    bed.throttle(DESCRIBE, ALWAYS)
    seen = await sweep(bed)
    assert not seen.complete
    assert not seen.instances


async def test_a_sweep_that_selects_nothing_is_a_mistake(bed: CloudBed) -> None:
    with pytest.raises(ValueError, match="select"):
        await sweep(bed, InstanceSelection((), ()))


async def test_describing_leaves_gaps_for_unknown_ids(bed: CloudBed) -> None:
    ids = await launch(bed, ["w1", "w2", "w3"])
    seen = await bed.cloud.describe(bed.region, [ids[0], UNKNOWN_ID, ids[2]])
    assert seen.complete
    assert set(seen.instances) == {ids[0], ids[2]}
    assert seen.calls == 1


async def test_describing_no_instances_makes_no_call(bed: CloudBed) -> None:
    await launch(bed, ["w1"])
    before = bed.calls()[DESCRIBE]
    seen = await bed.cloud.describe(bed.region, [])
    assert not seen.instances
    assert seen.calls == 0
    assert bed.calls()[DESCRIBE] == before


async def test_describing_more_than_a_filter_holds(bed: CloudBed) -> None:
    ids = await launch(bed, ["w1", "w2"])
    unknown = [f"i-{number:017x}" for number in range(250)]
    seen = await bed.cloud.describe(bed.region, [ids[0], *unknown, ids[1]])
    assert seen.complete
    assert set(seen.instances) == set(ids)
    assert seen.calls == 2


async def test_describing_and_finding_during_an_outage_proves_nothing(bed: CloudBed) -> None:
    ids = await launch(bed, ["w1"])
    bed.outage(True)
    for seen in (await bed.cloud.describe(bed.region, ids), await bed.cloud.find_launched(bed.region, "w1")):
        assert not seen.complete
        assert seen.error
        assert not seen.instances
