"""Which rows of a series to drop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    RowId = TypeVar("RowId")

_MICROS_PER_SECOND = 1_000_000


class Downsampler:
    """Reads rows in the order of time and names those to drop: all but the first of each span and subject."""

    def __init__(self, keep_every_seconds: int) -> None:
        self._span = keep_every_seconds * _MICROS_PER_SECOND
        self._kept: dict[str, int] = {}

    def dropped(self, rows: Iterable[tuple[RowId, str, int]]) -> list[RowId]:
        """The ids to drop of rows (id, subject, microseconds), which follow those given before."""
        return [row_id for row_id, subject, at in rows if self._drops(subject, at)]

    def _drops(self, subject: str, at: int) -> bool:
        if not self._span:
            return True
        span = at // self._span
        if self._kept.get(subject) == span:
            return True
        self._kept[subject] = span
        return False
