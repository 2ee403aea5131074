"""A store in memory, for simulations: no threads, no sockets, the same order in every run.

`MemoryDisk` holds what is committed, and `MemoryStore` is a process's handle on it. An operation yields to other tasks
once and then happens at one instant.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING

from lcm.control_plane.store import validation
from lcm.control_plane.store.adapter_rules import Commit
from lcm.control_plane.store.cursors import PagePosition, page_cursor, parse_journal_cursor, parse_page_cursor
from lcm.control_plane.store.memory.disk import MemoryDisk, MemoryDocument
from lcm.control_plane.store.port import DocumentPage, Sort, StoredDocument, StoreError, StoreUnavailableError, Where
from lcm.control_plane.store.values import is_number, order_key, to_micros
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Delete, FieldValue, Guard, JournalEntry, Kind, NewJournalEntry, Put, Sample
    from lcm.control_plane.store.values import OrderKey

__all__ = ["MemoryDisk", "MemoryStore"]


class MemoryStore:
    """A process's handle on a `MemoryDisk`. A new handle on the same disk is the restarted process."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self._catalogue = validation.KindRegistry()
        self._closed: str | None = "the store is not open"
        self._in_progress: dict[int, Commit] = {}
        self._calls = 0

    async def open(self, kinds: Sequence[Kind]) -> None:
        self._catalogue = validation.KindRegistry(kinds)
        self._closed = None

    async def close(self) -> None:
        await asyncio.sleep(0)  # lets commits in progress finish
        self._closed = "the store is closed"

    def crash(self) -> None:
        """End like kill -9: each commit in progress is applied completely or not at all, by chance."""
        self._closed = "the process was killed"
        for commit in self._in_progress.values():
            if clock.rng().random() < 0.5:
                self._apply(commit)
        self._in_progress.clear()

    async def check(self) -> None:
        await self._yield_once()

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        self._catalogue.check(kind)
        validation.check_id(document_id)
        await self._yield_once()
        return self._stored(kind, document_id)

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        self._catalogue.check(kind)
        validation.check_ids(document_ids)
        await self._yield_once()
        found = (self._stored(kind, document_id) for document_id in document_ids)
        return {stored.id: stored for stored in found if stored is not None}

    async def get_unique(self, kind: Kind, field_name: str, value: str) -> StoredDocument | None:
        self._catalogue.check(kind)
        validation.check_unique(kind, field_name, value)
        await self._yield_once()
        owner = self.disk.owner(kind, field_name, value)
        return self._stored(kind, owner) if owner is not None else None

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
        where, sort = where or Where(), sort or Sort()
        self._catalogue.check_query(kind, where, limit, sort, skip)
        position = parse_page_cursor(kind, sort, after) if after is not None else None
        await self._yield_once()
        rows = [
            (_sort_position(sort, document_id, document), document)
            for document_id, document in self.disk.matching(kind, where)
        ]
        if position is not None:
            last = (order_key(position.value), position.id)
            rows = [row for row in rows if (row[0] < last if sort.descending else row[0] > last)]
        nearest = heapq.nlargest if sort.descending else heapq.nsmallest
        page = nearest(skip + limit + 1, rows, key=lambda row: row[0])[skip:]
        items = [StoredDocument(place[1], document.revision, document.body) for place, document in page[:limit]]
        if len(page) <= limit:
            return DocumentPage(items, None)
        (_, last_id), document = page[limit - 1]
        value = document.fields.get(sort.by) if sort.by else None
        return DocumentPage(items, page_cursor(kind, sort, PagePosition(value, last_id)))

    async def count_by(
        self, kind: Kind, fields: Sequence[str], where: Where | None = None, *, sums: Sequence[str] = ()
    ) -> Sequence[tuple[tuple[FieldValue, ...], int, tuple[float, ...]]]:
        where = where or Where()
        self._catalogue.check_query(kind, where)
        validation.check_fields(kind, (*fields, *sums))
        await self._yield_once()
        groups: dict[tuple[OrderKey, ...], list[MemoryDocument]] = {}
        for _, document in self.disk.matching(kind, where):
            groups.setdefault(tuple(order_key(document.fields.get(name)) for name in fields), []).append(document)
        return [
            (
                tuple(documents[0].fields.get(name) for name in fields),
                len(documents),
                tuple(_sum(documents, name) for name in sums),
            )
            for _, documents in sorted(groups.items(), key=lambda group: group[0])
        ]

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        self._catalogue.check_commit(writes, entries, guards)
        self._calls += 1
        call, commit = self._calls, Commit(tuple(writes), tuple(entries), tuple(guards))
        self._require_open()
        self._in_progress[call] = commit
        try:
            await self._yield_once()
            return self.disk.commit(commit)
        finally:
            self._in_progress.pop(call, None)

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
        validation.check_journal_query(topics, subjects, limit)
        for cursor in (after, before):
            if cursor is not None:
                parse_journal_cursor(cursor)
        await self._yield_once()
        lines = self.disk.read_journal(after, before)
        found: list[JournalEntry] = []
        for line in reversed(lines) if newest_first else lines:
            if (not topics or line.topic in topics) and (not subjects or line.subject in subjects):
                found.append(line)
            if len(found) == limit:
                break
        return found

    async def trim_journal(self, topic: str, *, through: str, limit: int = 1000) -> int:
        validation.check_trim(topic, limit)
        parse_journal_cursor(through)
        await self._yield_once()
        return self.disk.trim_journal(topic, through, limit)

    async def append_samples(self, series: str, samples: Sequence[Sample]) -> None:
        validation.check_samples(series, samples)
        await self._yield_once()
        self.disk.append_samples(series, samples)

    async def read_samples(
        self, series: str, subject: str, *, since: datetime, limit: int = 10_000
    ) -> Sequence[Sample]:
        validation.check_series_query(series, subject, limit)
        begin = to_micros(since)
        await self._yield_once()
        rows = self.disk.read_samples(series)
        return [row for row in rows if row.subject == subject and to_micros(row.at) >= begin][:limit]

    async def downsample(self, series: str, *, before: datetime, keep_every_seconds: int) -> int:
        validation.check_downsample(series, keep_every_seconds)
        end = to_micros(before)
        await self._yield_once()
        return self.disk.downsample(series, end, keep_every_seconds)

    async def _yield_once(self) -> None:
        """Let other tasks run. If the caller is cancelled here, nothing has happened yet."""
        await asyncio.sleep(0)
        self._require_open()

    def _require_open(self) -> None:
        if self._closed is not None:
            raise StoreUnavailableError(self._closed)

    def _apply(self, commit: Commit) -> None:
        try:
            self.disk.commit(commit)
        except StoreError:
            return  # it conflicts with another commit, and its caller is gone

    def _stored(self, kind: Kind, document_id: str) -> StoredDocument | None:
        document = self.disk.get(kind, document_id)
        return StoredDocument(document_id, document.revision, document.body) if document else None


def _sort_position(sort: Sort, document_id: str, document: MemoryDocument) -> tuple[OrderKey, str]:
    return order_key(document.fields.get(sort.by) if sort.by else None), document_id


def _sum(documents: Sequence[MemoryDocument], name: str) -> float:
    return float(sum(value for document in documents if is_number(value := document.fields.get(name))))  # type: ignore[misc]
