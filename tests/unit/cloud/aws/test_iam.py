"""Permission checks: the meaning of responses, and that only dry runs can be sent."""

from __future__ import annotations

import asyncio
import urllib.parse
from functools import cache
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError
from botocore.loaders import Loader, create_loader

from lcm.cloud.aws.clients import new_dry_run_client
from lcm.cloud.aws.config import RegionConfig, Tuning
from lcm.cloud.aws.error_mapping import translate_error
from lcm.cloud.aws.gateway import AwsGateway, aws_call_metrics
from lcm.cloud.aws.iam import CHECKED_OPERATIONS, DryRunOutcome, PermissionChecker, interpret_dry_run_error
from lcm.cloud.aws.mutations import Launcher
from lcm.cloud.errors import CloudError, CloudRefusedError, CloudUnreachableError
from lcm.cloud.types import LaunchParameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

REGION = RegionConfig(region="eu-central-1")
YES = b"<Response><Errors><Error><Code>DryRunOperation</Code><Message>yes</Message></Error></Errors></Response>"
LAUNCH = LaunchParameters(
    region="eu-central-1",
    client_token="lcm-w1-1",
    image_id="ami-1",
    instance_type="t3.micro",
    subnet_id=None,
    security_group_ids=(),
    key_name=None,
    tags={"lcm:worker_id": "w1"},
)


class _Raw:
    """The body of a response, as botocore reads it."""

    def stream(self, **_: Any) -> Any:
        return iter([YES])


@pytest.fixture
def sent() -> list[dict[str, str]]:
    """The requests that were sent, without a socket."""
    return []


@cache
def service_models() -> Loader:
    """All clients of these tests share what botocore has read: the model of EC2 is 5 MB of JSON."""
    return create_loader()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, sent: list[dict[str, str]]) -> Any:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    session = botocore.session.Session()
    session.register_component("data_loader", service_models())
    session.set_credentials("test", "test")
    made = new_dry_run_client(session, REGION, Tuning())

    def send(request: Any, **_: Any) -> AWSResponse:
        sent.append(
            dict(urllib.parse.parse_qsl(request.body if isinstance(request.body, str) else request.body.decode()))
        )
        return AWSResponse(request.url, 412, HTTPHeaders(), _Raw())

    made.meta.events.register("before-send.ec2", send)
    return made


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("run_instances", {"ImageId": "ami-1", "MinCount": 1, "MaxCount": 1}),
        ("start_instances", {"InstanceIds": ["i-1"]}),
        ("stop_instances", {"InstanceIds": ["i-1"], "Force": True}),
        ("terminate_instances", {"InstanceIds": ["i-1"]}),
        ("create_tags", {"Resources": ["i-1"], "Tags": [{"Key": "a", "Value": "b"}]}),
    ],
)
@pytest.mark.parametrize("told", [{}, {"DryRun": False}, {"DryRun": True}])
def test_the_client_sends_only_dry_runs(
    client: Any, sent: list[dict[str, str]], operation: str, parameters: Mapping[str, Any], told: Mapping[str, Any]
) -> None:
    with pytest.raises(ClientError, match="DryRunOperation"):
        getattr(client, operation)(**parameters, **told)
    assert [request["DryRun"] for request in sent] == ["true"]


def test_a_request_without_dry_run_is_not_sent(client: Any, sent: list[dict[str, str]]) -> None:
    client.meta.events.register("before-parameter-build.ec2", lambda params, **_: params.pop("DryRun"))
    with pytest.raises(RuntimeError, match="not sent"):
        client.terminate_instances(InstanceIds=["i-1"])
    assert sent == []


def test_an_operation_without_dry_run_is_not_sent(client: Any, sent: list[dict[str, str]]) -> None:
    operations = [client.meta.service_model.operation_model(name) for name in client.meta.service_model.operation_names]
    without = [each.name for each in operations if each.input_shape and "DryRun" not in each.input_shape.members]
    for name in without[:3]:
        with pytest.raises(Exception, match="DryRun"):
            getattr(client, botocore.xform_name(name))()
    assert sent == []


