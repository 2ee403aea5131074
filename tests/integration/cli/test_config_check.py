"""`lcm config check` against what a service really needs: AWS, etcd, MongoDB, the control plane and CML servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from lcm.cli.config.check import check_control_plane, check_store
from lcm.cli.config.check_aws import check_cloud
from lcm.wiring.control_plane import ControlPlaneComponentSettings
from lcm.wiring.worker_controller import WorkerControllerComponentSettings
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed, open_bed
from tests.support.aws.credentials import REGION
from tests.support.servers.control_plane import CONTROLLER
from tests.support.servers.etcd import EtcdServer, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.servers.control_plane import ControlPlaneProcess, FakeWorkerController


@pytest.fixture
async def bed() -> AsyncIterator[AwsBed]:
    async with open_bed() as opened:
        yield opened


def on_aws(bed: AwsBed, pattern: str = "lcm-bed") -> WorkerControllerComponentSettings:
    return WorkerControllerComponentSettings(
        cloud_provider="aws", aws_endpoint_url=bed.server.url, aws_default_region=REGION, ami_name_pattern=pattern
    )


async def test_aws_account_and_read_permissions(bed: AwsBed) -> None:
    found = [finding async for finding in check_cloud(on_aws(bed))]
    assert all(finding.ok for finding in found), found
    assert f"account {ACCOUNT}" in found[0].says
    assert "reading is allowed" in found[1].says
    assert "lcm-bed" in found[2].says
    assert "nested virtualization is supported: template nested-medium (m8i.2xlarge)" in found[-1].says


async def test_a_missing_image(bed: AwsBed) -> None:
    found = [finding async for finding in check_cloud(on_aws(bed, "no-such-*"))]
    (wrong,) = [finding for finding in found if not finding.ok]
    assert "AMI_NAME_PATTERN" in wrong.remedy
    (note,) = [finding for finding in found if "to launch" in finding.says]
    assert (note.note, "there is no image" in note.says) == (True, True)
    assert "RunInstances" not in bed.calls()


async def test_denied_calls_are_reported_with_the_policy(bed: AwsBed) -> None:
    bed.server.refuse("DescribeInstanceStatus", "UnauthorizedOperation", times=10)
    wrong = [finding async for finding in check_cloud(on_aws(bed)) if not finding.ok]
    assert len(wrong) == 1
    assert "iam-policy.json" in wrong[0].remedy


def test_a_control_plane_and_its_etcd(plane: ControlPlaneProcess, etcd_server: EtcdServer, tmp_path: Path) -> None:
    """As a command: one line per part, a remedy for each problem, and the exit code."""
    folder = {"LCM_DATA_DIR": str(tmp_path / "data")}
    nowhere = {**folder, "ETCD_ENDPOINTS": f"127.0.0.1:{free_ports(1)[0]}"}
    wrong = plane.lcm("config", "check", "control-plane", check=False, env=nowhere)
    assert wrong.returncode == 1
    assert "WRONG  etcd" in wrong.stdout
    assert "start it, or name the right members: ETCD_ENDPOINTS=" in wrong.stdout
    assert not (tmp_path / "data").exists(), "nothing was made"

    here = {**folder, "ETCD_ENDPOINTS": etcd_server.endpoint}
    findings = json.loads(plane.lcm("config", "check", "control-plane", "-o", "json", env=here).stdout)
    assert [finding["part"] for finding in findings] == [
        "settings",
        "etcd",
        "data folder",
        "store",
        "secret key",
        "regions",
    ]
    assert all(finding["ok"] for finding in findings)


async def test_mongodb(mongodb_uri: str, tmp_path: Path) -> None:
    unreachable = f"mongodb://me:s3cret@127.0.0.1:{free_ports(1)[0]}/?serverSelectionTimeoutMS=200"
    wrong = await check_store(ControlPlaneComponentSettings(store_url=unreachable, lcm_data_dir=tmp_path))
    assert not wrong.ok
    assert "s3cret" not in repr(wrong)
    right = await check_store(ControlPlaneComponentSettings(store_url=mongodb_uri, lcm_data_dir=tmp_path))
    assert (right.ok, "replica set" in right.says) == (True, True)


async def test_the_controllers_token_and_cml(plane: ControlPlaneProcess, controller: FakeWorkerController) -> None:
    settings = WorkerControllerComponentSettings(
        control_plane_api_url=plane.url,
        lcm_controller_token=SecretStr(CONTROLLER),
        cml_default_password=SecretStr("simulated"),
    )
    found = [finding async for finding in check_control_plane(settings)]
    assert [(finding.part, finding.ok) for finding in found] == [("control plane", True), ("CML", True)]
    stranger = settings.model_copy(update={"lcm_controller_token": SecretStr("another-users-token-0123456789")})
    (refused,) = [finding async for finding in check_control_plane(stranger)]
    assert (refused.ok, "LCM_CONTROLLER_TOKEN" in refused.remedy) == (False, True)
