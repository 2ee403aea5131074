"""Images: by name, owner and date."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import CloudAccessDeniedError, CloudUnreachableError
from lcm.core import clock
from tests.support.aws.conformance import ALWAYS, IMAGES, Refusal

if TYPE_CHECKING:
    from tests.support.aws.conformance import CloudBed

STRANGER = "999999999999"
PARTNER = "888888888888"


async def find(bed: CloudBed, pattern: str, *owners: str) -> list[str]:
    return [image.id for image in await bed.cloud.find_images(bed.region, pattern, owners)]


async def test_the_newest_comes_first(bed: CloudBed) -> None:
    now = clock.now().replace(microsecond=0)
    old = await bed.add_image("cml-2.7.0", bed.account_id, now - timedelta(days=30))
    new = await bed.add_image("cml-2.9.0", bed.account_id, now - timedelta(days=1))
    middle = await bed.add_image("cml-2.8.0", bed.account_id, now - timedelta(days=10))
    assert await find(bed, "cml-*", "self") == [new, middle, old]
    [image] = await bed.cloud.find_images(bed.region, "cml-2.9*", ["self"])
    assert (image.id, image.name, image.owner_id) == (new, "cml-2.9.0", bed.account_id)
    assert image.created_at == now - timedelta(days=1)


async def test_a_name_matches_as_a_whole(bed: CloudBed) -> None:
    now = clock.now()
    plain = await bed.add_image("cml-2.9.0", bed.account_id, now)
    await bed.add_image("not-cml-2.9.0", bed.account_id, now)
    await bed.add_image("cml-2.9.0-broken", bed.account_id, now)
    assert await find(bed, "cml-2.9.0", "self") == [plain]
    assert await find(bed, "cml-2.9.?", "self") == [plain]
    assert await find(bed, "no-such-image*", "self") == []


async def test_an_image_of_a_foreign_owner_is_left_out_whatever_its_name_and_date(bed: CloudBed) -> None:
    now = clock.now()
    ours = await bed.add_image("cml-2.9.0", bed.account_id, now - timedelta(days=100))
    await bed.add_image("cml-2.9.0", STRANGER, now)
    assert await find(bed, "cml-*", "self") == [ours]
    assert await find(bed, "cml-*", bed.account_id) == [ours]


async def test_owners_may_be_several(bed: CloudBed) -> None:
    now = clock.now()
    ours = await bed.add_image("cml-2.9.0", bed.account_id, now - timedelta(days=2))
    partners = await bed.add_image("cml-2.9.1", PARTNER, now - timedelta(days=1))
    await bed.add_image("cml-2.9.2", STRANGER, now)
    assert await find(bed, "cml-*", "self", PARTNER) == [partners, ours]
    assert await find(bed, "cml-*", PARTNER) == [partners]


@pytest.mark.parametrize("state", ["pending", "failed", "deregistered"])
async def test_only_available_images_count(bed: CloudBed, state: str) -> None:
    now = clock.now()
    ready = await bed.add_image("cml-2.9.0", bed.account_id, now - timedelta(days=5))
    await bed.add_image("cml-2.9.1", bed.account_id, now, state)
    assert await find(bed, "cml-*", "self") == [ready]


async def test_a_failed_search_is_an_error_and_not_an_empty_result(bed: CloudBed) -> None:
    await bed.add_image("cml-2.9.0", bed.account_id, clock.now())
    bed.refuse(IMAGES, Refusal.DENIED, ALWAYS)
    with pytest.raises(CloudAccessDeniedError):
        await find(bed, "cml-*", "self")
    bed.clear_faults()
    bed.outage(True)
    with pytest.raises(CloudUnreachableError):
        await find(bed, "cml-*", "self")


async def test_an_image_that_was_just_published_is_found(bed: CloudBed) -> None:
    """worker-lifecycle.md#launch-errors: "no image" is not cached."""
    assert await find(bed, "cml-2.9.*", "self") == []
    published = await bed.add_image("cml-2.9.0", bed.account_id, clock.now())
    assert await find(bed, "cml-2.9.*", "self") == [published]


async def test_instance_types_say_what_they_offer_and_unknown_ones_are_left_out(bed: CloudBed) -> None:
    found = await bed.cloud.instance_types(bed.region, ["t3.large", "m5zn.metal", "m8i.2xlarge", "no-such.type"])
    assert {name: (each.cpu_cores, each.memory_gb, each.nested_virtualization) for name, each in found.items()} == {
        "t3.large": (2, 8.0, False),
        "m5zn.metal": (48, 192.0, False),
        "m8i.2xlarge": (8, 32.0, True),
    }
    assert await bed.cloud.instance_types(bed.region, []) == {}
