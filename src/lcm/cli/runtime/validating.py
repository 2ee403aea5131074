"""What somebody typed, checked before it is sent: a wrong value is told by the name they know it by."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lcm.cli.errors import WrongUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")

_EMPTY = ("too_short", "string_too_short")


def valid(kind: type[M], facts: Mapping[str, object]) -> M:
    """The data, or a word on each field that is wrong; secrets are never quoted."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(dict(facts))
    except ValidationError as error:
        told = error.errors(include_input=False, include_url=False, include_context=False)
        problems = [
            f"{'.'.join(str(part) for part in each['loc'])}: {_words(each['type'], each['msg'])}" for each in told
        ]
        raise WrongUsage("\n".join(problems)) from None


def _words(kind: str, message: str) -> str:
    if kind in _EMPTY:
        return "must not be empty"
    return message.removeprefix("Value error, ")
