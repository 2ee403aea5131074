"""Base classes and field types of all models."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    WithJsonSchema,
)

from lcm.model.validation import text_like


class CaseInsensitiveEnum(StrEnum):
    """A string enum that accepts input in any case; output has the case of the definition."""

    @classmethod
    def _missing_(cls, value: object) -> CaseInsensitiveEnum | None:
        if not isinstance(value, str):
            return None
        return next((member for member in cls if member.value.lower() == value.strip().lower()), None)


class StrictModel(BaseModel):
    """An immutable model that rejects unknown fields. Base of request bodies."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", allow_inf_nan=False)


class LenientModel(StrictModel):
    """An immutable model that ignores unknown fields, so that a client can read the response of a newer server."""

    model_config = ConfigDict(extra="ignore")


T = TypeVar("T")


class Page(LenientModel, Generic[T]):
    """One page of a list. `next_cursor` requests the next page; it is null on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class Ack(LenientModel):
    """Confirms that a report was stored."""

    kept: bool = True


def _to_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _reject_number(value: Any) -> Any:
    """Pydantic would read a number as seconds since 1970, which is never intended."""
    if isinstance(value, int | float) or (isinstance(value, str) and not value[:5].endswith("-")):
        raise ValueError("must be a date and time with a zone, such as 2026-01-17T10:30:00Z")
    return value


def _require_whole_number(value: Any) -> Any:
    """JSON has one number type, so 3.0 is accepted as a whole number; booleans and strings are not."""
    if isinstance(value, bool | str):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports only ValueError
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _format_utc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _reveal(secret: SecretStr) -> str:
    return secret.get_secret_value()


def _reject_control_characters(text: str) -> str:
    if text.isprintable():  # the common case, and much faster
        return text
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn") for letter in text):
        raise ValueError("must not contain control characters")
    return text


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


UtcDatetime = Annotated[
    AwareDatetime,
    BeforeValidator(_reject_number),
    AfterValidator(_to_utc),
    PlainSerializer(_format_utc, when_used="json"),
]
"""A time with a zone: UTC in memory, with a `Z` suffix on the wire."""

RevealedSecret = Annotated[
    SecretStr,
    PlainSerializer(_reveal, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "password"}),
]
"""A secret in a response: in clear on the wire, masked wherever the response is printed or logged."""

WHOLE_NUMBER = BeforeValidator(_require_whole_number)
"""Accepts only whole numbers. Put it after the limits of the field, so that these stay in the JSON schema."""

StrictBool = Annotated[bool, Field(strict=True)]
"""A JSON boolean; strings and numbers are not converted."""

SingleLineText = Annotated[str, AfterValidator(_reject_control_characters)]
"""Text without control characters, which can be shown on one line."""

Reason = Annotated[
    SingleLineText,
    BeforeValidator(_strip),
    Field(min_length=1, max_length=500),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 500, "pattern": r"\S"}),
]
"""The reason for a command or change, as the person or controller gave it."""

ResourceName = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        "1 to 63 letters, digits, dots, dashes and underscores, with a letter or digit at both ends",
    ),
]
"""The name of a resource."""

RegionName = Annotated[
    str, text_like(r"^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$", "an AWS region such as eu-west-1", max_length=32)
]
"""The name of a cloud region, such as eu-west-1."""


M = TypeVar("M", bound=BaseModel)
_FULL_FIELD_SETS: dict[type[BaseModel], set[str]] = {}


def share_field_sets(model: M) -> M:
    """Return the model after replacing its set of given fields by one set that all instances of the class share.

    Pydantic stores such a set in each instance, also where all fields were given. Controllers hold the whole fleet:
    10,000 workers took 305 MiB with shared sets and 403 MiB without (measured). Copies of a model get their own set.
    """
    _share_field_set(model)
    return model


def _share_field_set(model: BaseModel) -> None:
    cls = type(model)
    every = _FULL_FIELD_SETS.get(cls)
    if every is None:
        every = _FULL_FIELD_SETS[cls] = set(cls.model_fields)
    if len(model.__pydantic_fields_set__) == len(every):
        object.__setattr__(model, "__pydantic_fields_set__", every)
    for value in model.__dict__.values():
        if isinstance(value, BaseModel):
            _share_field_set(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for each in value:
                _share_field_set(each)
