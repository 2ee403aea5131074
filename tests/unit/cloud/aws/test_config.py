"""AWS_REGION_CONFIGS: valid values, and one-line errors for invalid ones."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cloud.aws.config import AwsConfig, AwsConfigError

if TYPE_CHECKING:
    from pathlib import Path

FULL: dict[str, Any] = {
    "security_group_ids": ["sg-0a1b", "sg-0c2d"],
    "subnet_ids": ["subnet-0a1b", "subnet-0c2d"],
    "key_name": "cml-workers",
    "default_tags": {"environment": "production", "team": ""},
    "role_arn": "arn:aws:iam::123456789012:role/lcm-controller-prod",
    "external_id": "shared-word",
    "endpoint_url": "http://127.0.0.1:5000",
    "instance_profile": "lcm-instance-cml",
}

YAML = """
aws_region_configs:
  eu-central-1:
    region: eu-central-1
    security_group_ids: ["sg-abc123"]
    subnet_id: "subnet-xyz789"
    key_name: "cml-workers"
    default_tags:
      environment: "production"
  us-gov-west-1:
"""


def test_a_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "regions.yaml"
    path.write_text(YAML, encoding="utf-8")
    config = AwsConfig.load(str(path), "us-east-1")
    assert list(config.regions) == ["eu-central-1", "us-gov-west-1"]
    region = config.regions["eu-central-1"]
    assert region.security_group_ids == ("sg-abc123",)
    assert region.subnet_ids == ("subnet-xyz789",)
    assert region.key_name == "cml-workers"
    assert region.default_tags == {"environment": "production"}
    assert config.regions["us-gov-west-1"].subnet_ids == ()


def test_json_in_place() -> None:
    config = AwsConfig.load(json.dumps({"eu-central-1": FULL, "us-east-1": {"subnet_id": None}}))
    region = config.regions["eu-central-1"]
    assert region.model_dump(mode="json") == {"region": "eu-central-1", **FULL}
    assert config.regions["us-east-1"].subnet_ids == ()


def test_the_default_region_alone() -> None:
    for unset in (None, "", "  "):
        config = AwsConfig.load(unset, " eu-west-1 ")
        assert list(config.regions) == ["eu-west-1"]
        assert config.regions["eu-west-1"].region == "eu-west-1"


def inline(**fields: Any) -> str:
    return json.dumps({"eu-central-1": fields})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"eu-central-1": ', "AWS_REGION_CONFIGS: not JSON"),
        ("[]", "must be a mapping of region names"),
        ("{}", "must be a mapping of region names"),
        ('{"eu-central-1": []}', "eu-central-1: must be a mapping, not list"),
        ('{"Frankfurt": {}}', r"Frankfurt\.region: .*'Frankfurt'"),
        (inline(region="us-east-1"), r"eu-central-1\.region: must be 'eu-central-1', .*'us-east-1'"),
        (inline(security_group_ids="sg-1"), r"eu-central-1\.security_group_ids: .*tuple.*'sg-1'"),
        (inline(security_group_ids=["web"]), r"eu-central-1\.security_group_ids\.0: .*'web'"),
        (inline(subnet_id="vpc-1"), r"eu-central-1\.subnet_ids\.0: .*'vpc-1'"),
        (inline(subnet_id="subnet-1", subnet_ids=[]), "subnet_id and subnet_ids are mutually exclusive$"),
        (inline(key_name=7), r"eu-central-1\.key_name: .*7"),
        (inline(default_tags={"team": 1}), r"eu-central-1\.default_tags\.team: .*1"),
        (inline(default_tags={"lcm:worker_id": "x"}), r"default_tags must not set 'lcm:worker_id'"),
        (inline(default_tags={"aws:x": "x"}), r"default_tags must not set 'aws:x': this prefix is reserved$"),
        (inline(role_arn="lcm"), r"eu-central-1\.role_arn: .*'lcm'"),
        (inline(external_id="x"), "external_id requires role_arn$"),
        (inline(endpoint_url="localhost"), r"eu-central-1\.endpoint_url: .*'localhost'"),
        (inline(subnets=["subnet-1"]), r"eu-central-1\.subnets: Extra inputs are not permitted"),
    ],
)
def test_errors_are_one_line_with_the_field(text: str, says: str) -> None:
    with pytest.raises(AwsConfigError) as wrong:
        AwsConfig.load(text)
    assert re.search(says, str(wrong.value)), str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(AwsConfigError, match=r"AWS_REGION_CONFIGS=/absent.yaml: must be JSON or a readable YAML file"):
        AwsConfig.load("/absent.yaml")
    path = tmp_path / "regions.yaml"
    path.write_text("eu-central-1:\n  key_name: [\n", encoding="utf-8")
    with pytest.raises(AwsConfigError, match=r"regions.yaml: not YAML at line 3"):
        AwsConfig.load(str(path))
    path.write_text("- eu-central-1\n", encoding="utf-8")
    with pytest.raises(AwsConfigError, match=r"regions.yaml: must be a mapping"):
        AwsConfig.load(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AwsConfigError, match=r"must be JSON or a readable YAML file: not text"):
        AwsConfig.load(str(path))


def test_no_region_at_all() -> None:
    with pytest.raises(AwsConfigError, match="AWS_REGION_CONFIGS or AWS_DEFAULT_REGION"):
        AwsConfig.load(None, None)
    with pytest.raises(AwsConfigError, match=r"AWS_DEFAULT_REGION: frankfurt.region"):
        AwsConfig.load(None, "frankfurt")
