"""A light fake of the wire format: canned pages for any number of instances, faster than a real EC2 or moto.

In tests it is served in the process; `python -m tests.support.aws.ec2_wire N` serves it in one of its own,
for measuring, and prints its port.
"""

from __future__ import annotations

import json
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import INSTALLATION_TAG, MANAGED_BY_TAG, WORKER_TAG
from tests.support.aws.server import AwsServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACCOUNT = "123456789012"
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_MOMENT = 1_767_225_600

_TAGS = "".join(
    f"<item><key>{key}</key><value>{value}</value></item>"
    for key, value in (
        (WORKER_TAG, "w-%(number)d"),
        ("lcm:attempt", "1"),
        (MANAGED_BY_TAG, "lcm"),
        (INSTALLATION_TAG, "wire"),
        ("Name", "cml-%(number)d"),
        ("team", "networking"),
    )
)
# The unused part of a real description: it makes a page as large as EC2's.
_BALLAST = "".join(
    f"<{name}><item><itemId>{name}-%(number)d</itemId><status>in-use</status><attachTime>2026-01-01T00:00:00.000Z"
    "</attachTime><deleteOnTermination>true</deleteOnTermination><detail>"
    + "x" * 500
    + "</detail></item><item><itemId>second</itemId><status>available</status></item></"
    + name
    + ">"
    for name in (
        "networkInterfaceSet",
        "blockDeviceMapping",
        "groupSet",
        "productCodes",
        "licenseSet",
        "elasticGpuAssociationSet",
        "elasticInferenceAcceleratorAssociationSet",
        "ipv6AddressSet",
        "privateIpAddressesSet",
        "ballastSet",
        "extraSet",
    )
)
_INSTANCE = (
    "<item><reservationId>r-%(number)017x</reservationId><ownerId>123456789012</ownerId><instancesSet><item>"
    "<instanceId>i-%(number)017x</instanceId><imageId>ami-0123456789abcdef0</imageId><instanceState><code>16</code>"
    "<name>running</name></instanceState><privateDnsName>ip-10-0-0-1.ec2.internal</privateDnsName><dnsName/><reason/>"
    "<keyName>cml-workers</keyName><amiLaunchIndex>0</amiLaunchIndex><instanceType>m5zn.metal</instanceType>"
    "<launchTime>2026-01-01T00:00:00.000Z</launchTime><placement><availabilityZone>eu-central-1a</availabilityZone>"
    "<groupName/><tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring>"
    "<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>"
    "<privateIpAddress>10.0.0.1</privateIpAddress><ipAddress>203.0.113.1</ipAddress>"
    "<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>"
    f"<rootDeviceName>/dev/sda1</rootDeviceName>BALLAST<tagSet>{_TAGS}</tagSet></item></instancesSet></item>"
)


class WireFake:
    """A region of `count` running instances, all of them workers."""

    def __init__(self, count: int, *, heavy: bool = False) -> None:
        self._count = count
        self._instance = _INSTANCE.replace("BALLAST", _BALLAST if heavy else "")
        self._answers: dict[str, Callable[[dict[str, str]], str]] = {
            "DescribeInstances": self._instances,
            "DescribeInstanceStatus": self._statuses,
            "GetCallerIdentity": self._identity,
        }

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if environ.get("HTTP_X_AMZ_TARGET", "").endswith("GetMetricData"):
            start_response("200 OK", [("Content-Type", "application/x-amz-json-1.0")])
            return [json.dumps({"MetricDataResults": list(_results(json.loads(body)))}).encode()]
        form = dict(urllib.parse.parse_qsl(body.decode()))
        start_response("200 OK", [("Content-Type", "text/xml")])
        return [self._answers[form["Action"]](form).encode()]

    def _instances(self, form: dict[str, str]) -> str:
        start, page = _after(form.get("NextToken"))
        end = min(self._count, start + int(form["MaxResults"]))
        if form.get("Filter.1.Name") == "instance-id":
            # By one id, like a caller that describes worker by worker.
            start, end = int(form["Filter.1.Value.1"].removeprefix("i-"), 16), self._count
            shown = range(start, start + 1)
        else:
            shown = range(start, end)
        items = "".join(self._instance % {"number": number} for number in shown)
        token = f"<nextToken>{end}.{page + 1}</nextToken>" if end < self._count else ""
        return (
            f'<DescribeInstancesResponse xmlns="{_NAMESPACE}"><requestId>0</requestId>'
            f"<reservationSet>{items}</reservationSet>{token}</DescribeInstancesResponse>"
        )

    def _statuses(self, form: dict[str, str]) -> str:
        """Return one impaired instance for any request."""
        check = (
            "<status>impaired</status><details><item><name>reachability</name><status>failed</status></item></details>"
        )
        item = (
            f"<item><instanceId>i-{0:017x}</instanceId><instanceStatus>{check}</instanceStatus>"
            f"<systemStatus>{check}</systemStatus></item>"
        )
        found = "" if "event.code" in form.values() else item
        return (
            f'<DescribeInstanceStatusResponse xmlns="{_NAMESPACE}"><requestId>0</requestId>'
            f"<instanceStatusSet>{found}</instanceStatusSet></DescribeInstanceStatusResponse>"
        )

    def _identity(self, _: dict[str, str]) -> str:
        return (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
            f"<Arn>arn:aws:iam::{ACCOUNT}:user/wire</Arn><UserId>U</UserId><Account>{ACCOUNT}</Account>"
            "</GetCallerIdentityResult><ResponseMetadata><RequestId>0</RequestId></ResponseMetadata>"
            "</GetCallerIdentityResponse>"
        )


def _after(token: str | None) -> tuple[int, int]:
    if not token:
        return 0, 1
    start, page = token.split(".")
    return int(start), int(page)


def _results(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for query in request["MetricDataQueries"]:
        moments = [_MOMENT + 300 * number for number in (2, 1, 0)]
        yield {
            "Id": query["Id"],
            "Label": "x",
            "Timestamps": moments,
            "Values": [3.0, 2.0, 1.0],
            "StatusCode": "Complete",
        }


def main() -> None:
    """Serve until the input ends."""
    server = AwsServer(WireFake(int(sys.argv[1]), heavy=True))
    print(server.port, flush=True)
    sys.stdin.read()
    print(json.dumps(server.calls()), flush=True)
    server.close()


if __name__ == "__main__":
    main()
