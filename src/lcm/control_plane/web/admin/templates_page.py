"""A template as a form: what is typed becomes a template, or a word at each field that is wrong."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lcm.control_plane.web.forms import Typed, as_number, in_words
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping

_CAPACITY = ("cpu_cores", "memory_gb", "storage_gb", "max_nodes")
_TEXTS = ("name", "description", "instance_type", "ami_name_pattern")
_FORMS = {
    "name": "letters, digits, dots, dashes and underscores, at most 63, the first and last a letter or digit",
    "instance_type": "must be such as t3.medium",
}


def form_of_template(template: WorkerTemplate) -> dict[str, str]:
    """What stands in the fields."""
    size = template.capacity
    return {
        "name": template.name,
        "description": template.description,
        "instance_type": template.instance_type,
        "ami_name_pattern": template.ami_name_pattern or "",
        "cpu_cores": str(size.cpu_cores),
        "memory_gb": f"{size.memory_gb:.15g}",
        "storage_gb": f"{size.storage_gb:.15g}",
        "max_nodes": str(size.max_nodes),
        "cost_per_hour_usd": f"{template.cost_per_hour_usd:.15g}",
        "enabled": "on" if template.enabled else "",
    }


def template_of(form: Mapping[str, str]) -> tuple[WorkerTemplate | None, Typed]:
    """The template that a form describes, and what was typed."""
    told: dict[str, Any] = {name: form.get(name, "") for name in _TEXTS}
    told["ami_name_pattern"] = told["ami_name_pattern"] or None
    told["capacity"] = {name: as_number(form.get(name, "")) for name in _CAPACITY}
    told["cost_per_hour_usd"] = as_number(form.get("cost_per_hour_usd", ""))
    told["enabled"] = form.get("enabled", "") == "on"
    fields = (*_TEXTS, *_CAPACITY, "cost_per_hour_usd", "enabled")
    values = {name: form.get(name, "") for name in fields}
    try:
        return WorkerTemplate.model_validate(told), Typed(values)
    except ValidationError as error:
        problems = {name.removeprefix("capacity."): words for name, words in in_words(error).items()}
        problems = {name: _FORMS.get(name, words) for name, words in problems.items()}
        empty = {name: "must not be empty" for name in problems if not values.get(name)}
        return None, Typed(values, problems | empty)


def mark_of(body: bytes) -> str:
    """What a form carries along, so that it is noticed when somebody else was faster."""
    return hashlib.sha256(body).hexdigest()[:16]
