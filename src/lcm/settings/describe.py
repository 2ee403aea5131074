"""Descriptions of settings and allowed values, derived from types and constraints."""

from __future__ import annotations

import types
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import GroupedMetadata
from pydantic import SecretBytes, SecretStr
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lcm.settings.base import Settings

BOOL, NUMBER, TEXT, PATH, LIST, CHOICE, OTHER = "bool", "number", "text", "path", "list", "choice", "other"
MASK = "***"

_NUMBERS: dict[object, str] = {int: "whole number", float: "number"}
_SECRETS = (SecretStr, SecretBytes)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Describes in `Annotated` what a validator accepts, completing "must be …"."""

    text: str


@dataclass(frozen=True, slots=True)
class SettingAlias:
    """Declares in `Annotated` another name of a setting."""

    name: str


@dataclass(frozen=True, slots=True)
class ValueType:
    """The form of a setting's value, its description, and aliases of the setting."""

    form: str
    type_name: str
    allowed: str
    secret: bool = False
    choices: Mapping[str, object] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """The documentation of one setting. `default` is None if the setting is unset by default."""

    name: str
    variable: str
    type_name: str
    allowed: str
    default: str | None
    description: str
    secret: bool
    alias_variables: tuple[str, ...] = ()


def describe(model: type[Settings]) -> list[SettingDoc]:
    """Every setting of `model`, in order."""
    return [_setting_doc(name, model.model_fields[name], kind) for name, kind in model.value_types().items()]


def env_variable(name: str) -> str:
    """The environment variable of a setting."""
    return name.upper()


def format_value(value: object) -> str:
    """A value as it would be written in the environment."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(format_value(item) for item in value)
    if isinstance(value, Enum):
        return format_value(value.value)
    return str(value)


def value_type_of(info: FieldInfo) -> ValueType:
    """The value type of a field, from its annotation and constraints."""
    metadata = list(_flatten(info.metadata))
    names = tuple(mark.name for mark in metadata if isinstance(mark, SettingAlias))
    return replace(_value_type(info.annotation, metadata), aliases=names)


def default_value(info: FieldInfo) -> Any:
    """The default as declared; None if there is none."""
    return None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})


def _setting_doc(name: str, info: FieldInfo, kind: ValueType) -> SettingDoc:
    default = default_value(info)
    shown = None if default is None else format_value(default)
    return SettingDoc(
        name=name,
        variable=env_variable(name),
        type_name=kind.type_name,
        allowed=kind.allowed,
        default=MASK if shown and kind.secret else shown,
        description=info.description or "",
        secret=kind.secret,
        alias_variables=tuple(env_variable(other) for other in kind.aliases),
    )


def _value_type(annotation: Any, metadata: list[Any]) -> ValueType:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _value_type(inner, [*_flatten(more), *metadata])
    if origin in (Union, types.UnionType):
        kind = _union_type([_value_type(arm, metadata) for arm in get_args(annotation) if arm is not type(None)])
    else:
        kind = _plain_type(annotation, origin, metadata)
    words = [mark.text for mark in metadata if isinstance(mark, Allowed)]
    return replace(kind, allowed=words[-1]) if words else kind


def _plain_type(annotation: Any, origin: Any, metadata: list[Any]) -> ValueType:
    """The value type of an annotation that is neither a union nor `Annotated`."""
    if annotation is bool:
        return ValueType(BOOL, "true or false", "true or false")
    if annotation in _NUMBERS:
        words = _NUMBERS[annotation]
        return ValueType(NUMBER, words, f"a {words}{_range_text(metadata)}")
    if origin is Literal:
        return _choice_type(get_args(annotation))
    if origin in (list, tuple, set, frozenset):
        item = _value_type(get_args(annotation)[0], [])
        return ValueType(LIST, "list", f"a comma-separated list, each item {item.allowed}", item.secret)
    if isinstance(annotation, type):
        return _class_type(annotation, metadata)
    return ValueType(OTHER, str(annotation), f"a valid {annotation}")


def _class_type(annotation: type[Any], metadata: list[Any]) -> ValueType:
    if issubclass(annotation, Enum):
        return _choice_type(tuple(annotation))
    if issubclass(annotation, Path):
        kinds = {"file": "an existing file", "dir": "an existing folder", "new": "a path that is not taken"}
        return ValueType(PATH, "path", kinds.get(_find_constraint(metadata, "path_type"), "a path"))
    if issubclass(annotation, str | _SECRETS[0] | _SECRETS[1]):
        return ValueType(TEXT, "text", _text_limits(metadata), secret=issubclass(annotation, _SECRETS))
    return ValueType(OTHER, annotation.__name__, f"a valid {annotation.__name__}")


def _choice_type(values: tuple[object, ...]) -> ValueType:
    words = f"one of {', '.join(format_value(value) for value in values)}"
    return ValueType(CHOICE, "choice", words, choices={format_value(value).lower(): value for value in values})


def _union_type(arms: list[ValueType]) -> ValueType:
    if len(arms) == 1:
        return arms[0]
    return ValueType(
        OTHER,
        " or ".join(arm.type_name for arm in arms),
        " or ".join(arm.allowed for arm in arms),
        secret=any(arm.secret for arm in arms),
    )


def _flatten(metadata: list[Any]) -> Iterator[Any]:
    """Unpack the constraints that pydantic and annotated-types group."""
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _flatten(item.metadata)
        elif isinstance(item, GroupedMetadata):
            yield from _flatten(list(item))
        else:
            yield item


def _find_constraint(metadata: list[Any], name: str) -> Any:
    """The last constraint of that name, which is the one that pydantic applies."""
    values = [value for item in metadata if (value := getattr(item, name, None)) is not None]
    return values[-1] if values else None


def _range_text(metadata: list[Any]) -> str:
    least, most = _find_constraint(metadata, "ge"), _find_constraint(metadata, "le")
    if least is not None and most is not None:
        return f" from {_number_text(least)} to {_number_text(most)}"
    words = {"ge": "of at least", "gt": "greater than", "le": "of at most", "lt": "less than"}
    limits = [
        f"{word} {_number_text(limit)}"
        for name, word in words.items()
        if (limit := _find_constraint(metadata, name)) is not None
    ]
    return " " + " and ".join(limits) if limits else ""


def _number_text(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _text_limits(metadata: list[Any]) -> str:
    words = {
        "min_length": "of at least {} characters",
        "max_length": "of at most {} characters",
        "pattern": "that matches {}",
    }
    limits = [
        word.format(limit) for name, word in words.items() if (limit := _find_constraint(metadata, name)) is not None
    ]
    return " ".join(["text", " and ".join(limits)]) if limits else "text"
