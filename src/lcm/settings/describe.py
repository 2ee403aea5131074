"""What a setting is and what it allows, in words taken from its type and limits."""

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
    """Stands beside a validator in `Annotated` and says what it accepts, completing "must be …"."""

    words: str


@dataclass(frozen=True, slots=True)
class AlsoCalled:
    """Stands in `Annotated` of a setting that may be given under another name too."""

    name: str


@dataclass(frozen=True, slots=True)
class Kind:
    """The form of a setting's value, with its words, and other names of the setting."""

    form: str
    type_words: str
    allowed: str
    secret: bool = False
    choices: Mapping[str, object] = field(default_factory=dict)
    other_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One setting as documentation shows it. `default` is None where the setting is unset by default."""

    name: str
    variable: str
    type_words: str
    allowed: str
    default: str | None
    description: str
    secret: bool
    other_variables: tuple[str, ...] = ()


def describe(model: type[Settings]) -> list[SettingDoc]:
    """Every setting of `model`, in order."""
    return [_doc(name, model.model_fields[name], kind) for name, kind in model.kinds().items()]


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return name.upper()


def plain(value: object) -> str:
    """A value the way a person would write it in the environment."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(plain(item) for item in value)
    if isinstance(value, Enum):
        return plain(value.value)
    return str(value)


def kind_of(info: FieldInfo) -> Kind:
    """The kind of a field, from its annotation and constraints."""
    metadata = list(_flat(info.metadata))
    names = tuple(mark.name for mark in metadata if isinstance(mark, AlsoCalled))
    return replace(_kind(info.annotation, metadata), other_names=names)


def default_of(info: FieldInfo) -> Any:
    """The default as it was written; None where there is none."""
    return None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})


def _doc(name: str, info: FieldInfo, kind: Kind) -> SettingDoc:
    default = default_of(info)
    shown = None if default is None else plain(default)
    return SettingDoc(
        name=name,
        variable=variable_of(name),
        type_words=kind.type_words,
        allowed=kind.allowed,
        default=MASK if shown and kind.secret else shown,
        description=info.description or "",
        secret=kind.secret,
        other_variables=tuple(variable_of(other) for other in kind.other_names),
    )


def _kind(annotation: Any, metadata: list[Any]) -> Kind:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _kind(inner, [*_flat(more), *metadata])
    if origin in (Union, types.UnionType):
        kind = _any_of([_kind(arm, metadata) for arm in get_args(annotation) if arm is not type(None)])
    else:
        kind = _bare(annotation, origin, metadata)
    words = [mark.words for mark in metadata if isinstance(mark, Allowed)]
    return replace(kind, allowed=words[-1]) if words else kind


def _bare(annotation: Any, origin: Any, metadata: list[Any]) -> Kind:
    """The kind of a type that is neither a union nor annotated."""
    if annotation is bool:
        return Kind(BOOL, "true or false", "true or false")
    if annotation in _NUMBERS:
        words = _NUMBERS[annotation]
        return Kind(NUMBER, words, f"a {words}{_range(metadata)}")
    if origin is Literal:
        return _choice(get_args(annotation))
    if origin in (list, tuple, set, frozenset):
        item = _kind(get_args(annotation)[0], [])
        return Kind(LIST, "list", f"a comma-separated list, each item {item.allowed}", item.secret)
    if isinstance(annotation, type):
        return _class(annotation, metadata)
    return Kind(OTHER, str(annotation), f"a valid {annotation}")


def _class(annotation: type[Any], metadata: list[Any]) -> Kind:
    if issubclass(annotation, Enum):
        return _choice(tuple(annotation))
    if issubclass(annotation, Path):
        kinds = {"file": "an existing file", "dir": "an existing folder", "new": "a path that is not taken"}
        return Kind(PATH, "path", kinds.get(_find(metadata, "path_type"), "a path"))
    if issubclass(annotation, str | _SECRETS[0] | _SECRETS[1]):
        return Kind(TEXT, "text", _text(metadata), secret=issubclass(annotation, _SECRETS))
    return Kind(OTHER, annotation.__name__, f"a valid {annotation.__name__}")


def _choice(values: tuple[object, ...]) -> Kind:
    words = f"one of {', '.join(plain(value) for value in values)}"
    return Kind(CHOICE, "choice", words, choices={plain(value).lower(): value for value in values})


def _any_of(arms: list[Kind]) -> Kind:
    if len(arms) == 1:
        return arms[0]
    return Kind(
        OTHER,
        " or ".join(arm.type_words for arm in arms),
        " or ".join(arm.allowed for arm in arms),
        secret=any(arm.secret for arm in arms),
    )


def _flat(metadata: list[Any]) -> Iterator[Any]:
    """Constraints one by one, out of the wrappers that pydantic and annotated-types have for several."""
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _flat(item.metadata)
        elif isinstance(item, GroupedMetadata):
            yield from _flat(list(item))
        else:
            yield item


def _find(metadata: list[Any], name: str) -> Any:
    """The last constraint of that name, which is the one that pydantic applies on top."""
    values = [value for item in metadata if (value := getattr(item, name, None)) is not None]
    return values[-1] if values else None


def _range(metadata: list[Any]) -> str:
    least, most = _find(metadata, "ge"), _find(metadata, "le")
    if least is not None and most is not None:
        return f" from {_number(least)} to {_number(most)}"
    words = {"ge": "of at least", "gt": "greater than", "le": "of at most", "lt": "less than"}
    limits = [
        f"{word} {_number(limit)}" for name, word in words.items() if (limit := _find(metadata, name)) is not None
    ]
    return " " + " and ".join(limits) if limits else ""


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _text(metadata: list[Any]) -> str:
    words = {
        "min_length": "of at least {} characters",
        "max_length": "of at most {} characters",
        "pattern": "that matches {}",
    }
    limits = [word.format(limit) for name, word in words.items() if (limit := _find(metadata, name)) is not None]
    return " ".join(["text", " and ".join(limits)]) if limits else "text"
