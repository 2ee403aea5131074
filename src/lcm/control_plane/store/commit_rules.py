"""Whether a commit may happen, decided the same way by every adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.store.port import Put, RevisionConflictError, UniqueViolationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.store.port import Delete, Guard, Kind, NewJournalEntry


@dataclass(frozen=True, slots=True)
class Commit:
    """What one call of `Store.commit` asks for."""

    writes: Sequence[Put | Delete]
    entries: Sequence[NewJournalEntry]
    guards: Sequence[Guard]


class DocumentView(Protocol):
    """The documents as they are while the commit is decided."""

    def revision(self, kind: Kind, document_id: str) -> int | None:
        """The document's revision; None if there is none."""

    def held(self, kind: Kind, document_id: str) -> Mapping[str, str]:
        """The unique values that the document has."""

    def owner(self, kind: Kind, field_name: str, value: str) -> str | None:
        """Whose the unique value is."""


def require_commit_allowed(commit: Commit, view: DocumentView) -> None:
    """Raise `RevisionConflictError` or `UniqueViolationError` unless the commit may happen.

    Values that the commit itself frees can be taken in it by another document, whatever the order of its writes.
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
    """The unique values that a write lets go."""
    kept = write.unique if isinstance(write, Put) else {}
    return [(name, value) for name, value in view.held(write.kind, write.id).items() if kept.get(name) != value]


def _releases(write: Put | Delete | None, name: str, value: str) -> bool:
    return write is not None and (not isinstance(write, Put) or write.unique.get(name) != value)
