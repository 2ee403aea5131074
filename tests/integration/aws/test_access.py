"""Which credentials and endpoints calls use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.cloud.aws import AwsConfig, AwsProvider
from lcm.cloud.errors import CloudAuthenticationError, CloudUnreachableError
from lcm.cloud.types import InstanceSelection
from tests.support.aws.conformance import IDENTITY, RUN, Refusal

if TYPE_CHECKING:
    from tests.support.aws.conformance_aws import AwsBed

OTHER = "210987654321"
ROLE = f"arn:aws:iam::{OTHER}:role/lcm-controller-test"
ASSUME = "AssumeRole"


async def test_a_role_is_assumed_once_and_used(bed: AwsBed) -> None:
    cloud = bed.another_provider(role_arn=ROLE, external_id="shared-word")
    assert await cloud.account_id(bed.region) == OTHER
    assert await bed.cloud.account_id(bed.region) == bed.account_id
    await bed.cloud.launch_instance(bed.parameters("w1"))
    assert len((await bed.cloud.sweep(bed.region, InstanceSelection())).instances) == 1
    assert not (await cloud.sweep(bed.region, InstanceSelection())).instances, "the other account has none"
    await cloud.close()
    assert bed.calls()[ASSUME] == 1
    (form,) = [form for form in bed.server.forms if form.get("Action") == ASSUME]
    assert form["RoleArn"] == ROLE
    assert form["ExternalId"] == "shared-word"
    assert form["RoleSessionName"] == f"lcm-{bed.region}"


async def test_a_role_that_may_not_be_assumed_is_no_answer_to_the_call(bed: AwsBed) -> None:
    bed.refuse(ASSUME, Refusal.DENIED, 10)
    cloud = bed.another_provider(role_arn=ROLE)
    with pytest.raises(CloudAuthenticationError, match="AssumeRole"):
        await cloud.launch_instance(bed.parameters("w1"))
    sweep = await cloud.sweep(bed.region, InstanceSelection())
    assert not sweep.complete
    await cloud.close()
    assert RUN not in bed.calls()


async def test_without_credentials_nothing_is_sent(bed: AwsBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for changes in ({}, {"role_arn": ROLE}):
        cloud = bed.another_provider(**changes)
        with pytest.raises(CloudAuthenticationError):
            await cloud.launch_instance(bed.parameters("w1"))
        await cloud.close()
    assert not bed.calls()


async def test_the_endpoint_of_the_region_is_used(bed: AwsBed) -> None:
    assert await bed.cloud.account_id(bed.region) == bed.account_id
    assert bed.calls()[IDENTITY] == 1
    nowhere = bed.another_provider(endpoint_url="http://127.0.0.1:9")
    with pytest.raises(CloudUnreachableError):
        await nowhere.account_id(bed.region)
    await nowhere.close()


async def test_the_endpoint_of_the_environment_is_used(bed: AwsBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bed.server.url)
    cloud = AwsProvider(AwsConfig.load(None, bed.region))
    assert await cloud.account_id(bed.region) == bed.account_id
    assert bed.calls()[IDENTITY] == 1
    await cloud.close()


async def test_regions_written_out_are_used(bed: AwsBed) -> None:
    text = f'{{"{bed.region}": {{"endpoint_url": "{bed.server.url}"}}, "us-east-1": null}}'
    cloud = AwsProvider(AwsConfig.load(text))
    assert list(cloud.regions) == [bed.region, "us-east-1"]
    assert await cloud.account_id(bed.region) == bed.account_id
    await cloud.close()
