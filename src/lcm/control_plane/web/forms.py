"""Reading forms: fields of a request, numbers, and problems by field. What a user typed is kept when it is invalid."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.query_params import split_values
from lcm.control_plane.records.idempotency import IdempotencyKey
from lcm.model.problems import ProblemCode
from lcm.model.validation import problems_of
from lcm.model.worker.requests import CommandRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request

    from lcm.control_plane.auth.roles import HasActor

WHOLE_FORM = "form"
"""Stands for the whole form among its problems by field."""
MAX_IDS = 100
_MAX_FORM_FIELDS = 2_000
_VERSION_PATTERN = re.compile(r"[0-9]{1,15}")
KEY_FIELD: Final = "idempotency_key"
"""The field with the key of a form. Each rendered form has a new one, so that a form has an effect once."""
CONFIRM_FIELD: Final = "confirm"
"""The field in which a user types a name or a number to confirm an action that cannot be undone."""
FORM_ALREADY_SENT: Final = (
    "This form was already sent with other values, and they were saved. Close it and check the current state."
)
"""The first answer was lost, and the form was changed before it was sent again."""
_MAX_KEY_LENGTH = 128


@dataclass(frozen=True, slots=True)
class FormState:
    """The text in the fields of a form, and the problem of each invalid field."""

    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str, default: str = "") -> str:
        """The text of a field."""
        return self.values.get(name, default)

    def problem(self, name: str) -> str:
        """The problem of a field; empty if it is valid."""
        return self.problems.get(name, "")


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a submitted form."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        detail = f"body: a form must have at most {_MAX_FORM_FIELDS} fields"
        raise ProblemError(ProblemCode.INVALID, detail) from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def form_field(form: dict[str, list[str]], name: str) -> str:
    """One field, without surrounding spaces; empty if it is missing."""
    return form.get(name, [""])[-1].strip()


def form_version(form: dict[str, list[str]]) -> int | None:
    """The version of the record that the user saw before requesting the change."""
    return parse_version(form_field(form, "version"))


def parse_version(version: str) -> int | None:
    """The version of a record; None if it is empty."""
    if not version:
        return None
    if not _VERSION_PATTERN.fullmatch(version):
        raise ProblemError(ProblemCode.INVALID, "version: must be the version of the record, a whole number")
    return int(version)


def form_key(request: Request, caller: HasActor, form: dict[str, list[str]]) -> IdempotencyKey | None:
    """The key of a submitted form. A form that is sent again, by a double click or after an error, changes nothing."""
    key = form_field(form, KEY_FIELD)[:_MAX_KEY_LENGTH]
    if not key:
        return None
    content = urlencode(sorted((name, values) for name, values in form.items() if name != KEY_FIELD), doseq=True)
    return IdempotencyKey(caller.unique_name, key, f"{request.method} {request.url.path}\n{content}".encode())


def form_key_only(request: Request, caller: HasActor, form: dict[str, list[str]]) -> IdempotencyKey | None:
    """The key of a form that replaces what its first submission made, also when its other fields changed."""
    return form_key(request, caller, {KEY_FIELD: [form_field(form, KEY_FIELD)]})


def require_typed(form: dict[str, list[str]], expected: str, what: str) -> None:
    """Refuse the action unless the user typed what the dialog asked for."""
    if form_field(form, CONFIRM_FIELD) != expected:
        raise ProblemError(ProblemCode.INVALID, f"{CONFIRM_FIELD}: type {expected}, the {what}, to confirm")


def form_reason(form: dict[str, list[str]]) -> str | None:
    """The reason for a command, validated like that of the API; None if it is empty."""
    text = form_field(form, "reason")
    try:
        return CommandRequest(reason=text).reason if text else None
    except ValidationError as error:
        _, problem = next(problems_of(error))
        raise ProblemError(ProblemCode.INVALID, f"reason: {problem}") from None


def query_ids(request: Request, limit: int = MAX_IDS) -> list[str]:
    """The record IDs in the URL."""
    return split_values(request.query_params.getlist("ids"))[:limit]


def parse_number(text: str) -> Any:
    """The number that was typed. Other text is returned unchanged, for the validation to reject."""
    plain = text.strip().replace(",", ".") if text.count(",") == 1 and "." not in text else text.strip()
    try:
        number = float(plain)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def parse_form_time(text: str) -> datetime | None:
    """The instant of a time field; None if the text is no time. Without a zone it is in UTC, as the label says."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def field_problems(
    error: ValidationError, hints: Mapping[str, str] | None = None, *, below: tuple[str, ...] = ()
) -> dict[str, str]:
    """The first problem of each field; a hint replaces its text. `below` is the path to the fields."""
    problems: dict[str, str] = {}
    for full, text in problems_of(error):
        path = full[len(below) :] if full[: len(below)] == below else full
        names = [part for part in path if not part.startswith(("function-", "constrained-", "literal", "nullable"))]
        name = ".".join(names) or WHOLE_FORM
        problems.setdefault(name, (hints or {}).get(name, text))
    return problems


def comma_list(text: str) -> list[str]:
    """The parts of a field in which values are separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def comma_tags(text: str) -> dict[str, str]:
    """The tags of a field, such as `course=ccna, site=ghent`."""
    tags = [part.partition("=") for part in comma_list(text)]
    return {name.strip(): value.strip() for name, _, value in tags}


def problem_by_field(error: ProblemError, fields: tuple[str, ...]) -> dict[str, str]:
    """The problem of the field that the message starts with, or else of the whole form."""
    if error.code is ProblemCode.IDEMPOTENCY_MISMATCH:
        return {WHOLE_FORM: FORM_ALREADY_SENT}
    name, separator, text = error.detail.partition(": ")
    return {name: text} if separator and name in fields else {WHOLE_FORM: error.detail}
