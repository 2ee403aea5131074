"""`lcm config check` makes mutating calls only as dry runs, against EC2's API over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from moto.ec2.responses._base_response import EC2BaseResponse

from lcm.cli.config.check_aws import check_cloud
from lcm.wiring.worker_controller import WorkerControllerComponentSettings
from tests.support.aws.conformance_aws import AwsBed, open_bed
from tests.support.aws.credentials import REGION
from tests.support.aws.server import CHANGES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lcm.cli.config.check import Finding

PART = f"AWS {REGION}"


@pytest.fixture
async def bed() -> AsyncIterator[AwsBed]:
    async with open_bed() as opened:
        yield opened


async def checked(bed: AwsBed, **region: Any) -> list[Finding]:
    """The findings. In every case only reads and dry runs were sent."""
    before = await bed.live_instances()
    sent = len(bed.server.forms)
    regions = {REGION: {"endpoint_url": bed.server.url, **region}}
    settings = WorkerControllerComponentSettings(
        cloud_provider="aws", aws_region_configs=json.dumps(regions), ami_name_pattern="lcm-bed"
    )
    found = [finding async for finding in check_cloud(settings)]
    assert await bed.live_instances() == before
    changing = [form for form in bed.server.forms[sent:] if form.get("Action") in CHANGES]
    assert all(form["DryRun"] == "true" for form in changing)
    return found


def about(found: list[Finding], words: str) -> Finding:
    (finding,) = [each for each in found if words in each.says]
    return finding


async def test_all_is_allowed(bed: AwsBed) -> None:
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    await bed.eventually(lambda: bed.state(instance.id) == "running", "it runs")
    found = await checked(bed, subnet_ids=list(bed.subnets), default_tags={"team": "labs"})
    assert all(finding.ok and not finding.note for finding in found), found
    launching = about(found, "launching is allowed")
    assert all(subnet in launching.says for subnet in bed.subnets)
    changing = about(found, "starting, stopping, terminating")
    assert f"(checked with {instance.id})" in changing.says
    assert bed.state(instance.id) == "running"
    *_, first, second = [form for form in bed.server.forms if form.get("Action") == "RunInstances"]
    assert [first["SubnetId"], second["SubnetId"]] == list(bed.subnets)
    tags = {first[key]: first[key.replace(".Key", ".Value")] for key in first if key.endswith(".Key")}
    assert tags["team"] == "labs"
    assert {"lcm:managed_by", "lcm:worker_id", "lcm:attempt", "lcm:installation"} <= set(tags)
    assert first["ClientToken"] != second["ClientToken"]


@pytest.mark.parametrize(
    ("operation", "words"),
    [("RunInstances", "launching"), ("StopInstances", "stopping"), ("StartInstances", "starting")],
)
async def test_what_is_not_allowed_is_named_with_the_policy(bed: AwsBed, operation: str, words: str) -> None:
    await bed.cloud.launch_instance(bed.parameters("w1"))
    bed.server.refuse(operation, "UnauthorizedOperation", times=1)
    (wrong,) = [finding for finding in await checked(bed) if not finding.ok]
    assert f"not allowed: {words}" in wrong.says
    assert (f"ec2:{operation}" in wrong.remedy, "deploy/iam-policy.json" in wrong.remedy) == (True, True)


@pytest.mark.parametrize("answer", [None, "UnauthorizedOperation"])
async def test_without_a_managed_instance_the_rest_is_a_note(bed: AwsBed, answer: str | None) -> None:
    """A policy that depends on tags denies an instance without tags."""
    if answer is not None:
        bed.server.refuse("StopInstances", answer, times=1)
    found = await checked(bed)
    assert all(finding.ok for finding in found), found
    note = about(found, "without a managed instance")
    assert (note.note, "starting, stopping, terminating" in note.says) == (True, True)


async def test_an_instance_that_has_just_gone_is_a_note(bed: AwsBed) -> None:
    await bed.cloud.launch_instance(bed.parameters("w1"))
    bed.server.refuse("TerminateInstances", "InvalidInstanceID.NotFound", times=1)
    note = about(await checked(bed), "could not be determined")
    assert (note.ok, note.note, "InvalidInstanceID.NotFound" in note.says) == (True, True, True)


async def test_a_subnet_that_is_not_there_is_wrong_and_the_other_is_right(bed: AwsBed) -> None:
    found = await checked(bed, subnet_ids=["subnet-0000000000000000f", bed.subnets[0]])
    (wrong,) = [finding for finding in found if not finding.ok]
    assert "into subnet-0000000000000000f would be rejected" in wrong.says
    assert "AWS_REGION_CONFIGS" in wrong.remedy
    assert bed.subnets[0] in about(found, "launching is allowed").says


async def test_the_role_of_the_region_is_used(bed: AwsBed) -> None:
    other = "arn:aws:iam::210987654321:role/lcm-controller-test"
    found = await checked(bed, role_arn=other)
    assert "account 210987654321" in found[0].says
    assert bed.calls()["AssumeRole"] == 1


async def test_an_endpoint_that_ignores_dry_run_is_not_called(bed: AwsBed, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    asked = bed.calls()
    monkeypatch.setattr(EC2BaseResponse, "error_on_dryrun", lambda _: None)
    note = about(await checked(bed), "was not checked")
    assert (note.ok, note.note) == (True, True)
    assert all(bed.calls()[operation] == asked[operation] for operation in CHANGES)
    assert bed.state(instance.id) in ("pending", "running")


async def test_findings_are_printed_one_per_line(bed: AwsBed, tmp_path: Path) -> None:
    """As a command: notes are marked and do not fail the check."""
    bed.server.refuse("RunInstances", "RequestLimitExceeded", times=10)
    names = ("PATH", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED")
    env = {
        **{name: os.environ[name] for name in names if name in os.environ},
        "HOME": str(tmp_path),
        "PYTHONUTF8": "1",
        "COLUMNS": "300",
        "LCM_DATA_DIR": str(tmp_path / "data"),
        "CLOUD_PROVIDER": "aws",
        "AWS_ENDPOINT_URL": bed.server.url,
        "AWS_DEFAULT_REGION": REGION,
        "AMI_NAME_PATTERN": "lcm-bed",
    }
    command = [sys.executable, "-m", "lcm", "config", "check", "up"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    notes = [line for line in done.stdout.splitlines() if line.startswith("note")]
    assert len(notes) == 2
    assert all(PART in line for line in notes)
    assert "RequestLimitExceeded" in notes[0]
