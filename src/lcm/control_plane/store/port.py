"""The store port: documents with revisions, changed together or not at all.

A change is decided outside (read, compute, commit) and committed with the revisions it was computed from. Everything in
a commit becomes visible and durable at once, or nothing does; of two commits that saw the same revision one gets
`RevisionConflictError`. There are no other transactions, so three very different adapters can keep the same promise.

The revision is the store's own, moves with every write and never comes back, not even for a document that is deleted
and made again; a record's `version` is in its body and moves as its owner says.

What no adapter could keep (an undeclared field, a document named twice in a commit, text with NUL) is a `ValueError`.

Documents are bytes of JSON: whoever lists them can hand them on without decoding. What can be filtered, sorted or must
be unique is given beside the document, in fields that the kind declares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

FieldValue: TypeAlias = "str | int | float | bool | None"


class StoreError(Exception):
    """The store could not do what was asked."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached now. Whether a commit that was under way happened is not known."""


class RevisionConflictError(StoreError):
    """Somebody else changed a document in between; nothing was committed. `current` is its revision, None if gone."""

    def __init__(self, kind: str, document_id: str, current: int | None) -> None:
        super().__init__(f"{kind} {document_id} was changed meanwhile")
        self.kind = kind
        self.document_id = document_id
        self.current = current


class UniqueViolationError(StoreError):
    """A value that must be unique belongs to another document; nothing was committed."""

    def __init__(self, kind: str, field_name: str, value: str, owner: str) -> None:
        super().__init__(f"{kind}: {field_name} {value!r} is taken by {owner}")
        self.kind = kind
        self.field = field_name
        self.value = value
        self.owner = owner


class InvalidCursorError(StoreError, ValueError):
    """A cursor that this store did not give out for this list."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document: which fields beside it can be filtered and sorted by, and which counts are asked for.

    A field that is declared is given with every document, None included, so that "missing" never means two things.
    """

    name: str
    fields: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()  # fields that `count_by` groups by and `sums` adds up: covered by one index


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is."""

    id: str
    revision: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Write a document. `expected` is the revision it was computed from; None: it must not exist yet."""

    kind: Kind
    id: str
    body: bytes
    expected: int | None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    unique: Mapping[str, str] = field(default_factory=dict)  # only those that are taken now; leaving one out frees it


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document that has this revision."""

    kind: Kind
    id: str
    expected: int


@dataclass(frozen=True, slots=True)
class Guard:
    """Commit only if a document that is not written still has this revision; None: only if it does not exist."""

    kind: Kind
    id: str
    expected: int | None


@dataclass(frozen=True, slots=True)
class NewJournalEntry:
    """A line of the journal: audit, history and events in one order. `subject` is what it is about."""

    topic: str
    subject: str
    body: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A line of the journal with its place; cursors of later commits are greater as text."""

    cursor: str
    topic: str
    subject: str
    body: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions that must all hold: a field is one of, is none of, is at least, is below; or its text contains.

    Numbers, text and booleans are never equal to, above or below one another; None is only equal to None.
    """

    any_of: Mapping[str, Sequence[FieldValue]] = field(default_factory=dict)
    none_of: Mapping[str, Sequence[FieldValue]] = field(default_factory=dict)
    at_least: Mapping[str, FieldValue] = field(default_factory=dict)
    below: Mapping[str, FieldValue] = field(default_factory=dict)
    contains: Mapping[str, str] = field(default_factory=dict)  # case does not count


@dataclass(frozen=True, slots=True)
class Sort:
    """By one declared field, then by id; without one by id alone. None comes first, then numbers, text, booleans."""

    by: str | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Some documents in order, and where the next page begins; None at the end.

    Stable under change: a document that is there all the while and does not move in the order is on exactly one page.
    """

    items: Sequence[StoredDocument]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a series, such as a worker's metrics."""

    subject: str
    at: datetime
    body: bytes


class Store(Protocol):
    """See the module's text."""

    async def open(self, kinds: Sequence[Kind]) -> None:
        """Make ready for these kinds, bring an older schema up to date, refuse a newer one with a clear error."""

    async def close(self) -> None:
        """Finish commits under way and let go."""

    async def check(self) -> None:
        """Returns if the store can be read and written now, else raises `StoreUnavailableError`."""

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        """One document."""

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        """Those of the documents that exist, by id; not necessarily as they were at one moment."""

    async def get_unique(self, kind: Kind, field_name: str, value: str) -> StoredDocument | None:
        """The document that holds a unique value."""

    async def find(
        self,
        kind: Kind,
        where: Where | None = None,
        *,
        sort: Sort | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> DocumentPage:
        """A page of documents."""

    async def count_by(
        self, kind: Kind, fields: Sequence[str], where: Where | None = None, *, sums: Sequence[str] = ()
    ) -> Sequence[tuple[tuple[FieldValue, ...], int, tuple[float, ...]]]:
        """For each combination of the fields' values: the values, how many documents, the sums of numeric fields."""

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        """All of it or nothing, durable when this returns; gives the cursors of the entries. `RevisionConflictError` or `UniqueViolationError`."""

    async def journal(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        topics: Sequence[str] = (),
        subjects: Sequence[str] = (),
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """Lines of the journal after (or before) a cursor. Whoever follows by `after` misses only forgotten ones."""

    async def forget(self, topic: str, *, through: str, limit: int = 1000) -> int:
        """Drop at most so many of a topic's oldest lines, up to and with this cursor; says how many were dropped.

        No cursor is ever given out again. Whoever follows the journal from before that line is not told of the hole.
        """

    async def append(self, series: str, samples: Sequence[Sample]) -> None:
        """Add rows to a series; durable soon, not necessarily at once."""

    async def series(self, series: str, subject: str, *, since: datetime, limit: int = 10_000) -> Sequence[Sample]:
        """A subject's rows since a moment, oldest first."""

    async def downsample(self, series: str, *, before: datetime, keep_every_seconds: int) -> int:
        """Of rows older than `before` keep the first per span and subject (0: none); says how many were dropped."""
