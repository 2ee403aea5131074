"""Base classes and field types of all models."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    SecretStr,
    WithJsonSchema,
)
from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue

from lcm.model.validation import text_like


class CaseInsensitiveEnum(StrEnum):
    """A string enum that accepts input in any case; output has the case of the definition."""

    @classmethod
    def _missing_(cls, value: object) -> CaseInsensitiveEnum | None:
        if not isinstance(value, str):
            return None
        return next((member for member in cls if member.value.lower() == value.strip().lower()), None)

    @property
    def is_known(self) -> bool:
        """Whether this version defines it. Records may have words of a newer version; see `CARRIED`."""
        return self._name_ in type(self).__members__

    @classmethod
    def carry(cls, word: str) -> Self:
        """A member for a word of a newer version: the same one each time, and not among the members of the class."""
        carried = _CARRIED_WORDS.get((cls, word))
        if carried is None:
            carried = str.__new__(cls, word)
            carried._name_ = carried._value_ = word
            _CARRIED_WORDS[cls, word] = carried
        return cast("Self", carried)


E = TypeVar("E", bound=CaseInsensitiveEnum)


def has_carried_words() -> bool:
    """Whether this process has read any word of a newer version."""
    return bool(_CARRIED_WORDS)


def read_word(words: type[E], value: object) -> E:
    """The member for a stored value, which may be of a newer version."""
    try:
        return words(str(value))
    except ValueError:
        return words.carry(str(value))


_CARRIED_WORDS: dict[tuple[type[CaseInsensitiveEnum], str], CaseInsensitiveEnum] = {}


class _CarryUnknownWords:
    """Annotates an enum field of a record: a word of a newer version is kept instead of being an error."""

    def __get_pydantic_core_schema__(
        self, source: type[CaseInsensitiveEnum], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        known = handler(source)
        word = core_schema.str_schema(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")
        carried = core_schema.no_info_after_validator_function(source.carry, word)
        return core_schema.union_schema([known, carried], mode="left_to_right")

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        choices = cast("core_schema.UnionSchema", schema)["choices"]
        return handler(cast("core_schema.CoreSchema", choices[0]))


CARRIED = _CarryUnknownWords()
"""For the enum fields of records: during an upgrade, an older version reads what a newer one has written."""


class StrictModel(BaseModel):
    """An immutable model that rejects unknown fields. Base of request bodies."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", allow_inf_nan=False)


class LenientModel(StrictModel):
    """An immutable model that ignores unknown fields, so that a client can read the response of a newer server."""

    model_config = ConfigDict(extra="ignore")


class Record(LenientModel):
    """What is stored, and its parts. Fields of a newer version are kept when an older one changes the record."""

    model_config = ConfigDict(extra="allow")

    def with_unknown_fields_of(self, before: Record | None) -> Self:
        """This record with the fields of a newer version that it had before, for rules that build it anew."""
        return self if before is None or not before.model_extra else self.model_copy(update=before.model_extra)


T = TypeVar("T")


class Page(LenientModel, Generic[T]):
    """One page of a list. `next_cursor` requests the next page; it is null on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class Ack(LenientModel):
    """Confirms that a report was stored."""

    kept: bool = True


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be a date that also exists in UTC") from None


_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(days=1)
_LAST_TIME = datetime(3000, 1, 1, tzinfo=UTC) + timedelta(days=1)


def _check_year(moment: datetime) -> datetime:
    """Rules add and subtract durations: at the ends of the calendar that fails. A day more allows for time zones."""
    if not _FIRST_TIME <= moment <= _LAST_TIME:
        raise ValueError("must be a date from the year 1970 to 2999")
    return moment


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


def format_utc(moment: datetime) -> str:
    """The text of a time on the wire."""
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
    PlainSerializer(format_utc, when_used="json"),
]
"""A time with a zone: UTC in memory, with a `Z` suffix on the wire."""

RequestedTime = Annotated[UtcDatetime, AfterValidator(_check_year)]
"""A time in a request. Records have `UtcDatetime`: whatever was stored once can be read."""

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
_NO_EXTRA_FIELDS: dict[str, Any] = {}
_FULL_FIELD_SETS: dict[type[BaseModel], tuple[set[str], tuple[str, ...]]] = {}  # and the fields that hold models


def share_field_sets(model: M) -> M:
    """Return the model after replacing its set of given fields by one set that all instances of the class share.

    Pydantic stores such a set in each instance, also where all fields were given. Controllers hold the whole fleet:
    10,000 workers took 305 MiB with shared sets and 403 MiB without (measured). Copies of a model get their own set.
    """
    _share_field_set(model)
    return model


def _share_field_set(model: BaseModel) -> None:
    cls = type(model)
    known = _FULL_FIELD_SETS.get(cls)
    if known is None:
        nested = tuple(name for name, each in cls.model_fields.items() if _may_hold_model(each.annotation))
        known = _FULL_FIELD_SETS[cls] = (set(cls.model_fields), nested)
    every, nested = known
    extra = model.__pydantic_extra__
    if extra is not None and not extra:
        object.__setattr__(model, "__pydantic_extra__", _NO_EXTRA_FIELDS)
    if model.__pydantic_fields_set__ >= every:  # more, where a response also has what is computed
        object.__setattr__(model, "__pydantic_fields_set__", every)
    values = model.__dict__
    for name in nested:
        value = values[name]
        if isinstance(value, BaseModel):
            _share_field_set(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for each in value:
                _share_field_set(each)


def _may_hold_model(annotation: Any) -> bool:
    """Whether a field of this type can be a model or a tuple of models."""
    if isinstance(annotation, TypeVar):
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_may_hold_model(each) for each in get_args(annotation))
