"""Taking values out of answers of others: every one is checked before it is used."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

MAX_DEPTH = 32
_MAX_TIMESTAMP_LENGTH = 40


class MalformedResponseError(Exception):
    """A value is not of the kind that was to be expected; the text says where."""


def parse_json(body: bytes) -> Any:
    """JSON of reasonable depth, without the constants that JSON does not have."""
    try:
        value = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedResponseError(f"not JSON ({error})") from None
    if isinstance(value, dict | list) and _is_deeper_than(value, MAX_DEPTH):
        raise MalformedResponseError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _is_deeper_than(value: dict[str, Any] | list[Any], levels: int) -> bool:
    if levels == 0:
        return True
    inner = [item for item in (value.values() if isinstance(value, dict) else value) if isinstance(item, dict | list)]
    return any(_is_deeper_than(item, levels - 1) for item in inner)


def as_object(value: Any, where: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise MalformedResponseError(f"{where} is {_type_name(value)}, not an object")
    return value


def nested_object(value: dict[str, Any], key: str) -> dict[str, Any]:
    """An object within an object; empty when it is missing or null."""
    inner = value.get(key)
    return {} if inner is None else as_object(inner, key)


def as_list(value: Any, where: str) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise MalformedResponseError(f"{where} is {_type_name(value)}, not a list")
    return value


def get_text(value: dict[str, Any], key: str, default: str | None = None) -> str:
    """A string; without a default it must be there."""
    found = value.get(key)
    if found is None and default is not None:
        return default
    if not isinstance(found, str):
        raise MalformedResponseError(f"{key} is {_type_name(found)}, not a string")
    return found


def optional_text(value: dict[str, Any], key: str) -> str | None:
    """A string, or None for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def get_bool(value: dict[str, Any], key: str) -> bool:
    """A boolean that must be there."""
    found = value.get(key)
    if not isinstance(found, bool):
        raise MalformedResponseError(f"{key} is {_type_name(found)}, not true or false")
    return found


def optional_bool(value: dict[str, Any], key: str) -> bool | None:
    """A boolean, or None for anything else."""
    found = value.get(key)
    return found if isinstance(found, bool) else None


def optional_number(value: dict[str, Any], key: str) -> float | None:
    """A finite number, or None for anything else: servers give whole numbers as fractions and leave some out."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def optional_int(value: dict[str, Any], key: str) -> int | None:
    """A whole number, or None for anything else."""
    number = optional_number(value, key)
    return None if number is None else int(number)


def parse_time(value: Any) -> datetime | None:
    """A time in any of the forms that servers use, in UTC; None for anything else. Without a zone it is UTC."""
    if not isinstance(value, str) or len(value) > _MAX_TIMESTAMP_LENGTH:
        return None
    try:
        found = datetime.fromisoformat(value.strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _type_name(value: Any) -> str:
    if value is None:
        return "missing"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
