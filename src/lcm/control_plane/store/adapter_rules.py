"""Rules that every adapter applies in the same way: whether a commit is allowed, and which samples to drop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.store.port import Put, RevisionConflictError, UniqueViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeVar

    from lcm.control_plane.store.port import Delete, Guard, Kind, NewJournalEntry

    RowId = TypeVar("RowId")


@dataclass(frozen=True, slots=True)
class Commit:
    """The arguments of one call of `Store.commit`."""

    writes: Sequence[Put | Delete]
    entries: Sequence[NewJournalEntry]
    guards: Sequence[Guard]


class DocumentView(Protocol):
    """The documents at the time of the decision."""

    def revision(self, kind: Kind, document_id: str) -> int | None:
        """The document's revision; None if it does not exist."""

    def unique_values(self, kind: Kind, document_id: str) -> Mapping[str, str]:
        """The unique values of the document."""

    def owner(self, kind: Kind, field_name: str, value: str) -> str | None:
        """The id of the document that has the unique value."""


def require_commit_allowed(commit: Commit, view: DocumentView) -> None:
    """Raise `RevisionConflictError` or `UniqueViolationError` unless the commit is allowed.

    A unique value that one write releases can be used by another write of the same commit, in any order.
    """
    for part in (*commit.guards, *commit.writes):
        current = view.revision(part.kind, part.id)
        if current != part.expected:
            raise RevisionConflictError(part.kind.name, part.id, current)
    taken: dict[tuple[str, str, str], str] = {}
    written = {(write.kind.name, write.id): write for write in commit.writes}
    for put in commit.writes:
        if not isinstance(put, Put):
            continue
        for name, value in put.unique.items():
            owner = taken.setdefault((put.kind.name, name, value), put.id)
            if owner == put.id:
                owner = view.owner(put.kind, name, value) or put.id
                if owner != put.id and _releases(written.get((put.kind.name, owner)), name, value):
                    continue
            if owner != put.id:
                raise UniqueViolationError(put.kind.name, name, value, owner)


def released_unique_values(write: Put | Delete, view: DocumentView) -> Sequence[tuple[str, str]]:
    """The unique values that a write releases."""
    remaining = write.unique if isinstance(write, Put) else {}
    return [
        (name, value)
        for name, value in view.unique_values(write.kind, write.id).items()
        if remaining.get(name) != value
    ]


def _releases(write: Put | Delete | None, name: str, value: str) -> bool:
    return write is not None and (not isinstance(write, Put) or write.unique.get(name) != value)


_MICROS_PER_SECOND = 1_000_000


class Downsampler:
    """Selects the samples to drop, in order of time: all but the first of each interval and subject."""

    def __init__(self, keep_every_seconds: int) -> None:
        self._interval = keep_every_seconds * _MICROS_PER_SECOND
        self._kept: dict[str, int] = {}

    def rows_to_drop(self, rows: Iterable[tuple[RowId, str, int]]) -> list[RowId]:
        """The ids to drop from the next rows (id, subject, microseconds)."""
        return [row_id for row_id, subject, at in rows if self._drops(subject, at)]

    def _drops(self, subject: str, at: int) -> bool:
        if not self._interval:
            return True
        interval = at // self._interval
        if self._kept.get(subject) == interval:
            return True
        self._kept[subject] = interval
        return False
