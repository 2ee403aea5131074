"""The store in one SQLite file: the default, for a single control plane."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, TypeVar

from lcm.control_plane.store import validation
from lcm.control_plane.store.adapter_rules import Commit, Downsampler
from lcm.control_plane.store.cursors import (
    PagePosition,
    journal_cursor,
    page_cursor,
    parse_journal_cursor,
    parse_page_cursor,
)
from lcm.control_plane.store.port import (
    DocumentPage,
    JournalEntry,
    Sample,
    Sort,
    StoredDocument,
    StoreUnavailableError,
    Where,
)
from lcm.control_plane.store.sqlite.commit import apply_commit
from lcm.control_plane.store.sqlite.database import (
    ProcessLock,
    body_table,
    document_table,
    open_writer,
    probe_write,
    translate_error,
)
from lcm.control_plane.store.sqlite.queries import count_query, from_column, journal_query, page_query
from lcm.control_plane.store.sqlite.threads import ReaderPool, WriterThread
from lcm.control_plane.store.values import from_micros, order_key, to_micros

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Any

    from lcm.control_plane.store.port import Delete, FieldValue, Guard, Kind, NewJournalEntry, Put
    from lcm.control_plane.store.sqlite.queries import SqlQuery

T = TypeVar("T")

_DOWNSAMPLE_BATCH = 1_000
_MAX_IDS_PER_QUERY = 500  # well below the number of parameters that any SQLite accepts


class SqliteStore:
    """See `Store`. No call takes longer than `timeout` seconds. A commit that timed out may still happen."""

    def __init__(self, path: Path, *, timeout: float = 30.0) -> None:
        self._path = path
        self._timeout = timeout
        self._lock = ProcessLock(path)
        self._catalogue = validation.KindRegistry()
        self._writer: WriterThread | None = None
        self._readers: ReaderPool | None = None

    async def open(self, kinds: Sequence[Kind]) -> None:
        self._catalogue = validation.KindRegistry(kinds)
        connection = await asyncio.to_thread(self._open_file, kinds)
        self._writer, self._readers = WriterThread(self._path, connection), ReaderPool(self._path)

    async def close(self) -> None:
        # Readers first: the last connection to close checkpoints the log, and only the writer's can.
        if self._readers is not None:
            await self._readers.close()
        if self._writer is not None:
            await self._writer.close()
        self._lock.release()

    async def check(self) -> None:
        await self._write(lambda connection: probe_write(connection, self._path))
        await self._rows("SELECT checks FROM head")

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        self._catalogue.check(kind)
        validation.check_id(document_id)
        rows = await self._rows(
            f"SELECT d.id, d.revision, b.body FROM {_with_bodies(kind)} WHERE d.id = ?",  # noqa: S608 - a declared kind
            (document_id,),
        )
        return StoredDocument(*rows[0]) if rows else None

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        self._catalogue.check(kind)
        validation.check_ids(document_ids)
        ids, rows = list(dict.fromkeys(document_ids)), []
        for begin in range(0, len(ids), _MAX_IDS_PER_QUERY):
            batch = ids[begin : begin + _MAX_IDS_PER_QUERY]
            rows += await self._rows(
                f"SELECT d.id, d.revision, b.body FROM {_with_bodies(kind)}"  # noqa: S608 - a declared kind
                f" WHERE d.id IN ({', '.join('?' * len(batch))})",
                batch,
            )
        return {row[0]: StoredDocument(*row) for row in rows}

    async def get_unique(self, kind: Kind, field_name: str, value: str) -> StoredDocument | None:
        self._catalogue.check(kind)
        validation.check_unique(kind, field_name, value)
        rows = await self._rows(
            f"SELECT d.id, d.revision, b.body FROM {_with_bodies(kind)} JOIN uniques AS u ON u.owner = d.id"  # noqa: S608
            " WHERE u.kind = ? AND u.field = ? AND u.value = ?",
            (kind.name, field_name, value),
        )
        return StoredDocument(*rows[0]) if rows else None

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
        rows = await self._query(page_query(kind, where, sort, position, limit + 1, skip))
        items = [StoredDocument(document_id, revision, body) for document_id, revision, body, _ in rows[:limit]]
        if len(rows) <= limit:
            return DocumentPage(items, None)
        value = from_column(rows[limit - 1][3]) if sort.by else None
        return DocumentPage(items, page_cursor(kind, sort, PagePosition(value, items[-1].id)))

    async def count_by(
        self, kind: Kind, fields: Sequence[str], where: Where | None = None, *, sums: Sequence[str] = ()
    ) -> Sequence[tuple[tuple[FieldValue, ...], int, tuple[float, ...]]]:
        where, width = where or Where(), len(fields)
        self._catalogue.check_query(kind, where)
        validation.check_fields(kind, (*fields, *sums))
        rows = await self._query(count_query(kind, fields, where, sums))
        groups = [(tuple(map(from_column, row[:width])), row[width], tuple(row[width + 1 :])) for row in rows]
        return sorted(groups, key=lambda group: [order_key(value) for value in group[0]])

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        self._catalogue.check_commit(writes, entries, guards)
        commit = Commit(tuple(writes), tuple(entries), tuple(guards))
        return await self._write(lambda connection: apply_commit(connection, commit))

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
        begin = parse_journal_cursor(after) if after is not None else None
        end = parse_journal_cursor(before) if before is not None else None
        rows = await self._query(journal_query(begin, end, topics, subjects, newest_first, limit))
        return [
            JournalEntry(journal_cursor(number), topic, subject, body, from_micros(at), team, owner)
            for number, topic, subject, at, body, team, owner in rows
        ]

    async def trim_journal(self, topic: str, *, through: str, limit: int = 1000) -> int:
        validation.check_trim(topic, limit)
        sql = (
            "DELETE FROM journal WHERE cursor IN"
            " (SELECT cursor FROM journal WHERE topic = ? AND cursor <= ? ORDER BY cursor LIMIT ?)"
        )
        parameters = (topic, parse_journal_cursor(through), limit)
        return await self._write(lambda connection: connection.execute(sql, parameters).rowcount)

    async def append_samples(self, series: str, samples: Sequence[Sample]) -> None:
        validation.check_samples(series, samples)
        rows = [(series, sample.subject, to_micros(sample.at), sample.body) for sample in samples]
        sql = "INSERT INTO samples (series, subject, at, body) VALUES (?, ?, ?, ?)"
        await self._write(lambda connection: connection.executemany(sql, rows).rowcount)

    async def read_samples(
        self, series: str, subject: str, *, since: datetime, limit: int = 10_000
    ) -> Sequence[Sample]:
        validation.check_series_query(series, subject, limit)
        rows = await self._rows(
            "SELECT at, body FROM samples WHERE series = ? AND subject = ? AND at >= ? ORDER BY at, n LIMIT ?",
            (series, subject, to_micros(since), limit),
        )
        return [Sample(subject, from_micros(at), body) for at, body in rows]

    async def downsample(self, series: str, *, before: datetime, keep_every_seconds: int) -> int:
        validation.check_downsample(series, keep_every_seconds)
        downsampler, end, dropped = Downsampler(keep_every_seconds), to_micros(before), 0
        at, number = -(2**63), 0
        while rows := await self._rows(
            "SELECT n, subject, at FROM samples WHERE series = ? AND at < ? AND (at, n) > (?, ?)"
            " ORDER BY at, n LIMIT ?",
            (series, end, at, number, _DOWNSAMPLE_BATCH),
        ):
            number, _, at = rows[-1]
            if dropped_rows := [(row_id,) for row_id in downsampler.rows_to_drop(rows)]:
                dropped += await self._drop(dropped_rows)
        return dropped

    async def _drop(self, numbers: Sequence[tuple[int]]) -> int:
        sql = "DELETE FROM samples WHERE n = ?"
        return await self._write(lambda connection: connection.executemany(sql, numbers).rowcount)

    async def _query(self, query: SqlQuery) -> list[Any]:
        return await self._rows(query.sql, query.parameters)

    async def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        if self._readers is None:
            raise StoreUnavailableError(f"{self._path}: the store is not open")
        return await self._with_timeout(self._readers.run(lambda reader: reader.execute(sql, parameters).fetchall()))

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._writer is None:
            raise StoreUnavailableError(f"{self._path}: the store is not open")
        return await self._with_timeout(self._writer.run(work))

    async def _with_timeout(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except TimeoutError:
            raise StoreUnavailableError(
                f"{self._path} did not respond within {self._timeout:g} s: check the disk"
            ) from None

    def _open_file(self, kinds: Sequence[Kind]) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            return open_writer(self._path, kinds)
        except sqlite3.Error as error:
            self._lock.release()
            raise translate_error(self._path, error) from error
        except BaseException:
            self._lock.release()
            raise


def _with_bodies(kind: Kind) -> str:
    return f"{document_table(kind)} AS d JOIN {body_table(kind)} AS b ON b.n = d.n"
