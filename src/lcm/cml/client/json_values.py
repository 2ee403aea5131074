"""Taking values out of answers of others: every one is checked before it is used."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

DEEPEST = 32
_LONGEST_STAMP = 40


class Misshapen(Exception):
    """A value is not of the kind that was to be expected; the text says where."""


def parse(body: bytes) -> Any:
    """JSON of reasonable depth, without the constants that JSON does not have."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Misshapen(f"not JSON ({error})") from None
    if isinstance(value, dict | list) and _deeper_than(value, DEEPEST):
        raise Misshapen(f"nested deeper than {DEEPEST} levels")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _deeper_than(value: dict[str, Any] | list[Any], levels: int) -> bool:
    if levels == 0:
        return True
    inner = [item for item in (value.values() if isinstance(value, dict) else value) if isinstance(item, dict | list)]
    return any(_deeper_than(item, levels - 1) for item in inner)


def record(value: Any, where: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Misshapen(f"{where} is {_kind(value)}, not an object")
    return value


def part(value: dict[str, Any], key: str) -> dict[str, Any]:
    """An object within an object; empty when it is missing or null."""
    inner = value.get(key)
    return {} if inner is None else record(inner, key)


def items(value: Any, where: str) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise Misshapen(f"{where} is {_kind(value)}, not a list")
    return value


def text(value: dict[str, Any], key: str, default: str | None = None) -> str:
    """A string; without a default it must be there."""
    found = value.get(key)
    if found is None and default is not None:
        return default
    if not isinstance(found, str):
        raise Misshapen(f"{key} is {_kind(found)}, not a string")
    return found


def maybe_text(value: dict[str, Any], key: str) -> str | None:
    """A string, or None for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def flag(value: dict[str, Any], key: str) -> bool:
    """A boolean that must be there."""
    found = value.get(key)
    if not isinstance(found, bool):
        raise Misshapen(f"{key} is {_kind(found)}, not true or false")
    return found


def maybe_flag(value: dict[str, Any], key: str) -> bool | None:
    """A boolean, or None for anything else."""
    found = value.get(key)
    return found if isinstance(found, bool) else None


def maybe_number(value: dict[str, Any], key: str) -> float | None:
    """A finite number, or None for anything else: servers give whole numbers as fractions and leave some out."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def maybe_count(value: dict[str, Any], key: str) -> int | None:
    """A whole number, or None for anything else."""
    number = maybe_number(value, key)
    return None if number is None else int(number)


def moment(value: Any) -> datetime | None:
    """A time in any of the forms that servers use, in UTC; None for anything else. Without a zone it is UTC."""
    if not isinstance(value, str) or len(value) > _LONGEST_STAMP:
        return None
    try:
        found = datetime.fromisoformat(value.strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
