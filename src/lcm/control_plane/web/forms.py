"""Forms: text that was typed, turned into values; what is wrong stands at its field, and what was typed stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class FormState:
    """What somebody typed, by field, and what is wrong with it."""

    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str, otherwise: str = "") -> str:
        """What was typed, or what stands there."""
        return self.values.get(name, otherwise)

    def problem(self, name: str) -> str:
        """What is wrong with a field; nothing if nothing is."""
        return self.problems.get(name, "")


def parse_number(text: str) -> Any:
    """The number that was typed, or the text: whoever checks it says that it is none."""
    plain = text.strip().replace(",", ".") if text.count(",") == 1 and "." not in text else text.strip()
    try:
        number = float(plain)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def field_problems(error: ValidationError, *, below: tuple[str, ...] = ()) -> dict[str, str]:
    """What is wrong with each field, the first word on each; `below` is where the fields lie."""
    problems: dict[str, str] = {}
    for each in error.errors(include_input=False, include_url=False):
        place = [str(part) for part in each["loc"]]
        if tuple(place[: len(below)]) == below:
            place = place[len(below) :]
        names = [part for part in place if not part.startswith(("function-", "constrained-", "literal", "nullable"))]
        problems.setdefault(
            ".".join(names) or "form", _problem_text(each["type"], str(each["msg"]), each.get("ctx", {}))
        )
    return problems


def _problem_text(kind: str, message: str, context: Mapping[str, Any]) -> str:
    if kind in ("float_type", "float_parsing", "int_type", "int_parsing", "int_from_float"):
        return "must be a number" if kind.startswith("float") else "must be a whole number"
    if kind in ("string_too_short", "missing"):
        return "must not be empty"
    if kind in ("too_long", "string_too_long"):
        return f"must have at most {context.get('max_length')} characters"
    if kind == "string_pattern_mismatch":
        return "is not of the right form"
    return message.removeprefix("Value error, ").replace("Input should be", "must be").replace("String should", "must")
