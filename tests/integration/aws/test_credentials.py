"""Credentials that are not there yet, or not any more: calls fail until they are there, and then work again.

Reference: worker-lifecycle.md#launch-errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.aws import clients, gateway
from lcm.cloud.errors import CloudError, CloudRefusedError
from lcm.cloud.types import InstanceSelection
from tests.support.aws.conformance import IDENTITY
from tests.support.aws.conformance_aws import TUNING, open_bed
from tests.support.aws.metadata_service import metadata_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.aws.conformance_aws import AwsBed
    from tests.support.aws.metadata_service import MetadataService

ROLE = "arn:aws:iam::210987654321:role/lcm-controller-test"
# Every sweep after the first uses the poller process.
POLLING = replace(TUNING, process_page=5, poller_above=0)


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataService]:
    """The only source of credentials, silent at first."""
    with metadata_service() as service:
        service.silent = True
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        yield service


@pytest.fixture
async def bed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AwsBed]:
    async with open_bed(POLLING) as opened:
        monkeypatch.setattr(gateway, "REFUSED_CLIENT_SECONDS", 0.0)
        yield opened


@pytest.mark.parametrize("role", [None, ROLE])
async def test_a_metadata_service_that_is_silent_at_start_is_asked_again(
    bed: AwsBed, metadata: MetadataService, monkeypatch: pytest.MonkeyPatch, role: str | None
) -> None:
    """With the next call, not only when a client whose credentials were refused may be replaced."""
    monkeypatch.setattr(gateway, "REFUSED_CLIENT_SECONDS", 3600.0)
    cloud = bed.another_provider(role_arn=role)
    with pytest.raises(CloudError) as silent:
        await cloud.launch_instance(bed.parameters("w1"))
    assert not isinstance(silent.value, CloudRefusedError)
    sweep = await cloud.sweep(bed.region, InstanceSelection())
    assert not sweep.complete
    assert "credentials" in sweep.error
    assert not bed.calls(), "nothing is sent without credentials"
    metadata.silent = False
    with pytest.raises(CloudError) as answered:
        await cloud.stop_instance(bed.region, "i-0123456789abcdef0")
    assert "InvalidInstanceID.NotFound" in str(answered.value), "EC2 itself responds now"
    assert (await cloud.sweep(bed.region, InstanceSelection())).complete
    await cloud.close()


async def test_the_poller_process_asks_again_too(bed: AwsBed, metadata: MetadataService) -> None:
    metadata.silent = False
    cloud = bed.another_provider()
    await cloud.launch_instance(bed.parameters("w1"))
    metadata.silent = True
    assert (await cloud.sweep(bed.region, InstanceSelection())).complete
    assert cloud.poller_pid(bed.region) is None
    assert not (await cloud.sweep(bed.region, InstanceSelection())).complete
    assert cloud.poller_pid(bed.region) is not None, "its client had no credentials"
    metadata.silent = False
    assert (await cloud.sweep(bed.region, InstanceSelection())).complete
    await cloud.close()


async def test_credentials_that_were_renewed_in_their_file_are_read_again(
    bed: AwsBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    _write_profile(file, "first")
    cloud = bed.another_provider()
    await cloud.launch_instance(bed.parameters("w1"))
    assert (await cloud.sweep(bed.region, InstanceSelection())).complete
    assert (await cloud.sweep(bed.region, InstanceSelection())).complete, "by the poller process"
    bed.server.expired_keys.add("first")
    with pytest.raises(CloudError) as expired:
        await cloud.stop_instance(bed.region, "i-0123456789abcdef0")
    assert not isinstance(expired.value, CloudRefusedError)
    assert not (await cloud.sweep(bed.region, InstanceSelection())).complete
    _write_profile(file, "second")
    with pytest.raises(CloudError):
        # One more call may still use the old ones; it learns that they have expired.
        await cloud.stop_instance(bed.region, "i-0123456789abcdef0")
    assert (await cloud.launch_instance(bed.parameters("w2"))).worker_id == "w2"
    assert (await cloud.sweep(bed.region, InstanceSelection())).complete
    await cloud.close()


async def test_refused_credentials_do_not_make_a_client_for_every_call(
    bed: AwsBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one takes a quarter of a second of CPU time: a large fleet would do nothing else."""
    monkeypatch.setattr(gateway, "REFUSED_CLIENT_SECONDS", 3600.0)
    bed.server.expired_keys.add("test")
    made = 0
    make = clients.new_client

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal made
        made += 1
        return make(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(gateway, "new_client", counted)
    for _ in range(5):
        with pytest.raises(CloudError):
            await bed.cloud.account_id(bed.region)
    assert bed.calls()[IDENTITY] == 5
    assert made == 1


def _write_profile(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")
