"""The committed state, which outlives a `MemoryStore`, and queries on it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import starmap
from operator import ge, lt
from typing import TYPE_CHECKING, TypeAlias

from lcm.control_plane.store.adapter_rules import Downsampler, released_unique_values, require_commit_allowed
from lcm.control_plane.store.cursors import journal_cursor
from lcm.control_plane.store.port import JournalEntry, Put
from lcm.control_plane.store.values import comparable, fold, order_key, to_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lcm.control_plane.store.adapter_rules import Commit
    from lcm.control_plane.store.port import FieldValue, Kind, Sample, Where
    from lcm.control_plane.store.values import OrderKey

_Condition: TypeAlias = "Callable[[Mapping[str, FieldValue]], bool]"


@dataclass(frozen=True, slots=True)
class MemoryDocument:
    """A document on the disk."""

    revision: int
    body: bytes
    fields: Mapping[str, FieldValue]
    unique: Mapping[str, str]


class MemoryDisk:
    """Holds exactly what is committed. A commit happens at one instant, so it is never partial."""

    def __init__(self) -> None:
        self._documents: dict[str, dict[str, MemoryDocument]] = {}
        self._owners: dict[tuple[str, str, str], str] = {}
        self._revision = 0
        self._journal: list[JournalEntry] = []
        self._cursor = 0
        self._samples: dict[str, list[Sample]] = {}

    def get(self, kind: Kind, document_id: str) -> MemoryDocument | None:
        return self._documents.get(kind.name, {}).get(document_id)

    def revision(self, kind: Kind, document_id: str) -> int | None:
        document = self.get(kind, document_id)
        return document.revision if document else None

    def unique_values(self, kind: Kind, document_id: str) -> Mapping[str, str]:
        document = self.get(kind, document_id)
        return document.unique if document else {}

    def owner(self, kind: Kind, field_name: str, value: str) -> str | None:
        return self._owners.get((kind.name, field_name, value))

    def commit(self, commit: Commit) -> Sequence[str]:
        """Apply all of a commit, or raise and apply nothing."""
        require_commit_allowed(commit, self)
        for write in commit.writes:
            for name, value in released_unique_values(write, self):
                del self._owners[write.kind.name, name, value]
        self._revision += 1
        for write in commit.writes:
            documents = self._documents.setdefault(write.kind.name, {})
            if not isinstance(write, Put):
                del documents[write.id]
                continue
            documents[write.id] = MemoryDocument(
                self._revision, bytes(write.body), dict(write.fields), dict(write.unique)
            )
            for name, value in write.unique.items():
                self._owners[write.kind.name, name, value] = write.id
        first = self._cursor + 1
        recorded = [
            JournalEntry(
                journal_cursor(number), entry.topic, entry.subject, bytes(entry.body), entry.at, entry.team, entry.owner
            )
            for number, entry in enumerate(commit.entries, first)
        ]
        self._journal += recorded
        self._cursor += len(recorded)
        return [line.cursor for line in recorded]

    def matching(self, kind: Kind, where: Where) -> Iterator[tuple[str, MemoryDocument]]:
        """The documents that match a condition, in no particular order."""
        conditions = list(_conditions(where))  # prepared once, not for each document
        for document_id, document in self._documents.get(kind.name, {}).items():
            if not conditions or all(holds(document.fields) for holds in conditions):
                yield document_id, document

    def read_journal(self, after: str | None, before: str | None) -> Sequence[JournalEntry]:
        """The entries between two cursors, oldest first."""
        begin = bisect_right(self._journal, after, key=_cursor) if after is not None else 0
        end = bisect_left(self._journal, before, key=_cursor) if before is not None else len(self._journal)
        return self._journal[begin:end]

    def trim_journal(self, topic: str, through: str, limit: int) -> int:
        """Delete a topic's oldest entries; returns the number."""
        old = [line.cursor for line in self.read_journal(None, None) if line.topic == topic and line.cursor <= through]
        dropped = set(old[:limit])
        self._journal = [line for line in self._journal if line.cursor not in dropped]
        return len(dropped)

    def append_samples(self, series: str, samples: Sequence[Sample]) -> None:
        rows = self._samples.setdefault(series, [])
        rows += samples
        rows.sort(key=_at)  # stable: samples of the same time keep their order

    def read_samples(self, series: str) -> Sequence[Sample]:
        """All samples, oldest first."""
        return self._samples.get(series, ())

    def downsample(self, series: str, before: int, keep_every_seconds: int) -> int:
        rows = self._samples.get(series, [])
        old = [(number, row.subject, _at(row)) for number, row in enumerate(rows) if _at(row) < before]
        dropped = set(Downsampler(keep_every_seconds).rows_to_drop(old))
        rows[:] = [row for number, row in enumerate(rows) if number not in dropped]
        return len(dropped)


def _cursor(line: JournalEntry) -> str:
    return line.cursor


def _at(sample: Sample) -> int:
    return to_micros(sample.at)


def _conditions(where: Where) -> Iterator[_Condition]:
    """What the fields of a document must fulfil."""
    yield from starmap(_is_one_of, where.any_of.items())
    for is_one in starmap(_is_one_of, where.none_of.items()):
        yield _negated(is_one)
    if where.either:
        yield _any_holds(list(starmap(_is_one_of, where.either.items())))
    yield from (_is_on_its_side(name, bound, ge) for name, bound in where.at_least.items())
    yield from (_is_on_its_side(name, bound, lt) for name, bound in where.below.items())
    yield from starmap(_contains, where.contains.items())
    yield from (_contains(name, text) for name, texts in where.contains_all.items() for text in texts)


def _is_one_of(name: str, values: Sequence[FieldValue]) -> _Condition:
    keys = set(map(order_key, values))
    return lambda fields: order_key(fields.get(name)) in keys


def _negated(condition: _Condition) -> _Condition:
    return lambda fields: not condition(fields)


def _any_holds(conditions: Sequence[_Condition]) -> _Condition:
    return lambda fields: any(holds(fields) for holds in conditions)


def _is_on_its_side(name: str, bound: FieldValue, side: Callable[[OrderKey, OrderKey], bool]) -> _Condition:
    key = order_key(bound)
    return lambda fields: comparable(fields.get(name), bound) and side(order_key(fields.get(name)), key)


def _contains(name: str, text: str) -> _Condition:
    folded = fold(text)

    def holds(fields: Mapping[str, FieldValue]) -> bool:
        value = fields.get(name)
        return isinstance(value, str) and folded in fold(value)

    return holds
