"""Forms about lablets and what they are made from: what is typed becomes a request, or a word at each field."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from lcm.control_plane.web.auth import form_field
from lcm.control_plane.web.forms import FormState, field_problems, parse_number
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest
from lcm.model.lablet.status import LostWorkerPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.errors import ProblemError
    from lcm.model.lablet.record import LabletDefinition

LABLET_FIELDS: Final = (
    "definition",
    "name",
    "owner",
    "aws_region",
    "time_to_live_minutes",
    "starts_at",
    "ends_at",
    "lost_worker_policy",
)
DEFINITION_FIELDS: Final = (
    "name",
    "version",
    "description",
    "topology",
    "cpu_cores",
    "memory_gb",
    "storage_gb",
    "nodes",
    "license",
    "cml_version",
    "node_definitions",
    "ports",
    "time_to_live_minutes",
)
_NUMBER_FIELDS = ("cpu_cores", "memory_gb", "storage_gb", "nodes")
_LIST_FIELDS = ("node_definitions", "ports")
_FIELD_HINTS: Final[dict[str, str]] = {
    "name": "letters, digits, dots, dashes and underscores, 63 at most; the first and the last are a letter or a digit",
    "version": "letters, digits, dots, pluses and dashes, 32 at most, such as 1.2",
    "definition": "choose one of the definitions",
    "ports": "capital letters, digits and underscores, each name once, such as SSH_PORT",
    "starts_at": "is no moment; give it as 2030-01-31T09:00",
    "ends_at": "is no moment; give it as 2030-01-31T17:00",
}
_SEPARATOR = re.compile(r"[\s,]+")


def lablet_form_values(form: dict[str, list[str]]) -> dict[str, str]:
    """What was sent of a new lablet, by field."""
    return {name: form_field(form, name) for name in LABLET_FIELDS}


def parse_lablet_form(values: Mapping[str, str]) -> tuple[CreateLabletRequest | None, FormState]:
    """The lablet that is asked for, and what was typed. What is left empty is as the definition has it."""
    told: dict[str, Any] = {name: values[name] for name in LABLET_FIELDS if values.get(name)}
    told.setdefault("definition", "")
    told.setdefault("lost_worker_policy", LostWorkerPolicy.RESCHEDULE.value)
    if "time_to_live_minutes" in told:
        told["time_to_live_minutes"] = parse_number(told["time_to_live_minutes"])
    for name in ("starts_at", "ends_at"):
        if name in told:
            told[name] = _parse_time(told[name])
    try:
        return CreateLabletRequest.model_validate(told), FormState(values)
    except ValidationError as error:
        return None, FormState(values, _field_problems(error))


def definition_form_values(form: dict[str, list[str]]) -> dict[str, str]:
    """What was sent of a new version, by field. Browsers send every end of a line with a return before it."""
    values = {name: form_field(form, name) for name in DEFINITION_FIELDS}
    return {**values, "topology": form.get("topology", [""])[-1].replace("\r\n", "\n")}


def parse_definition_form(values: Mapping[str, str]) -> tuple[CreateDefinitionRequest | None, FormState]:
    """The version that is asked for, and what was typed."""
    needs: dict[str, Any] = {name: parse_number(values.get(name, "")) for name in _NUMBER_FIELDS}
    needs |= {name: [each for each in _SEPARATOR.split(values.get(name, "")) if each] for name in _LIST_FIELDS}
    needs |= {"license": values.get("license") == "on", "cml_version": values.get("cml_version") or None}
    told: dict[str, Any] = {name: values.get(name, "") for name in ("name", "version", "description", "topology")}
    if values.get("time_to_live_minutes"):
        told["time_to_live_minutes"] = parse_number(values["time_to_live_minutes"])
    try:
        return CreateDefinitionRequest.model_validate({**told, "requirements": needs}), FormState(values)
    except ValidationError as error:
        problems = _field_problems(error)
        empty = {name: "must not be empty" for name in problems if not values.get(name)}
        return None, FormState(values, problems | empty)


def copied_definition_values(definition: LabletDefinition) -> dict[str, str]:
    """What stands in the fields for another version of it; which one is for people to say."""
    needs = definition.requirements
    lives = definition.time_to_live_minutes
    return {
        "name": definition.name,
        "version": "",
        "description": definition.description,
        "topology": definition.topology,
        "cpu_cores": f"{needs.cpu_cores:.15g}",
        "memory_gb": f"{needs.memory_gb:.15g}",
        "storage_gb": f"{needs.storage_gb:.15g}",
        "nodes": str(needs.nodes),
        "license": "on" if needs.license else "",
        "cml_version": needs.cml_version or "",
        "node_definitions": ", ".join(needs.node_definitions),
        "ports": ", ".join(needs.ports),
        "time_to_live_minutes": "" if lives is None else f"{lives:.15g}",
    }


def problem_by_field(refusal: ProblemError, fields: tuple[str, ...]) -> dict[str, str]:
    """A refusal at the field that it begins with; else it is about the whole form."""
    name, joint, words = refusal.detail.partition(": ")
    return {name: words} if joint and name in fields else {"form": refusal.detail}


def _field_problems(error: ValidationError) -> dict[str, str]:
    """By field; of a list its first word, whichever part of it is wrong."""
    problems: dict[str, str] = {}
    for place, words in field_problems(error).items():
        name = place.removeprefix("requirements.").partition(".")[0]
        problems.setdefault(name, _FIELD_HINTS.get(name, words))
    return problems


def _parse_time(text: str) -> Any:
    """A moment as browsers send it, without a zone: ours is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
