"""Images: the newest of the given owner, whatever others publish under the same name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import InvalidCloudRequestError
from tests.support.aws.conformance import IMAGES
from tests.support.aws.ec2_rules import RULES

if TYPE_CHECKING:
    from tests.support.aws.conformance_aws import AwsBed

STRANGER = "666666666666"
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_strangers_image_is_refused_even_if_the_server_shows_it(bed: AwsBed) -> None:
    ours = await bed.add_image("cml-2.9.1", bed.account_id, BEGINNING)
    await bed.add_image("cml-2.9.1", STRANGER, BEGINNING + timedelta(days=30))
    RULES.ignore_owners = True
    assert [image.id for image in await bed.cloud.find_images(bed.region, "cml-*", ["self"])] == [ours]
    assert not await bed.cloud.find_images(bed.region, "cml-*", ["111111111111"])


async def test_a_search_without_an_owner_is_rejected(bed: AwsBed) -> None:
    with pytest.raises(InvalidCloudRequestError):
        await bed.cloud.find_images(bed.region, "cml-*", [])
    assert IMAGES not in bed.calls()


async def test_all_pages_are_read_and_the_newest_comes_first(bed: AwsBed) -> None:
    RULES.image_page = 2
    ids = [await bed.add_image("cml", bed.account_id, BEGINNING + timedelta(days=day)) for day in (3, 1, 4, 0, 2)]
    found = await bed.cloud.find_images(bed.region, "cml", ["self"])
    assert [image.id for image in found] == [ids[2], ids[0], ids[4], ids[1], ids[3]]
    assert bed.calls()[IMAGES] == 3


async def test_results_are_cached_for_a_while(bed: AwsBed) -> None:
    await bed.add_image("cml", bed.account_id, BEGINNING)
    for _ in range(3):
        assert len(await bed.cloud.find_images(bed.region, "cml", ["self"])) == 1
    assert bed.calls()[IMAGES] == 1
    await bed.cloud.find_images(bed.region, "other", ["self"])
    assert bed.calls()[IMAGES] == 2
