"""Lists of current records do not read ended ones: counted in steps and keys of the database, not in time."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient

from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.records.search_text import SEARCH_FIELD
from lcm.control_plane.store.cursors import PagePosition
from lcm.control_plane.store.mongo import queries as mongo_queries
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Put, Sort, Where
from lcm.control_plane.store.sqlite import queries as sqlite_queries
from lcm.control_plane.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.collection import Collection

    from lcm.control_plane.store.port import FieldValue, Kind, Store

LIVE = 20
ENDED = 3_000
NOT_ENDED = Where(none_of={"status": ["TERMINATED", "FAILED", "EXPIRED"]})
NOT_TERMINATED = Where(none_of={"status": ["TERMINATED"]})
CURRENT = Where(at_least={"shown_until": "2026-01-17T10:30:00+00:00"})
PENDING_ONLY = Where(
    none_of={"status": ["EXPIRED", "FAILED", "INSTANTIATING", "RUNNING", "SCHEDULED", "STOPPING", "TERMINATED"]}
)
FIRST, LATER = None, PagePosition(None, "r00100")
LISTS = [
    pytest.param(LABLETS, NOT_ENDED, Sort(), FIRST, id="lablets for the lablet controller"),
    pytest.param(LABLETS, PENDING_ONLY, Sort(), FIRST, id="lablets for the scheduler"),
    pytest.param(LABLETS, NOT_ENDED, Sort(), LATER, id="a later page"),
    pytest.param(LABLETS, NOT_ENDED, Sort("name"), FIRST, id="lablets by name"),
    pytest.param(LABLETS, CURRENT, Sort("attention"), FIRST, id="the lablets page"),
    pytest.param(WORKERS, NOT_TERMINATED, Sort(), FIRST, id="workers for controllers"),
    pytest.param(WORKERS, NOT_TERMINATED, Sort("attention"), FIRST, id="the workers page"),
]


async def fill(store: Store, kind: Kind) -> None:
    """A few live records among many that have ended, and one whose status word only a newer version knows."""
    await store.open([kind])
    puts = []
    for number in range(LIVE + ENDED):
        live = number % (ENDED // LIVE) == 0 and number < ENDED
        status = ("RUNNING", "HIBERNATING")[number == 0] if live else "TERMINATED"
        fields = {
            "name": f"name-{number}",
            "status": status,
            "attention": f"{6 if live else 9} name-{number}",
            "shown_until": "9999" if live else "0",
        }
        declared = {name: fields.get(name) for name in kind.fields}
        puts.append(Put(kind, f"r{number:05}", b"{}", None, declared))
    for begin in range(0, len(puts), 500):
        await store.commit(puts[begin : begin + 500])


@pytest.mark.parametrize(("kind", "where", "sort", "position"), LISTS)
async def test_sqlite_reads_only_live_records(
    tmp_path: Path, kind: Kind, where: Where, sort: Sort, position: PagePosition | None
) -> None:
    store = SqliteStore(tmp_path / "lcm.db")
    await fill(store, kind)
    await store.close()
    query = sqlite_queries.page_query(kind, where, sort, position, 501)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = sqlite3.connect(tmp_path / "lcm.db")
    try:
        connection.set_progress_handler(count, 1)
        rows = connection.execute(query.sql, query.parameters).fetchall()
    finally:
        connection.close()
    assert len(rows) <= LIVE
    assert rows or where is PENDING_ONLY
    # About fifty steps a row that is returned, and three at least for each that is looked at.
    assert steps < ENDED, f"{steps} steps for {len(rows)} rows"


@pytest.mark.parametrize(("kind", "where", "sort", "position"), LISTS)
async def test_mongodb_reads_only_live_records(
    mongodb_uri: str, database: str, kind: Kind, where: Where, sort: Sort, position: PagePosition | None
) -> None:
    store = MongoStore(mongodb_uri, database)
    await fill(store, kind)
    await store.close()
    filters = mongo_queries.conditions(where)
    if position is not None:
        filters.append(mongo_queries.after_position(sort, position))
    client: MongoClient[dict[str, Any]]
    with MongoClient(mongodb_uri) as client:
        records: Collection[dict[str, Any]] = client[database][f"d_{kind.name}"]
        found = records.find(mongo_queries.all_of(filters), hint=mongo_queries.page_hint(kind, where, sort))
        read = found.sort(mongo_queries.sort_order(sort)).limit(501).explain()["executionStats"]
        client.drop_database(database)
    assert read["nReturned"] <= LIVE
    assert read["totalKeysExamined"] <= 2 * LIVE + 10
    assert read["totalDocsExamined"] <= LIVE


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        pytest.param(WORKERS, NOT_TERMINATED, id="the workers page"),
        pytest.param(LABLETS, CURRENT, id="the lablets page"),
    ],
)
async def test_mongodb_searches_texts_without_reading_other_records(
    mongodb_uri: str, database: str, kind: Kind, where: Where
) -> None:
    """A page finds and counts: the count reads no record at all."""
    store = MongoStore(mongodb_uri, database)
    await store.open([kind])
    names = [f"w-{number:04}" for number in range(400)]
    same: dict[str, FieldValue] = {"status": "RUNNING", "urgency": 6, "shown_until": "9999"}
    shown = {name: same.get(name) for name in kind.fields}
    puts = [Put(kind, name, b"{}", None, {**shown, SEARCH_FIELD: f"{name} i-0abc"}) for name in names]
    await store.commit(puts)
    where = replace(where, contains_all={SEARCH_FIELD: ["W-0123", "i-0"]})
    assert [stored.id for stored in (await store.find(kind, where, sort=Sort("name"))).items] == ["w-0123"]
    assert await store.count_by(kind, ["urgency"], where) == [((6,), 1, ())]
    await store.close()
    filters = mongo_queries.all_of(mongo_queries.conditions(where))
    client: MongoClient[dict[str, Any]]
    with MongoClient(mongodb_uri) as client:
        records: Collection[dict[str, Any]] = client[database][f"d_{kind.name}"]
        found = records.find(filters, hint=mongo_queries.page_hint(kind, where, Sort("name")))
        listed = found.sort([("f_name", 1)]).limit(50).explain()["executionStats"]
        counted = client[database].command(
            "explain",
            {
                "aggregate": f"d_{kind.name}",
                "pipeline": mongo_queries.count_pipeline(["urgency"], where, ()),
                "hint": mongo_queries.count_hint(kind, ["urgency"], where, ()),
                "cursor": {},
            },
            verbosity="executionStats",
        )
        client.drop_database(database)
    assert (listed["nReturned"], listed["totalDocsExamined"]) == (1, 1)
    stats = counted.get("executionStats") or counted["stages"][0]["$cursor"]["executionStats"]
    assert stats["totalDocsExamined"] == 0


async def test_mongodb_reads_only_the_first_of_many_matches_of_a_search(mongodb_uri: str, database: str) -> None:
    """Of a search that matches many records, which the page has counted, those after the page are not read."""
    store = MongoStore(mongodb_uri, database)
    await store.open([WORKERS])
    names = [f"w-{number:04}" for number in range(600)]
    common: dict[str, FieldValue] = {"status": "RUNNING", "urgency": 6}
    shown = {name: common.get(name) for name in WORKERS.fields}
    fields = [{**shown, "attention": name, SEARCH_FIELD: f"{name} i-0abc"} for name in names]
    await store.commit([Put(WORKERS, each, b"{}", None, found) for each, found in zip(names, fields, strict=True)])
    where = replace(NOT_TERMINATED, contains_all={SEARCH_FIELD: ["i-0"]})
    client: MongoClient[dict[str, Any]]
    with MongoClient(mongodb_uri) as client:
        client[database].command({"profile": 2})
        counted = await store.count_by(WORKERS, ["urgency"], where)
        page = await store.find(WORKERS, where, sort=Sort("attention"), limit=50)
        narrow = replace(where, contains_all={SEARCH_FIELD: ["i-0", "w-0599"]})
        await store.count_by(WORKERS, ["urgency"], narrow)
        found = await store.find(WORKERS, narrow, sort=Sort("attention"), limit=50)
        client[database].command({"profile": 0})
        profile: Collection[dict[str, Any]] = client[database]["system.profile"]
        finds = profile.find({"op": "query", "command.find": f"d_{WORKERS.name}"})
        read = [each["docsExamined"] for each in finds]
        client.drop_database(database)
    await store.close()
    assert counted == [((6,), 600, ())]
    assert [stored.id for stored in page.items] == names[:50]
    assert [stored.id for stored in found.items] == ["w-0599"]
    assert len(read) == 2
    assert max(read) <= 60


@pytest.mark.parametrize("adapter", ["sqlite", "mongo"])
async def test_a_record_with_a_status_that_only_a_newer_version_knows_is_listed(
    adapter: str, tmp_path: Path, mongodb_uri: str, database: str
) -> None:
    store: Store = SqliteStore(tmp_path / "lcm.db") if adapter == "sqlite" else MongoStore(mongodb_uri, database)
    await fill(store, LABLETS)
    listed = await store.find(LABLETS, NOT_ENDED, limit=500)
    await store.close()
    assert listed.items[0].id == "r00000"
    assert len(listed.items) == LIVE
