"""What is wrong with a value, in one wording for the API, the web forms, the command line and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_ALLOWED_BY_PATTERN: dict[str, str] = {}
_EMPTY = ("missing", "string_too_short", "too_short")
_WHOLE_NUMBER = ("int_type", "int_parsing", "int_from_float")
_NUMBER = ("float_type", "float_parsing")
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_COLLECTIONS = ("List", "Tuple", "Set", "Frozenset", "Dictionary")
_TYPES = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def text_like(pattern: str, allowed: str, **limits: Any) -> Any:
    """A field of text that matches a pattern. Users read "must be …" with `allowed`, and never the pattern."""
    _ALLOWED_BY_PATTERN[pattern] = allowed
    return Field(pattern=pattern, **limits)


def problem_text(error: ErrorDetails | Mapping[str, Any]) -> str:
    """The sentence about one invalid value, without the value: it may be a secret."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind in _EMPTY:
        return "must not be empty" if kind != "missing" else "is required"
    if kind in _WHOLE_NUMBER or kind in _NUMBER:
        return "must be a whole number" if kind in _WHOLE_NUMBER else "must be a number"
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context.get(name):g}"
    if kind in ("too_long", "string_too_long"):
        things = "entries" if context.get("field_type") in _COLLECTIONS else "characters"
        return f"must have at most {context.get('max_length')} {things}"
    if kind == "string_pattern_mismatch":
        allowed = _ALLOWED_BY_PATTERN.get(str(context.get("pattern")))
        return f"must be {allowed}" if allowed else "has an invalid format"
    if kind in ("enum", "literal_error"):
        return f"must be {context.get('expected')}".replace("'", "")
    if kind == "extra_forbidden":
        return "is not a known field"
    return str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")


def problems_of(error: ValidationError) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and sentence of each invalid value."""
    for each in error.errors(include_input=False, include_url=False):
        yield tuple(str(part) for part in each["loc"]), problem_text(each)
