"""What all data of the contract has in common."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

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


class CaseInsensitiveEnum(StrEnum):
    """A word of a fixed list: upper or lower case as defined, input in any case."""

    @classmethod
    def _missing_(cls, value: object) -> CaseInsensitiveEnum | None:
        if not isinstance(value, str):
            return None
        return next((member for member in cls if member.value.lower() == value.strip().lower()), None)


class StrictModel(BaseModel):
    """Data that is passed around: never changed in place, a field that nobody knows is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", allow_inf_nan=False)


class LenientModel(StrictModel):
    """Data that a newer server may have more of: a reader passes over what it does not know."""

    model_config = ConfigDict(extra="ignore")


def _to_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _reject_number(value: Any) -> Any:
    """A number would be taken for seconds since 1970, which nobody means."""
    if isinstance(value, int | float) or (isinstance(value, str) and not value[:5].endswith("-")):
        raise ValueError("must be a date and time with a zone, such as 2026-01-17T10:30:00Z")
    return value


def _require_whole_number(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is a whole one; a truth value or text is none."""
    if isinstance(value, bool | str):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic tells only these
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _format_utc(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _reveal(secret: SecretStr) -> str:
    return secret.get_secret_value()


def _reject_control_characters(text: str) -> str:
    if text.isprintable():  # most text, and a fraction of the time
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
"""A time with a zone; UTC inside, `Z` on the wire."""

RevealedSecret = Annotated[
    SecretStr,
    PlainSerializer(_reveal, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "password"}),
]
"""A secret that an answer tells: in clear on the wire, and masked wherever the answer is shown or logged."""

WHOLE_NUMBER = BeforeValidator(_require_whole_number)
"""After the limits of a number, so that they stay in the document: only whole numbers, written as numbers."""

StrictBool = Annotated[bool, Field(strict=True)]
"""True or false, and nothing that could be taken for it."""

SingleLineText = Annotated[str, AfterValidator(_reject_control_characters)]
"""Text that can be shown on one line."""

Reason = Annotated[
    SingleLineText,
    BeforeValidator(_strip),
    Field(min_length=1, max_length=500),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 500, "pattern": r"\S"}),
]
"""Why somebody did something."""

ResourceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
"""A name people give: letters, digits, dots, dashes and underscores, 63 at most."""

RegionName = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$", max_length=32)]
"""A region of the cloud, such as eu-west-1."""


M = TypeVar("M", bound=BaseModel)
_FULL_FIELD_SETS: dict[type[BaseModel], set[str]] = {}


def share_field_sets(model: M) -> M:
    """The same model. Each one keeps a set of the fields it was given; where that is all, one set serves its class.

    Of a worker these sets are more than half of the memory.
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
