"""The store in MongoDB: for production, and for several control planes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pymongo
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from lcm.control_plane.store import validation
from lcm.control_plane.store.adapter_rules import Commit, Downsampler
from lcm.control_plane.store.cursors import (
    PagePosition,
    journal_cursor,
    page_cursor,
    parse_journal_cursor,
    parse_page_cursor,
)
from lcm.control_plane.store.mongo import queries
from lcm.control_plane.store.mongo.abandoned import AbandonedTransactions, application_name
from lcm.control_plane.store.mongo.committer import Committer
from lcm.control_plane.store.mongo.database import (
    CHECK_ID,
    JOURNAL,
    META,
    SAMPLES,
    collection,
    migrate,
    prepare_kind,
    require_complete,
    require_replica_set,
    translated_errors,
)
from lcm.control_plane.store.port import (
    DocumentPage,
    JournalEntry,
    Sample,
    Sort,
    StoredDocument,
    StoreError,
    StoreUnavailableError,
    Where,
)
from lcm.control_plane.store.values import from_micros, order_key, to_micros
from lcm.core.singleflight import FreshSingleflight

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime

    from pymongo.asynchronous.client_session import AsyncClientSession

    from lcm.control_plane.store.mongo.database import Database
    from lcm.control_plane.store.port import Delete, FieldValue, Guard, Kind, NewJournalEntry, Put

    CountGroup: TypeAlias = tuple[tuple[FieldValue, ...], int, tuple[float, ...]]

_BROAD = 8  # times as many matches as a page shows: then they are read in order instead of being sorted
_REMEMBERED_SEARCHES = 200
_DECODE_BATCH = 500  # larger batches would block the event loop


class MongoStore:
    """See `Store`. No call takes much longer than `timeout` seconds. A shorter loss of the primary is not noticed."""

    def __init__(
        self, uri: str, database: str = "lcm", *, timeout: float = 20.0, options: Mapping[str, Any] | None = None
    ) -> None:
        """`options` of the driver are added to those in the URI."""
        self._uri = uri
        self._options = dict(options or {})
        self._name = database
        self._timeout = timeout
        self._catalogue = validation.KindRegistry()
        self._database: Database | None = None
        self._committer: Committer | None = None
        self._latest: tuple[Any, Any] | None = None
        self._counts: FreshSingleflight[Sequence[CountGroup]] = FreshSingleflight()
        self._matches: dict[tuple[str, str], int] = {}  # of the latest searches: how many documents matched

    async def open(self, kinds: Sequence[Kind]) -> None:
        self._catalogue = validation.KindRegistry(kinds)
        name = application_name(self._name)
        try:
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self._uri, appname=name, **self._options)
        except (PyMongoError, ValueError) as error:
            # The driver's message may quote the URI, which may contain a password.
            raise StoreError(f"the MongoDB URI is invalid ({type(error).__name__})") from None
        majority = {"read_concern": ReadConcern("majority"), "write_concern": WriteConcern("majority")}
        database: Database = client.get_database(self._name, **majority)  # type: ignore[arg-type]
        abandoned = AbandonedTransactions(database)
        try:
            with translated_errors(), pymongo.timeout(self._timeout):
                await require_replica_set(database)
                await require_complete(database)
                await abandoned.end()  # if this process was killed before, its transaction is idle from now on
                async with abandoned.watched():
                    await migrate(database)
                    for kind in kinds:
                        await prepare_kind(database, kind)
        except BaseException:
            await client.close()
            raise
        self._database = database
        self._committer = Committer(database, self._timeout, self._remember_times, abandoned)

    async def close(self) -> None:
        if self._committer is not None:
            await self._committer.close()
        if self._database is not None:
            await self._database.client.close()
            self._database = None

    async def check(self) -> None:
        async with self._reading() as (database, session):
            await database[META].update_one({"_id": CHECK_ID}, {"$inc": {"checks": 1}}, upsert=True, session=session)

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        self._catalogue.check(kind)
        validation.check_id(document_id)
        async with self._reading() as (database, session):
            found = await database[collection(kind)].find_one(
                {"_id": document_id}, _DOCUMENT_PROJECTION, session=session
            )
        return _to_stored(found) if found else None

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        self._catalogue.check(kind)
        validation.check_ids(document_ids)
        ids, documents = list(dict.fromkeys(document_ids)), []
        for begin in range(0, len(ids), _DECODE_BATCH):
            batch = ids[begin : begin + _DECODE_BATCH]
            rows = await self._rows(
                collection(kind), [{"_id": {"$in": batch}}], [("_id", 1)], len(batch), projection=_DOCUMENT_PROJECTION
            )
            documents += [_to_stored(row) for row in rows]
        return {document.id: document for document in documents}

    async def get_unique(self, kind: Kind, field_name: str, value: str) -> StoredDocument | None:
        self._catalogue.check(kind)
        validation.check_unique(kind, field_name, value)
        async with self._reading() as (database, session):
            held = {f"unique.{field_name}": value}
            found = await database[collection(kind)].find_one(held, _DOCUMENT_PROJECTION, session=session)
        return _to_stored(found) if found else None

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
        filters = queries.conditions(where)
        if after is not None:
            filters.append(queries.after_position(sort, parse_page_cursor(kind, sort, after)))
        is_broad = after is None and (skip + limit) * _BROAD <= self._matches.get((kind.name, repr(where)), 0)
        field = f"f_{sort.by}" if sort.by else "_id"
        rows = await self._rows(
            collection(kind),
            filters,
            queries.sort_order(sort),
            limit + 1,
            projection={**_DOCUMENT_PROJECTION, field: 1},
            hint=queries.page_hint(kind, where, sort, is_broad=is_broad),
            skip=skip,
        )
        items = [_to_stored(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return DocumentPage(items, None)
        value = rows[limit - 1].get(field) if sort.by else None
        return DocumentPage(items, page_cursor(kind, sort, PagePosition(value, items[-1].id)))

    async def count_by(
        self, kind: Kind, fields: Sequence[str], where: Where | None = None, *, sums: Sequence[str] = ()
    ) -> Sequence[CountGroup]:
        where = where or Where()
        self._catalogue.check_query(kind, where)
        validation.check_fields(kind, (*fields, *sums))
        # A count reads every key of its index: concurrent requests for the same count share one query.
        key = (kind.name, tuple(fields), repr(where), tuple(sums))
        groups = await self._counts.run(key, lambda: self._count(kind, fields, where, sums))
        if where.contains or where.contains_all:
            self._remember_matches((kind.name, repr(where)), sum(count for _, count, _ in groups))
        return groups

    def _remember_matches(self, search: tuple[str, str], matches: int) -> None:
        """A list of the same search is read next. The number decides only from which index, never what is found."""
        self._matches.pop(search, None)
        self._matches[search] = matches
        if len(self._matches) > _REMEMBERED_SEARCHES:
            del self._matches[next(iter(self._matches))]

    async def _count(
        self, kind: Kind, fields: Sequence[str], where: Where, sums: Sequence[str]
    ) -> Sequence[CountGroup]:
        pipeline = queries.count_pipeline(fields, where, sums)
        hint = queries.count_hint(kind, fields, where, sums)
        options: dict[str, Any] = {"hint": hint} if hint else {}
        async with self._reading() as (database, session):
            cursor = await database[collection(kind)].aggregate(pipeline, session=session, **options)
            rows = await cursor.to_list()
        groups = [
            (
                tuple(row["_id"].get(name) for name in fields),
                int(row["n"]),
                tuple(float(row[f"s{number}"]) for number in range(len(sums))),
            )
            for row in rows
        ]
        return sorted(groups, key=lambda group: [order_key(value) for value in group[0]])

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        self._catalogue.check_commit(writes, entries, guards)
        if self._committer is None:
            raise StoreUnavailableError("the store is not open")
        return await self._committer.commit(Commit(tuple(writes), tuple(entries), tuple(guards)))

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
        filters: list[queries.Filter] = []
        if after is not None:
            filters.append({"_id": {"$gt": parse_journal_cursor(after)}})
        if before is not None:
            filters.append({"_id": {"$lt": parse_journal_cursor(before)}})
        filters += [
            {name: {"$in": list(values)}} for name, values in (("topic", topics), ("subject", subjects)) if values
        ]
        rows = await self._rows(JOURNAL, filters, [("_id", -1 if newest_first else 1)], limit)
        return [
            JournalEntry(
                journal_cursor(row["_id"]),
                row["topic"],
                row["subject"],
                row["body"],
                from_micros(row["at"]),
                row.get("team", ""),
                row.get("owner", ""),
            )
            for row in rows
        ]

    async def trim_journal(self, topic: str, *, through: str, limit: int = 1000) -> int:
        validation.check_trim(topic, limit)
        old: list[queries.Filter] = [{"topic": topic, "_id": {"$lte": parse_journal_cursor(through)}}]
        rows = await self._rows(JOURNAL, old, [("_id", 1)], limit, projection={"_id": 1})
        async with self._reading() as (database, session):
            numbers = [row["_id"] for row in rows]
            return (await database[JOURNAL].delete_many({"_id": {"$in": numbers}}, session=session)).deleted_count

    async def append_samples(self, series: str, samples: Sequence[Sample]) -> None:
        validation.check_samples(series, samples)
        rows = [
            {"series": series, "subject": sample.subject, "at": to_micros(sample.at), "body": bytes(sample.body)}
            for sample in samples
        ]
        if rows:
            async with self._reading() as (database, session):
                await database[SAMPLES].insert_many(rows, session=session)

    async def read_samples(
        self, series: str, subject: str, *, since: datetime, limit: int = 10_000
    ) -> Sequence[Sample]:
        validation.check_series_query(series, subject, limit)
        filters = [{"series": series, "subject": subject, "at": {"$gte": to_micros(since)}}]
        rows = await self._rows(SAMPLES, filters, [("at", 1), ("_id", 1)], limit)
        return [Sample(subject, from_micros(row["at"]), row["body"]) for row in rows]

    async def downsample(self, series: str, *, before: datetime, keep_every_seconds: int) -> int:
        validation.check_downsample(series, keep_every_seconds)
        downsampler, dropped = Downsampler(keep_every_seconds), 0
        old = {"series": series, "at": {"$lt": to_micros(before)}}
        filters: list[queries.Filter] = [old]
        order = [("at", 1), ("_id", 1)]
        while rows := await self._rows(SAMPLES, filters, order, _DECODE_BATCH, projection={"subject": 1, "at": 1}):
            at, number = rows[-1]["at"], rows[-1]["_id"]
            filters = [old, {"at": {"$gte": at}}, {"$or": [{"at": {"$gt": at}}, {"_id": {"$gt": number}}]}]
            row_ids = downsampler.rows_to_drop((row["_id"], row["subject"], row["at"]) for row in rows)
            async with self._reading() as (database, session):
                deleted = await database[SAMPLES].delete_many({"_id": {"$in": row_ids}}, session=session)
            dropped += deleted.deleted_count
        return dropped

    async def _rows(
        self,
        name: str,
        filters: Sequence[queries.Filter],
        order: Sequence[tuple[str, int]],
        limit: int,
        *,
        projection: dict[str, int] | None = None,
        hint: str | None = None,
        skip: int = 0,
    ) -> list[dict[str, Any]]:
        async with self._reading() as (database, session):
            found = database[name].find(queries.all_of(filters), projection, session=session, hint=hint)
            return await found.sort(order).skip(skip).limit(limit).batch_size(min(limit, _DECODE_BATCH)).to_list()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[Database, AsyncClientSession]]:
        """A session that sees what this process wrote, even if another server has become primary since."""
        if self._database is None:
            raise StoreUnavailableError("the store is not open")
        with translated_errors(), pymongo.timeout(self._timeout):
            async with self._database.client.start_session(causal_consistency=True) as session:
                if self._latest is not None:
                    cluster_time, operation_time = self._latest
                    session.advance_cluster_time(cluster_time)
                    session.advance_operation_time(operation_time)
                yield self._database, session

    def _remember_times(self, session: AsyncClientSession) -> None:
        if session.cluster_time is not None and session.operation_time is not None:
            self._latest = session.cluster_time, session.operation_time


_DOCUMENT_PROJECTION = {"revision": 1, "body": 1}


def _to_stored(row: dict[str, Any]) -> StoredDocument:
    return StoredDocument(row["_id"], int(row["revision"]), row["body"])
