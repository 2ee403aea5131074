"""Asking whether a change would be allowed: what answers mean, and that nothing but a question can be sent."""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError

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
    """The body of an answer, as botocore reads it."""

    def stream(self, **_: Any) -> Any:
        return iter([YES])


@pytest.fixture
def sent() -> list[dict[str, str]]:
    """What went out, instead of over a socket."""
    return []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, sent: list[dict[str, str]]) -> Any:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    session = botocore.session.Session()
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
def test_whatever_the_client_is_told_it_only_asks(
    client: Any, sent: list[dict[str, str]], operation: str, parameters: Mapping[str, Any], told: Mapping[str, Any]
) -> None:
    with pytest.raises(ClientError, match="DryRunOperation"):
        getattr(client, operation)(**parameters, **told)
    assert [request["DryRun"] for request in sent] == ["true"]


def test_a_request_that_lost_the_word_on_the_way_is_not_sent(client: Any, sent: list[dict[str, str]]) -> None:
    client.meta.events.register("before-parameter-build.ec2", lambda params, **_: params.pop("DryRun"))
    with pytest.raises(RuntimeError, match="not sent"):
        client.terminate_instances(InstanceIds=["i-1"])
    assert sent == []


def test_what_knows_no_dry_run_is_not_sent(client: Any, sent: list[dict[str, str]]) -> None:
    operations = [client.meta.service_model.operation_model(name) for name in client.meta.service_model.operation_names]
    without = [each.name for each in operations if each.input_shape and "DryRun" not in each.input_shape.members]
    for name in without[:3]:
        with pytest.raises(Exception, match="DryRun"):
            getattr(client, botocore.xform_name(name))()
    assert sent == []


class _NoThreads:
    """Runs what is asked for at once, and notes when."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def run(self, prepare: Any) -> Any:
        self.at.append(asyncio.get_running_loop().time())
        return prepare()()


async def test_the_gateway_asks_by_that_client_and_at_its_pace(
    registry: CollectorRegistry, client: Any, sent: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcm.cloud.aws.gateway.new_dry_run_client", lambda *_: client)
    threads = _NoThreads()
    gateway = AwsGateway(REGION, Tuning(), threads, aws_call_metrics(registry))  # type: ignore[arg-type]
    permissions = PermissionChecker(gateway, Launcher(gateway, None))  # type: ignore[arg-type]
    assert await permissions.tries() is None
    trials = [await permissions.launch(LAUNCH) for _ in range(6)]
    trials += await permissions.changes("i-1")
    assert {trial.verdict for trial in trials} == {DryRunOutcome.ALLOWED}
    assert [request["Action"] for request in sent] == ["DescribeInstances", *["RunInstances"] * 6, *CHECKED_OPERATIONS]
    assert all(request["DryRun"] == "true" for request in sent)
    # Four launches at once are nine tenths of what AWS allows; the others wait.
    assert threads.at[4] == threads.at[1] < threads.at[5] < threads.at[6]


class FakeGateway:
    """Has no way to make a call, only to rehearse one; answers by code, or as if it had been made."""

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
async def test_changes_are_tried_only_where_dry_runs_are_known(answer: str) -> None:
    gateway = FakeGateway(DescribeInstances=answer)
    permissions = permissions_of(gateway)
    assert await permissions.tries() is not None
    trials = [await permissions.launch(LAUNCH), *await permissions.changes("i-1")]
    assert {trial.verdict for trial in trials} == {DryRunOutcome.UNTOLD}
    assert gateway.asked == ["DescribeInstances"]


async def test_changes_are_not_tried_unasked() -> None:
    gateway = FakeGateway()
    assert {trial.verdict for trial in await permissions_of(gateway).changes("i-1")} == {DryRunOutcome.UNTOLD}
    assert gateway.asked == []


async def test_whoever_carries_one_out_is_asked_nothing_more() -> None:
    gateway = FakeGateway(StartInstances="made")
    permissions = permissions_of(gateway)
    await permissions.tries()
    trials = [*await permissions.changes("i-1"), await permissions.launch(LAUNCH)]
    assert [trial.verdict for trial in trials] == [DryRunOutcome.MADE, *[DryRunOutcome.UNTOLD] * 3]
    assert gateway.asked == ["DescribeInstances", "StartInstances"]


@pytest.mark.parametrize(
    ("operation", "code", "text", "verdict", "lacking"),
    [
        ("StopInstances", "DryRunOperation", "Request would have succeeded", DryRunOutcome.ALLOWED, ""),
        ("StopInstances", "UnauthorizedOperation", "You are not", DryRunOutcome.FORBIDDEN, "ec2:StopInstances"),
        ("StopInstances", "AccessDenied", "no", DryRunOutcome.FORBIDDEN, "ec2:StopInstances"),
        (
            "RunInstances",
            "UnauthorizedOperation",
            "User: arn:aws:iam::1:user/x is not authorized to perform: ec2:CreateTags on resource: y because",
            DryRunOutcome.FORBIDDEN,
            "ec2:CreateTags",
        ),
        ("StopInstances", "InvalidInstanceID.NotFound", "i-1", DryRunOutcome.UNTOLD, ""),
        ("StopInstances", "IncorrectInstanceState", "i-1", DryRunOutcome.UNTOLD, ""),
        ("RunInstances", "InvalidSubnetID.NotFound", "subnet-1", DryRunOutcome.WRONG, ""),
        ("RunInstances", "InvalidGroup.NotFound", "sg-1", DryRunOutcome.WRONG, ""),
        ("RunInstances", "InvalidKeyPair.NotFound", "key", DryRunOutcome.WRONG, ""),
        ("RunInstances", "InvalidParameterValue", "Value (x) for iamInstanceProfile.name", DryRunOutcome.WRONG, ""),
        ("RunInstances", "InvalidParameterValue", "something else", DryRunOutcome.UNTOLD, ""),
        ("RunInstances", "RequestLimitExceeded", "slow down", DryRunOutcome.UNTOLD, ""),
    ],
)
def test_what_answers_mean(operation: str, code: str, text: str, verdict: DryRunOutcome, lacking: str) -> None:
    answer: Any = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    error = translate_error(ClientError(answer, operation), operation=operation, region="r", mutating=False)
    trial = interpret_dry_run_error(operation, error)
    assert (trial.verdict, trial.lacking) == (verdict, lacking)
    assert code in trial.answer


def test_no_answer_tells_nothing() -> None:
    for error in (CloudUnreachableError("gone"), CloudError("what")):
        assert interpret_dry_run_error("RunInstances", error).verdict is DryRunOutcome.UNTOLD