class _NoThreads:
    """Runs calls at once, and records their times."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def run(self, prepare: Any) -> Any:
        self.at.append(asyncio.get_running_loop().time())
        return prepare()()


async def test_the_gateway_uses_that_client_and_its_rate_limit(
    registry: CollectorRegistry, client: Any, sent: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")  # without credentials no client is made
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("lcm.cloud.aws.gateway.new_dry_run_client", lambda *_: client)
    threads = _NoThreads()
    gateway = AwsGateway(REGION, Tuning(), threads, aws_call_metrics(registry))  # type: ignore[arg-type]
    permissions = PermissionChecker(gateway, Launcher(gateway, None))  # type: ignore[arg-type]
    assert await permissions.check_dry_run_support() is None
    trials = [await permissions.launch(LAUNCH) for _ in range(6)]
    trials += await permissions.changes("i-1")
    assert {trial.outcome for trial in trials} == {DryRunOutcome.ALLOWED}
    assert [request["Action"] for request in sent] == ["DescribeInstances", *["RunInstances"] * 6, *CHECKED_OPERATIONS]
    assert all(request["DryRun"] == "true" for request in sent)
    # Four launches at once are 90 % of what AWS allows; the others wait.
    assert threads.at[4] == threads.at[1] < threads.at[5] < threads.at[6]


class FakeGateway:
    """Supports only dry runs; responds with a code, or as if the call had been executed."""

    def __init__(self, **answers: str) -> None:
        self.asked: list[str] = []
        self._answers = answers

    async def dry_run(self, operation: str, parameters: Mapping[str, Any], instances: int = 0) -> Mapping[str, Any]:
        self.asked.append(operation)
        code = self._answers.get(operation, "DryRunOperation")
        if code == "made":
            return {}
        raise CloudRefusedError(f"{operation} in eu-central-1: {code}: so it is", code=code, operation=operation)


def permissions_of(gateway: FakeGateway) -> PermissionChecker:
    return PermissionChecker(gateway, Launcher(gateway, None))  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ["made", "UnauthorizedOperation", "RequestLimitExceeded"])
async def test_mutations_are_checked_only_where_dry_runs_are_supported(answer: str) -> None:
    gateway = FakeGateway(DescribeInstances=answer)
    permissions = permissions_of(gateway)
    assert await permissions.check_dry_run_support() is not None
    trials = [await permissions.launch(LAUNCH), *await permissions.changes("i-1")]
    assert {trial.outcome for trial in trials} == {DryRunOutcome.UNKNOWN}
    assert gateway.asked == ["DescribeInstances"]


async def test_mutations_are_not_checked_without_a_supported_dry_run() -> None:
    gateway = FakeGateway()
    assert {trial.outcome for trial in await permissions_of(gateway).changes("i-1")} == {DryRunOutcome.UNKNOWN}
    assert gateway.asked == []


async def test_an_endpoint_that_executes_a_dry_run_gets_no_more_requests() -> None:
    gateway = FakeGateway(StartInstances="made")
    permissions = permissions_of(gateway)
    await permissions.check_dry_run_support()
    trials = [*await permissions.changes("i-1"), await permissions.launch(LAUNCH)]
    assert [trial.outcome for trial in trials] == [DryRunOutcome.EXECUTED, *[DryRunOutcome.UNKNOWN] * 3]
    assert gateway.asked == ["DescribeInstances", "StartInstances"]


@pytest.mark.parametrize(
    ("operation", "code", "text", "verdict", "lacking"),
    [
        ("StopInstances", "DryRunOperation", "Request would have succeeded", DryRunOutcome.ALLOWED, ""),
        ("StopInstances", "UnauthorizedOperation", "You are not", DryRunOutcome.DENIED, "ec2:StopInstances"),
        ("StopInstances", "AccessDenied", "no", DryRunOutcome.DENIED, "ec2:StopInstances"),
        (
            "RunInstances",
            "UnauthorizedOperation",
            "User: arn:aws:iam::1:user/x is not authorized to perform: ec2:CreateTags on resource: y because",
            DryRunOutcome.DENIED,
            "ec2:CreateTags",
        ),
        ("StopInstances", "InvalidInstanceID.NotFound", "i-1", DryRunOutcome.UNKNOWN, ""),
        ("StopInstances", "IncorrectInstanceState", "i-1", DryRunOutcome.UNKNOWN, ""),
        ("RunInstances", "InvalidSubnetID.NotFound", "subnet-1", DryRunOutcome.MISCONFIGURED, ""),
        ("RunInstances", "InvalidGroup.NotFound", "sg-1", DryRunOutcome.MISCONFIGURED, ""),
        ("RunInstances", "InvalidKeyPair.NotFound", "key", DryRunOutcome.MISCONFIGURED, ""),
        (
            "RunInstances",
            "InvalidParameterValue",
            "Value (x) for iamInstanceProfile.name",
            DryRunOutcome.MISCONFIGURED,
            "",
        ),
        ("RunInstances", "InvalidParameterValue", "something else", DryRunOutcome.UNKNOWN, ""),
        ("RunInstances", "RequestLimitExceeded", "slow down", DryRunOutcome.UNKNOWN, ""),
    ],
)
def test_meaning_of_dry_run_errors(operation: str, code: str, text: str, verdict: DryRunOutcome, lacking: str) -> None:
    answer: Any = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    error = translate_error(ClientError(answer, operation), operation=operation, region="r", mutating=False)
    trial = interpret_dry_run_error(operation, error)
    assert (trial.outcome, trial.missing_action) == (verdict, lacking)
    assert code in trial.message


def test_other_errors_are_inconclusive() -> None:
    for error in (CloudUnreachableError("gone"), CloudError("what")):
        assert interpret_dry_run_error("RunInstances", error).outcome is DryRunOutcome.UNKNOWN
