"""`lcm config check` asks EC2 whether the instance types of nested templates support nested virtualization."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lcm.cli.config.check_aws import check_nested_virtualization
from lcm.cloud.errors import CloudAccessDeniedError
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider
from lcm.model.worker.template import DEFAULT_TEMPLATES, WorkerTemplate
from tests.support.records.placement import a_capacity, a_template

if TYPE_CHECKING:
    from lcm.cli.config.check import Finding

REGION = "eu-west-1"


def nested(name: str, instance_type: str) -> WorkerTemplate:
    return a_template(name, a_capacity(), 0.5, instance_type=instance_type, nested_virtualization=True)


@pytest.fixture
async def provider() -> SimulatedProvider:
    cloud = SimulatedCloud(seed=1)
    cloud.add_region(REGION)
    return SimulatedProvider(cloud)


async def findings(provider: Any, *templates: WorkerTemplate) -> list[Finding]:
    connection = cast("Any", SimpleNamespace(provider=provider))
    return [finding async for finding in check_nested_virtualization(connection, REGION, templates)]


async def test_the_default_templates_are_supported(provider: SimulatedProvider) -> None:
    templates = [each for each in DEFAULT_TEMPLATES if each.nested_virtualization]
    (finding,) = await findings(provider, *templates)
    assert (finding.ok, finding.part) == (True, f"AWS {REGION}")
    assert finding.says == (
        "nested virtualization is supported: template nested-medium (m8i.2xlarge), template nested-large (m8i.8xlarge)"
    )


async def test_a_type_without_it_is_a_problem_with_a_remedy(provider: SimulatedProvider) -> None:
    wrong, right = await findings(provider, nested("old", "m5.2xlarge"), nested("new", "m8i.2xlarge"))
    assert not wrong.ok
    assert wrong.says == "template old (m5.2xlarge): this instance type does not support nested virtualization"
    assert "nested_virtualization" in wrong.remedy
    assert (right.ok, "template new (m8i.2xlarge)" in right.says) == (True, True)


async def test_a_type_that_the_region_does_not_offer_is_a_note(provider: SimulatedProvider) -> None:
    (note,) = await findings(provider, nested("far", "r8i.96xlarge"))
    assert (note.ok, note.note) == (True, True)
    assert f"{REGION} does not offer this instance type" in note.says


async def test_without_permission_the_policy_is_the_remedy() -> None:
    class Denied:
        async def instance_types(self, region: str, names: set[str]) -> dict[str, object]:
            raise CloudAccessDeniedError("DescribeInstanceTypes: denied", code="UnauthorizedOperation", operation="x")

    (finding,) = await findings(Denied(), nested("one", "m8i.2xlarge"))
    assert (finding.ok, "iam-policy.json" in finding.remedy) == (False, True)


async def test_without_nested_templates_nothing_is_asked(provider: SimulatedProvider) -> None:
    assert await findings(provider) == []
