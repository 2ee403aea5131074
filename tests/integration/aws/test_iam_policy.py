"""The policy in `deploy/` allows exactly the operations that the adapter calls. Runs after all other tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lcm.cloud.types import InstanceSelection
from tests.support.aws.operations import RECORDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.aws.conformance_aws import AwsBed

POLICY = Path(__file__).parents[3] / "deploy" / "iam-policy.json"
CHANGES = {"ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances"}
# AWS checks these as a part of RunInstances: for its tags, and for passing a role to the instance.
IMPLIED = {"ec2:CreateTags", "iam:PassRole"}


def statements() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(POLICY.read_text(encoding="utf-8"))["Statement"]
    return found


def actions(statement: dict[str, Any]) -> set[str]:
    named = statement["Action"]
    return {named} if isinstance(named, str) else set(named)


def tag_conditions(statement: dict[str, Any]) -> Iterator[str]:
    for operator in statement.get("Condition", {}).values():
        yield from (key for key in operator if key.startswith(("aws:ResourceTag/", "aws:RequestTag/")))


async def use_everything(bed: AwsBed) -> None:
    cloud, region = bed.cloud, bed.region
    instance = await cloud.launch_instance(bed.parameters("w1"))
    await cloud.sweep(region, InstanceSelection())
    await cloud.find_images(region, "*", ["self"])
    await cloud.instance_types(region, ["t3.small"])
    await cloud.health(region)
    await cloud.get_instance_metrics(region, [instance.id])
    await cloud.start_instance(region, instance.id)
    await cloud.terminate_instance(region, instance.id)
    other = bed.another_provider(role_arn="arn:aws:iam::210987654321:role/lcm-controller-test")
    await other.account_id(region)
    await other.close()
    second = await cloud.launch_instance(bed.parameters("w2"))
    await bed.eventually(lambda: bed.state(second.id) == "running", "the second instance runs")
    await cloud.stop_instance(region, second.id)


async def test_the_policy_allows_exactly_what_is_called(bed: AwsBed) -> None:
    await use_everything(bed)
    allowed = set().union(*(actions(statement) for statement in statements()))
    assert allowed - IMPLIED == RECORDED
    assert allowed >= IMPLIED


def test_every_change_is_bound_to_our_tags() -> None:
    for statement in statements():
        assert statement["Effect"] == "Allow"
        if actions(statement) & CHANGES:
            assert [key for key in tag_conditions(statement) if key.startswith("aws:ResourceTag/")]
        if "ec2:CreateTags" in actions(statement):
            assert statement["Condition"]["StringEquals"] == {"ec2:CreateAction": "RunInstances"}


def test_an_instance_can_be_launched_only_with_our_tags() -> None:
    launching = [statement for statement in statements() if "ec2:RunInstances" in actions(statement)]
    for statement in launching:
        makes_instances = any(":instance/" in resource or resource == "*" for resource in statement["Resource"])
        wanted = {f"aws:RequestTag/lcm:{name}" for name in ("managed_by", "worker_id", "attempt", "installation")}
        assert set(tag_conditions(statement)) == (wanted if makes_instances else set())
    assert len(launching) == 2


def test_no_statement_allows_by_wildcard() -> None:
    assert not [action for statement in statements() for action in actions(statement) if "*" in action]
