"""The store port: documents with revisions that are committed together or not at all.

Callers read documents, compute a change, and commit it with the revisions it was computed from. A commit becomes
visible and durable as a whole, or not at all. Of two commits based on the same revision, one fails with
`RevisionConflictError`. There are no other transactions, so three very different adapters can keep the same promise.

The revision belongs to the store. It changes with every write and is never reused, not even for a document that is
deleted and created again. A record's `version` is part of its body and changes as its owner decides.

Input that some adapter could not store (an undeclared field, a document twice in one commit, text with NUL) raises
`ValueError`.

Documents are JSON bytes, so that lists can be sent without decoding. Values to filter by, to sort by or to keep unique
are stored beside the document, in fields that the kind declares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

FieldValue: TypeAlias = "str | int | float | bool | None"


class StoreError(Exception):
    """The store could not carry out a request."""


class StoreUnavailableError(StoreError):
    """The store is not reachable now. A commit in progress may or may not have happened."""


class RevisionConflictError(StoreError):
    """Another commit changed a document; nothing was committed. `current` is its revision, None if it is deleted."""

    def __init__(self, kind: str, document_id: str, current: int | None) -> None:
        super().__init__(f"{kind} {document_id} was changed by another request")
        self.kind = kind
        self.document_id = document_id
        self.current = current


class UniqueViolationError(StoreError):
    """A value that must be unique belongs to another document; nothing was committed."""

    def __init__(self, kind: str, field_name: str, value: str, owner: str) -> None:
        super().__init__(f"{kind}: {field_name} {value!r} is already used by {owner}")
        self.kind = kind
        self.field = field_name
        self.value = value
        self.owner = owner


class InvalidCursorError(StoreError, ValueError):
    """A cursor that this store did not issue for this list."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document, and the fields beside it to filter and sort by.

    Every document has a value for each declared field, possibly None, so that "missing" has one meaning only.
    """

    name: str
    fields: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()  # declared fields of long text that only `contains` and `contains_all` use
    grouped: tuple[str, ...] = ()  # fields that `count_by` groups by or sums up; one index covers them
    listed: tuple[str, ...] = ()  # fields by which a search is narrowed and counted; an index has them with the text
    archived: tuple[tuple[str, tuple[str, ...]], ...] = ()  # fields with the values of documents that pile up

    def index_for(self, where: Where) -> str | None:
        """The field whose index a list should be read from: one by which the condition excludes what piles up.

        A database would rather read the index of the order, and with it every document that is excluded.
        """
        for name, values in self.archived:
            if set(values) & set(where.none_of.get(name, ())):
                return name
        return None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is stored."""

    id: str
    revision: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Write a document. `expected` is the revision it was computed from; None means it must not exist yet."""

    kind: Kind
    id: str
    body: bytes
    expected: int | None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    unique: Mapping[str, str] = field(default_factory=dict)  # the complete set: a value that is left out is released


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document that has this revision."""

    kind: Kind
    id: str
    expected: int


@dataclass(frozen=True, slots=True)
class Guard:
    """Commit only if a document that is not written still has this revision; None means it must not exist."""

    kind: Kind
    id: str
    expected: int | None


@dataclass(frozen=True, slots=True)
class NewJournalEntry:
    """An entry to append to the journal, which holds audit, history and events in one order.

    `team` and `owner` are those of its subject; without a team it is for roles of the whole fleet only.
    """

    topic: str
    subject: str
    body: bytes
    at: datetime
    team: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry of the journal with its cursor. Later commits have greater cursors, compared as text."""

    cursor: str
    topic: str
    subject: str
    body: bytes
    at: datetime
    team: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions on fields, all of which must be true.

    Numbers, text and booleans are never equal to, above or below one another. None is equal to None only.
    """

    any_of: Mapping[str, Sequence[FieldValue]] = field(default_factory=dict)
    none_of: Mapping[str, Sequence[FieldValue]] = field(default_factory=dict)
    at_least: Mapping[str, FieldValue] = field(default_factory=dict)
    below: Mapping[str, FieldValue] = field(default_factory=dict)
    contains: Mapping[str, str] = field(default_factory=dict)  # case-insensitive
    contains_all: Mapping[str, Sequence[str]] = field(default_factory=dict)  # each of the texts, case-insensitive
    either: Mapping[str, Sequence[FieldValue]] = field(default_factory=dict)  # one of the fields has one of its values


@dataclass(frozen=True, slots=True)
class Sort:
    """By one declared field and then by id, or by id alone. None comes first, then numbers, text, booleans."""

    by: str | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents in order, and the cursor of the next page; None on the last page.

    Pages are stable: a document that exists throughout and keeps its place in the order is on exactly one page.
    """

    items: Sequence[StoredDocument]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a series, such as a worker's metrics."""

    subject: str
    at: datetime
    body: bytes


class Store(Protocol):
    """See the module's docstring."""

    async def open(self, kinds: Sequence[Kind]) -> None:
        """Prepare the store for these kinds. An older schema is migrated, a newer one is an error."""

    async def close(self) -> None:
        """Finish commits in progress and release all resources."""

    async def check(self) -> None:
        """Raise `StoreUnavailableError` unless the store can be read and written now."""

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        """One document."""

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        """The documents that exist, by id. They are not necessarily from one point in time."""

    async def get_unique(self, kind: Kind, field_name: str, value: str) -> StoredDocument | None:
        """The document that has a unique value."""

    async def find(
        self,
        kind: Kind,
        where: Where | None = None,
        *,
        sort: Sort | None = None,
        after: str | None = None,
        skip: int = 0,
        limit: int = 100,
    ) -> DocumentPage:
        """A page of documents; `skip` leaves out as many before it. Each of those costs time, so `after` is cheaper."""

    async def count_by(
        self, kind: Kind, fields: Sequence[str], where: Where | None = None, *, sums: Sequence[str] = ()
    ) -> Sequence[tuple[tuple[FieldValue, ...], int, tuple[float, ...]]]:
        """For each combination of field values: the values, the number of documents, the sums of numeric fields."""

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        """Commit everything or nothing, durable on return; returns the cursors of the entries.

        Raises `RevisionConflictError` or `UniqueViolationError`.
        """

    async def read_journal(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        topics: Sequence[str] = (),
        subjects: Sequence[str] = (),
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """Entries after or before a cursor. A reader that follows by `after` misses trimmed entries only."""

    async def trim_journal(self, topic: str, *, through: str, limit: int = 1000) -> int:
        """Delete at most `limit` of a topic's oldest entries, up to and including this cursor; returns the number.

        Cursors are never reused. A reader that follows from an older cursor is not notified of the gap.
        """

    async def append_samples(self, series: str, samples: Sequence[Sample]) -> None:
        """Append samples to a series. They become durable soon, not necessarily at once."""

    async def read_samples(
        self, series: str, subject: str, *, since: datetime, limit: int = 10_000
    ) -> Sequence[Sample]:
        """A subject's samples since a time, oldest first."""

    async def downsample(self, series: str, *, before: datetime, keep_every_seconds: int) -> int:
        """Keep only the first sample per interval and subject before a time (0: none); returns the number dropped."""
