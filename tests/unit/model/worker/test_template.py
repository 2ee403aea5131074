"""Templates: which of them require KVM, also those that were stored before there was such a field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from lcm.model.worker.template import DEFAULT_TEMPLATES, WorkerTemplate

BODY: dict[str, Any] = {
    "name": "one",
    "instance_type": "m8i.2xlarge",
    "capacity": {"cpu_cores": 8, "memory_gb": 32.0, "storage_gb": 200.0, "max_nodes": 35},
    "cost_per_hour_usd": 0.42336,
}


@pytest.mark.parametrize(
    ("fields", "required"),
    [
        ({}, False),
        ({"nested_virtualization": True}, True),
        ({"instance_type": "m5zn.metal"}, True),
        ({"instance_type": "c8i.metal-48xl"}, True),
        ({"instance_type": "t3.medium"}, False),
        ({"nested_virtualization": True, "requires_kvm": False}, False),
        ({"instance_type": "t3.medium", "requires_kvm": True}, True),
    ],
)
def test_kvm_is_required_by_default_of_nested_and_metal_templates(fields: dict[str, Any], required: bool) -> None:
    template = WorkerTemplate.model_validate({**BODY, **fields})
    assert template.requires_kvm is required
    assert WorkerTemplate.model_validate_json(template.model_dump_json()) == template


def test_default_templates_that_require_kvm() -> None:
    assert [each.name for each in DEFAULT_TEMPLATES if each.requires_kvm] == ["nested-medium", "nested-large", "metal"]
    assert [each.name for each in DEFAULT_TEMPLATES if each.nested_virtualization] == ["nested-medium", "nested-large"]


def test_a_stored_template_without_these_fields_still_opens() -> None:
    stored = json.dumps({**BODY, "name": "metal", "instance_type": "m5zn.metal", "enabled": True})
    template = WorkerTemplate.model_validate_json(stored)
    assert (template.nested_virtualization, template.requires_kvm) == (False, True)


@pytest.mark.parametrize("value", ["yes", 1, None])
@pytest.mark.parametrize("name", ["nested_virtualization", "requires_kvm"])
def test_only_true_and_false_are_accepted(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        WorkerTemplate.model_validate({**BODY, name: value})


def test_a_metal_template_needs_no_nested_virtualization() -> None:
    with pytest.raises(ValidationError, match="must be false for a metal type") as caught:
        WorkerTemplate.model_validate({**BODY, "instance_type": "m5zn.metal", "nested_virtualization": True})
    assert caught.value.errors()[0]["loc"] == ("nested_virtualization",)


def test_an_invalid_field_is_the_only_one_that_is_named() -> None:
    with pytest.raises(ValidationError) as caught:
        WorkerTemplate.model_validate({**BODY, "description": "a bell: \a"})
    assert [error["loc"] for error in caught.value.errors()] == [("description",)]
