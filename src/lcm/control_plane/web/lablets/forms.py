"""Forms about lablets and what they are made from: what is typed becomes a request, or a word at each field."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from lcm.control_plane.web.auth import field_of
from lcm.control_plane.web.forms import Typed, as_number, in_words
from lcm.model.lablet.record import CreateDefinition, CreateLablet
from lcm.model.lablet.status import LostWorkerPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.errors import Refusal
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
_NUMBERS = ("cpu_cores", "memory_gb", "storage_gb", "nodes")
_LISTS = ("node_definitions", "ports")
_WORDS: Final[dict[str, str]] = {
    "name": "letters, digits, dots, dashes and underscores, 63 at most; the first and the last are a letter or a digit",
    "version": "letters, digits, dots, pluses and dashes, 32 at most, such as 1.2",
    "definition": "choose one of the definitions",
    "ports": "capital letters, digits and underscores, each name once, such as SSH_PORT",
    "starts_at": "is no moment; give it as 2030-01-31T09:00",
    "ends_at": "is no moment; give it as 2030-01-31T17:00",
}
_BETWEEN = re.compile(r"[\s,]+")


def typed_lablet(form: dict[str, list[str]]) -> dict[str, str]:
    """What was sent of a new lablet, by field."""
    return {name: field_of(form, name) for name in LABLET_FIELDS}


def lablet_request(values: Mapping[str, str]) -> tuple[CreateLablet | None, Typed]:
    """The lablet that is asked for, and what was typed. What is left empty is as the definition has it."""
    told: dict[str, Any] = {name: values[name] for name in LABLET_FIELDS if values.get(name)}
    told.setdefault("definition", "")
    told.setdefault("lost_worker_policy", LostWorkerPolicy.RESCHEDULE.value)
    if "time_to_live_minutes" in told:
        told["time_to_live_minutes"] = as_number(told["time_to_live_minutes"])
    for name in ("starts_at", "ends_at"):
        if name in told:
            told[name] = _moment(told[name])
    try:
        return CreateLablet.model_validate(told), Typed(values)
    except ValidationError as error:
        return None, Typed(values, _said(error))


def typed_definition(form: dict[str, list[str]]) -> dict[str, str]:
    """What was sent of a new version, by field. Browsers send every end of a line with a return before it."""
    values = {name: field_of(form, name) for name in DEFINITION_FIELDS}
    return {**values, "topology": form.get("topology", [""])[-1].replace("\r\n", "\n")}


def definition_request(values: Mapping[str, str]) -> tuple[CreateDefinition | None, Typed]:
    """The version that is asked for, and what was typed."""
    needs: dict[str, Any] = {name: as_number(values.get(name, "")) for name in _NUMBERS}
    needs |= {name: [each for each in _BETWEEN.split(values.get(name, "")) if each] for name in _LISTS}
    needs |= {"license": values.get("license") == "on", "cml_version": values.get("cml_version") or None}
    told: dict[str, Any] = {name: values.get(name, "") for name in ("name", "version", "description", "topology")}
    if values.get("time_to_live_minutes"):
        told["time_to_live_minutes"] = as_number(values["time_to_live_minutes"])
    try:
        return CreateDefinition.model_validate({**told, "requirements": needs}), Typed(values)
    except ValidationError as error:
        problems = _said(error)
        empty = {name: "must not be empty" for name in problems if not values.get(name)}
        return None, Typed(values, problems | empty)


def form_of_definition(definition: LabletDefinition) -> dict[str, str]:
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


def refused_at(refusal: Refusal, fields: tuple[str, ...]) -> dict[str, str]:
    """A refusal at the field that it begins with; else it is about the whole form."""
    name, joint, words = refusal.detail.partition(": ")
    return {name: words} if joint and name in fields else {"form": refusal.detail}


def _said(error: ValidationError) -> dict[str, str]:
    """By field; of a list its first word, whichever part of it is wrong."""
    problems: dict[str, str] = {}
    for place, words in in_words(error).items():
        name = place.removeprefix("requirements.").partition(".")[0]
        problems.setdefault(name, _WORDS.get(name, words))
    return problems


def _moment(text: str) -> Any:
    """A moment as browsers send it, without a zone: ours is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
