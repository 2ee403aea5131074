"""The committed state, which outlives a `MemoryStore`, and queries on it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.store.adapter_rules import Downsampler, released_unique_values, require_commit_allowed
from lcm.control_plane.store.cursors import journal_cursor
from lcm.control_plane.store.port import JournalEntry, Put
from lcm.control_plane.store.values import comparable, fold, order_key, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lcm.control_plane.store.adapter_rules import Commit
    from lcm.control_plane.store.port import FieldValue, Kind, Sample, Where


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
        for document_id, document in self._documents.get(kind.name, {}).items():
            if _matches(document.fields, where):
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


def _matches(fields: Mapping[str, FieldValue], where: Where) -> bool:
    return (
        all(_is_one_of(fields.get(name), values) for name, values in where.any_of.items())
        and not any(_is_one_of(fields.get(name), values) for name, values in where.none_of.items())
        and (not where.either or any(_is_one_of(fields.get(name), values) for name, values in where.either.items()))
        and all(_is_at_least(fields.get(name), bound) for name, bound in where.at_least.items())
        and all(_is_below(fields.get(name), bound) for name, bound in where.below.items())
        and all(_contains(fields.get(name), text) for name, text in where.contains.items())
        and all(_contains(fields.get(name), text) for name, texts in where.contains_all.items() for text in texts)
    )


def _is_one_of(value: FieldValue, values: Sequence[FieldValue]) -> bool:
    return order_key(value) in map(order_key, values)


def _is_at_least(value: FieldValue, bound: FieldValue) -> bool:
    return comparable(value, bound) and order_key(value) >= order_key(bound)


def _is_below(value: FieldValue, bound: FieldValue) -> bool:
    return comparable(value, bound) and order_key(value) < order_key(bound)


def _contains(value: FieldValue, text: str) -> bool:
    return isinstance(value, str) and fold(text) in fold(value)
