"""Field values, the same for every adapter: which are allowed, how they are ordered, how times and text are stored.

The order is None, numbers, text, booleans; text by code point. A boolean is never equal to a number.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue

OrderKey: TypeAlias = "tuple[int, float | str]"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INTEGERS = range(-(2**63), 2**63)


def order_key(value: FieldValue) -> OrderKey:
    """The sort key of a value. Equal keys mean equal values."""
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 3, value
    return (2, value) if isinstance(value, str) else (1, value)


def comparable(value: FieldValue, bound: FieldValue) -> bool:
    """Whether `at_least` and `below` apply: values of different types are neither above nor below each other."""
    return order_key(value)[0] == order_key(bound)[0]


def is_number(value: FieldValue) -> bool:
    """Whether sums include the value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fold(text: str) -> str:
    """Text in the form that `contains` compares."""
    return text.casefold()


class InvalidValueError(ValueError):
    """A value that some adapter cannot store, such as text with a NUL character."""


def check_text(text: object, what: str) -> None:
    """Raise `InvalidValueError` for text that some adapter cannot store."""
    if not isinstance(text, str):
        raise InvalidValueError(f"{what} must be text, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidValueError(f"{what} must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValueError(f"{what} is not valid Unicode") from None


def check_value(value: object, what: str) -> None:
    """Raise `InvalidValueError` for a value that some adapter cannot store."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if value not in _INTEGERS:
            raise InvalidValueError(f"{what} does not fit into 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValueError(f"{what} must be a finite number")
    else:
        check_text(value, what)


def to_micros(time: datetime) -> int:
    """A time as whole microseconds since 1970."""
    if time.tzinfo is None:
        raise ValueError("a time must have a time zone")
    return (time - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The time, in UTC."""
    return _EPOCH + micros * _MICROSECOND
