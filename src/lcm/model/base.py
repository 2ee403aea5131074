"""What all data of the contract has in common."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

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


class Choice(StrEnum):
    """A word of a fixed list: upper or lower case as defined, input in any case."""

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        if not isinstance(value, str):
            return None
        return next((member for member in cls if member.value.lower() == value.strip().lower()), None)


class Data(BaseModel):
    """Data that is passed around: never changed in place, a field that nobody knows is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", allow_inf_nan=False)


class Answer(Data):
    """Data that a newer server may have more of: a reader passes over what it does not know."""

    model_config = ConfigDict(extra="ignore")


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _no_number(value: Any) -> Any:
    """A number would be taken for seconds since 1970, which nobody means."""
    if isinstance(value, int | float) or (isinstance(value, str) and not value[:5].endswith("-")):
        raise ValueError("must be a date and time with a zone, such as 2026-01-17T10:30:00Z")
    return value


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is a whole one; a truth value or text is none."""
    if isinstance(value, bool | str):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic tells only these
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_z(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _revealed(secret: SecretStr) -> str:
    return secret.get_secret_value()


def _without_control(text: str) -> str:
    if text.isprintable():  # most text, and a fraction of the time
        return text
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn") for letter in text):
        raise ValueError("must not contain control characters")
    return text


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


Moment = Annotated[
    AwareDatetime, BeforeValidator(_no_number), AfterValidator(_in_utc), PlainSerializer(_with_z, when_used="json")
]
"""A time with a zone; UTC inside, `Z` on the wire."""

ToldSecret = Annotated[
    SecretStr,
    PlainSerializer(_revealed, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "password"}),
]
"""A secret that an answer tells: in clear on the wire, and masked wherever the answer is shown or logged."""

WHOLE = BeforeValidator(_whole)
"""After the limits of a number, so that they stay in the document: only whole numbers, written as numbers."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false, and nothing that could be taken for it."""

Text = Annotated[str, AfterValidator(_without_control)]
"""Text that can be shown on one line."""

Reason = Annotated[
    Text,
    BeforeValidator(_stripped),
    Field(min_length=1, max_length=500),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 500, "pattern": r"\S"}),
]
"""Why somebody did something."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
"""A name people give: letters, digits, dots, dashes and underscores, 63 at most."""

Region = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$", max_length=32)]
"""A region of the cloud, such as eu-west-1."""
