"""RunInstances requests and parsed instances, against botocore's own models and without a socket."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from lcm.cloud.aws.instances import instance_from_row, row_from_description
from lcm.cloud.aws.mutations import run_instances_request
from lcm.cloud.types import METADATA_HOP_LIMIT, InstanceState, LaunchParameters

LAUNCHED = datetime(2026, 1, 1, tzinfo=UTC)
PARAMETERS = LaunchParameters(
    region="eu-central-1",
    client_token="lcm-w1-1",
    image_id="ami-1",
    instance_type="m5zn.metal",
    subnet_id="subnet-1",
    security_group_ids=("sg-1", "sg-2"),
    key_name="cml-workers",
    tags={"lcm:worker_id": "w1", "Name": "cml-1", "lcm:attempt": "1"},
    root_volume_gb=200,
    instance_profile="lcm-instance-cml",
)


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    return session.create_client("ec2", region_name="eu-central-1")


def test_the_request_fits_botocores_model(ec2: Any) -> None:
    request = run_instances_request(PARAMETERS, "/dev/sda1")
    described = {"InstanceId": "i-1", "State": {"Name": "pending", "Code": 0}, "LaunchTime": LAUNCHED}
    with Stubber(ec2) as stubber:
        stubber.add_response("run_instances", {"Instances": [described]}, request)
        answer = ec2.run_instances(**request)
    assert instance_from_row(row_from_description(answer["Instances"][0])).state is InstanceState.PENDING
    assert request["BlockDeviceMappings"] == [
        {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 200, "DeleteOnTermination": True}}
    ]
    assert request["IamInstanceProfile"] == {"Name": "lcm-instance-cml"}


def test_the_metadata_service_answers_only_to_tokens_and_only_on_the_host(ec2: Any) -> None:
    request = run_instances_request(replace(PARAMETERS, metadata_hop_limit=METADATA_HOP_LIMIT), "/dev/sda1")
    assert request["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
    }
    with Stubber(ec2) as stubber:
        stubber.add_response("run_instances", {"Instances": []}, request)
        ec2.run_instances(**request)


def test_an_attempt_recorded_before_an_upgrade_is_replayed_as_it_was() -> None:
    """EC2 refuses a client token with other parameters: nothing may be added to an attempt that was recorded."""
    stored: dict[str, Any] = {
        "region": "eu-central-1",
        "client_token": "lcm-w1-1",
        "image_id": "ami-1",
        "instance_type": "m5zn.metal",
        "subnet_id": None,
        "security_group_ids": [],
        "key_name": None,
        "tags": {"Name": "cml-1"},
        "root_volume_gb": None,
        "instance_profile": None,
    }
    parameters = LaunchParameters.from_json(stored)
    assert "MetadataOptions" not in run_instances_request(parameters, None)
    assert parameters.to_json() == stored
    new = replace(parameters, metadata_hop_limit=METADATA_HOP_LIMIT)
    assert LaunchParameters.from_json(new.to_json()) == new


def test_tags_are_sorted_and_the_same_for_instance_and_volume() -> None:
    instance, volume = run_instances_request(PARAMETERS, "/dev/sda1")["TagSpecifications"]
    assert (instance["ResourceType"], volume["ResourceType"]) == ("instance", "volume")
    assert instance["Tags"] == volume["Tags"]
    assert [tag["Key"] for tag in instance["Tags"]] == ["Name", "lcm:attempt", "lcm:worker_id"]


def test_missing_parameters_are_not_sent() -> None:
    bare = replace(
        PARAMETERS,
        subnet_id=None,
        security_group_ids=(),
        key_name=None,
        root_volume_gb=None,
        instance_profile="arn:aws:iam::123456789012:instance-profile/cml",
    )
    request = run_instances_request(bare, None)
    assert sorted(request) == [
        "ClientToken",
        "IamInstanceProfile",
        "ImageId",
        "InstanceType",
        "MaxCount",
        "MinCount",
        "TagSpecifications",
    ]
    assert request["IamInstanceProfile"] == {"Arn": bare.instance_profile}


def test_a_description_with_gaps_is_read() -> None:
    instance = instance_from_row(
        row_from_description({"InstanceId": "i-1", "LaunchTime": LAUNCHED, "PublicIpAddress": ""})
    )
    assert instance.state is InstanceState.UNKNOWN
    assert instance.public_ip is None
    assert instance.tags == {}
    assert instance.launched_at == LAUNCHED


def test_an_unrecognized_state_is_unknown() -> None:
    described = {"InstanceId": "i-1", "LaunchTime": LAUNCHED, "State": {"Name": "hibernating-in-space"}}
    assert instance_from_row(row_from_description(described)).state is InstanceState.UNKNOWN


def test_the_interface_does_not_need_aws() -> None:
    code = "import sys, lcm.cloud, lcm.cloud.spi, lcm.cloud.types; sys.exit('botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nested_virtualization_is_requested_in_botocores_words(ec2: Any) -> None:
    nested = replace(PARAMETERS, instance_type="m8i.2xlarge", nested_virtualization=True)
    request = run_instances_request(nested, "/dev/sda1")
    assert request["CpuOptions"] == {"NestedVirtualization": "enabled"}
    options = ec2.meta.service_model.shape_for("CpuOptionsRequest").members["NestedVirtualization"]
    assert "enabled" in options.enum
    processor = ec2.meta.service_model.shape_for("ProcessorInfo")
    assert "nested-virtualization" in processor.members["SupportedFeatures"].member.enum


def test_an_attempt_without_it_is_stored_and_replayed_as_before() -> None:
    """A client token is valid for one request only: attempts that an earlier version stored must give the same one."""
    stored = PARAMETERS.to_json()
    assert "nested_virtualization" not in stored
    replayed = LaunchParameters.from_json(json.loads(json.dumps(stored)))
    assert run_instances_request(replayed, "/dev/sda1") == run_instances_request(PARAMETERS, "/dev/sda1")
    assert "CpuOptions" not in run_instances_request(replayed, "/dev/sda1")


def test_an_attempt_with_it_is_replayed_with_it() -> None:
    nested = replace(PARAMETERS, nested_virtualization=True)
    stored = json.loads(json.dumps(nested.to_json()))
    assert stored["nested_virtualization"] is True
    again = run_instances_request(LaunchParameters.from_json(stored), "/dev/sda1")
    assert json.dumps(again) == json.dumps(run_instances_request(nested, "/dev/sda1"))
