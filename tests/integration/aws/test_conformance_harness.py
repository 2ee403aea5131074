"""The test bed itself: moto behaves like EC2 where it was patched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from lcm.cloud.types import WORKER_TAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.aws.conformance_aws import AwsBed

UNKNOWN = "i-0123456789abcdef0"


def client(bed: AwsBed, service: str) -> Any:
    return botocore.session.Session().create_client(service, region_name=bed.region, endpoint_url=bed.server.url)


@pytest.fixture
def ec2(bed: AwsBed) -> Iterator[Any]:
    made = client(bed, "ec2")
    yield made
    made.close()


def tag_filter(*values: str) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{WORKER_TAG}", "Values": list(values)}]


@pytest.mark.parametrize(
    ("operation", "parameters", "code"),
    [
        ("describe_instances", {"InstanceIds": ["i-bad"]}, "InvalidInstanceID.Malformed"),
        ("describe_instances", {"InstanceIds": [UNKNOWN]}, "InvalidInstanceID.NotFound"),
        ("stop_instances", {"InstanceIds": ["worker"]}, "InvalidInstanceID.Malformed"),
        ("describe_instances", {"MaxResults": 3}, "InvalidParameterValue"),
        ("describe_instances", {"MaxResults": 1001}, "InvalidParameterValue"),
        ("describe_instances", {"NextToken": "bogus"}, "InvalidParameterValue"),
        ("describe_instances", {"Filters": [{"Name": "colour", "Values": ["red"]}]}, "InvalidParameterValue"),
        ("describe_instances", {"Filters": tag_filter(*map(str, range(201)))}, "FilterLimitExceeded"),
        ("describe_instance_status", {"Filters": tag_filter("w1")}, "InvalidParameterValue"),
    ],
)
def test_it_rejects_what_ec2_rejects(ec2: Any, operation: str, parameters: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(ec2, operation)(**parameters)
    assert refused.value.response["Error"]["Code"] == code


def test_it_takes_as_many_filter_values_as_ec2(ec2: Any) -> None:
    assert ec2.describe_instances(Filters=tag_filter(*map(str, range(200))))["Reservations"] == []


def test_it_takes_no_more_queries_than_cloudwatch(bed: AwsBed) -> None:
    metric = {"Namespace": "AWS/EC2", "MetricName": "CPUUtilization"}
    stat = {"Metric": metric, "Period": 300, "Stat": "Average"}
    now = datetime.now(UTC)
    cloudwatch = client(bed, "cloudwatch")
    with pytest.raises(ClientError):
        cloudwatch.get_metric_data(
            MetricDataQueries=[{"Id": f"q{number}", "MetricStat": stat} for number in range(501)],
            StartTime=now - timedelta(hours=1),
            EndTime=now,
        )
    cloudwatch.close()


async def test_a_start_renews_the_launch_time(bed: AwsBed) -> None:
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    await bed.eventually(lambda: bed.state(instance.id) == "running", "it runs")
    await bed.cloud.stop_instance(bed.region, instance.id)
    await bed.eventually(lambda: bed.state(instance.id) == "stopped", "it has stopped")
    bed.ec2.get_instance(instance.id).launch_time -= timedelta(days=1)
    await bed.cloud.start_instance(bed.region, instance.id)
    found = (await bed.cloud.describe(bed.region, [instance.id])).instances[instance.id]
    assert found.launched_at >= instance.launched_at
