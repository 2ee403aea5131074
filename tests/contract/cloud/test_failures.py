"""Failures, distinguished by what is known about the effect of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudAuthenticationError,
    CloudError,
    CloudOutcomeUnknownError,
    CloudRefusedError,
    CloudThrottledError,
    CloudUnreachableError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
    QuotaExceededError,
    UnsupportedInZoneError,
)
from tests.support.aws.conformance import ALWAYS, IDENTITY, IMAGES, RUN, STATUS, STOP, Refusal

if TYPE_CHECKING:
    from tests.support.aws.conformance import CloudBed


async def test_calls_run_as_the_account(bed: CloudBed) -> None:
    assert await bed.cloud.account_id(bed.region) == bed.account_id


async def test_the_region_is_configured(bed: CloudBed) -> None:
    assert bed.region in bed.cloud.regions


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (Refusal.CAPACITY, InsufficientCapacityError),
        (Refusal.QUOTA, QuotaExceededError),
        (Refusal.DENIED, CloudAccessDeniedError),
        (Refusal.EXPIRED, CloudAuthenticationError),
        (Refusal.UNSUPPORTED, UnsupportedInZoneError),
        (Refusal.INVALID, InvalidCloudRequestError),
        (Refusal.INTERNAL, CloudOutcomeUnknownError),
    ],
)
async def test_each_refusal_of_a_launch_has_its_error(bed: CloudBed, refusal: Refusal, error: type[CloudError]) -> None:
    bed.refuse(RUN, refusal, 1)
    with pytest.raises(error) as refused:
        await bed.cloud.launch_instance(bed.parameters("w1"))
    assert type(refused.value) is error
    assert refused.value.operation == RUN
    assert refused.value.code == refusal.value
    assert await bed.live_instances() == []


async def test_capacity_is_no_refusal_for_good(bed: CloudBed) -> None:
    bed.refuse(RUN, Refusal.CAPACITY, 1)
    with pytest.raises(InsufficientCapacityError) as lacking:
        await bed.cloud.launch_instance(bed.parameters("w1"))
    assert not isinstance(lacking.value, CloudRefusedError)


async def test_a_read_that_stays_throttled_says_so(bed: CloudBed) -> None:
    for operation in (IMAGES, STATUS):
        bed.throttle(operation, ALWAYS)
    with pytest.raises(CloudThrottledError):
        await bed.cloud.find_images(bed.region, "*", ["self"])
    with pytest.raises(CloudThrottledError):
        await bed.cloud.health(bed.region)


async def test_a_read_that_fails_inside_the_provider_changed_nothing(bed: CloudBed) -> None:
    bed.refuse(IMAGES, Refusal.INTERNAL, ALWAYS)
    with pytest.raises(CloudUnreachableError):
        await bed.cloud.find_images(bed.region, "*", ["self"])


async def test_an_outage_changes_nothing_and_ends(bed: CloudBed) -> None:
    launched = await bed.cloud.launch_instance(bed.parameters("w1"))
    calls = bed.calls()[RUN]
    bed.outage(True)
    with pytest.raises(CloudUnreachableError):
        await bed.cloud.launch_instance(bed.parameters("w2"))
    with pytest.raises(CloudUnreachableError):
        await bed.cloud.terminate_instance(bed.region, launched.id)
    assert await bed.live_instances() == [launched.id]
    assert bed.calls()[RUN] == calls
    bed.outage(False)
    second = await bed.cloud.launch_instance(bed.parameters("w2"))
    assert await bed.live_instances() == sorted([launched.id, second.id])


async def test_a_denied_call_is_an_access_error(bed: CloudBed) -> None:
    bed.refuse(STOP, Refusal.DENIED, 1)
    with pytest.raises(CloudAccessDeniedError) as denied:
        await bed.cloud.stop_instance(bed.region, "i-0123456789abcdef0")
    assert STOP in str(denied.value)


async def test_expired_credentials_name_no_account(bed: CloudBed) -> None:
    bed.refuse(IDENTITY, Refusal.EXPIRED, ALWAYS)
    with pytest.raises(CloudAuthenticationError):
        await bed.cloud.account_id(bed.region)
    bed.clear_faults()
    assert await bed.cloud.account_id(bed.region) == bed.account_id


async def test_closing_twice_is_allowed(bed: CloudBed) -> None:
    await bed.cloud.close()
    await bed.cloud.close()
