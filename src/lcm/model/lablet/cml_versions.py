"""Versions of CML, and ranges of them such as `>=2.6,<3`."""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Release = tuple[int, ...]

_PARTS = 4
_LEADING = re.compile(r"\s*v?(\d{1,9}(?:\.\d{1,9}){0,3})")
_COMPARISON = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*(\d{1,9}(?:\.\d{1,9}){0,3})\s*")
_COMPARED: dict[str, Callable[[Release, Release], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@lru_cache(maxsize=1024)
def in_range(version: str, wanted: str) -> bool:
    """Whether a version that CML tells (`2.7.0+build.4`) meets every comparison; what has no number meets none.

    Parts that are not written are nought: 2.6 is 2.6.0. What follows the numbers (a build) is not compared.
    """
    release = _release(version)
    if release is None:
        return False
    for comparison in wanted.split(","):
        found = _COMPARISON.fullmatch(comparison)
        if found is None:
            return False
        bound = _padded(found.group(2))
        if not _COMPARED[found.group(1)](release, bound):
            return False
    return True


def _release(version: str) -> Release | None:
    found = _LEADING.match(version)
    return None if found is None else _padded(found.group(1))


def _padded(numbers: str) -> Release:
    parts = tuple(int(part) for part in numbers.split("."))
    return parts + (0,) * (_PARTS - len(parts))
