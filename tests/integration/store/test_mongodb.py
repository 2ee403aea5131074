"""MongoDB: several control planes, and the errors when it is unusable."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient

from lcm.control_plane.store.mongo import database as mongo_schema
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import RevisionConflictError, StoreError, StoreUnavailableError, UniqueViolationError
from tests.support.real.store_writer import until_available
from tests.support.records.store_documents import KINDS, NOTES, body, entry, existing, ids, note, worker
from tests.support.servers.etcd import free_ports
from tests.support.servers.mongod import MongoServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pymongo.collection import Collection

    from lcm.control_plane.store.mongo.database import Database
    from lcm.control_plane.store.port import JournalEntry, Store

PLANES = 3


@pytest.fixture
async def planes(mongodb_uri: str, database: str) -> AsyncIterator[list[MongoStore]]:
    """Several control planes on one database, which they opened at the same time."""
    stores = [MongoStore(mongodb_uri, database) for _ in range(PLANES)]
    await asyncio.gather(*(store.open(KINDS) for store in stores))
    yield stores
    await asyncio.gather(*(store.close() for store in stores))


async def follow(store: Store, finished: asyncio.Event) -> list[JournalEntry]:
    lines: list[JournalEntry] = []
    while True:
        last_round = finished.is_set()
        batch = await store.read_journal(after=lines[-1].cursor if lines else None, limit=50)
        lines += batch
        if last_round and not batch:
            return lines


async def test_the_journal_of_several_control_planes_has_one_order(planes: list[MongoStore]) -> None:
    await planes[0].commit([note("n", body=0)])
    finished = asyncio.Event()
    followers = [asyncio.create_task(follow(store, finished)) for store in planes]
    added = 0

    async def add(store: MongoStore, times: int) -> None:
        nonlocal added
        while times:
            seen = await existing(store, NOTES, "n")
            number = int(seen.body) + 1
            try:
                await store.commit([note("n", seen.revision, body=number)], entries=[entry("n", number)])
                times, added = times - 1, added + 1
            except RevisionConflictError:
                continue

    await asyncio.gather(*(add(store, 5) for store in planes for _ in range(4)))
    finished.set()
    for lines in await asyncio.gather(*followers):
        assert [json.loads(line.body) for line in lines] == list(range(1, added + 1))
    assert await body(planes[1], NOTES, "n") == added == PLANES * 20


async def test_a_unique_value_has_one_owner_among_control_planes(planes: list[MongoStore]) -> None:
    inserts = [
        store.commit([worker(f"w{number}-{client}", unique={"instance": "i-1"})])
        for number, store in enumerate(planes)
        for client in range(8)
    ]
    outcomes = await asyncio.gather(*inserts, return_exceptions=True)
    assert sum(isinstance(outcome, UniqueViolationError) for outcome in outcomes) == len(inserts) - 1
    assert len(await ids(planes[0])) == 1


async def test_a_standalone_server_is_rejected(tmp_path: Path, database: str) -> None:
    server = MongoServer(tmp_path, replica_set=False).start()
    try:
        with pytest.raises(StoreError, match="--replSet"):
            await MongoStore(server.uri, database).open(KINDS)
    finally:
        server.kill()


async def test_an_unreachable_server_is_reported(database: str) -> None:
    store = MongoStore(f"mongodb://127.0.0.1:{free_ports(1)[0]}/", database, timeout=0.5)
    with pytest.raises(StoreUnavailableError, match="primary"):
        await store.open(KINDS)


@pytest.mark.parametrize("uri", ["mysql://user:canary@host/", "mongodb://user:ca@nary@host/", "mongodb://h:canary/"])
async def test_an_invalid_uri_is_not_repeated_in_the_error(uri: str, database: str) -> None:
    with pytest.raises(StoreError, match="URI") as raised:
        await MongoStore(uri, database).open(KINDS)
    assert "nary" not in str(raised.value)
    assert raised.value.__suppress_context__


async def test_a_lost_server_is_reported_and_its_return_is_noticed(mongod: MongoServer, database: str) -> None:
    store = MongoStore(mongod.uri, database, timeout=3.0)
    await until_available(lambda: store.open(KINDS))
    await until_available(lambda: store.commit([note("a")]))
    mongod.kill()
    calls = [store.check(), store.get(NOTES, "a"), store.commit([note("b")]), store.read_journal()]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailableError)
    mongod.launch()
    await asyncio.to_thread(mongod.wait_ready)
    await until_available(store.check)
    assert await until_available(lambda: ids(store, kind=NOTES)) == ["a"]
    await until_available(lambda: store.commit([note("c")]))
    await store.close()


async def test_a_newer_schema_is_rejected(mongodb_uri: str, database: str) -> None:
    store = MongoStore(mongodb_uri, database)
    await store.open(KINDS)
    await store.close()
    client: MongoClient[dict[str, Any]]
    with MongoClient(mongodb_uri) as client:
        client[database].meta.update_one({"_id": "schema"}, {"$set": {"version": 99}})
    with pytest.raises(StoreError, match=r"newer LCM \(schema 99"):
        await MongoStore(mongodb_uri, database).open(KINDS)


async def test_a_control_plane_of_an_older_schema_writes_no_more(mongodb_uri: str, database: str) -> None:
    """It was open before the migration, so it did not see the new schema when it started."""
    store = MongoStore(mongodb_uri, database)
    await store.open(KINDS)
    await store.commit([note("a")])
    client: MongoClient[dict[str, Any]]
    with MongoClient(mongodb_uri) as client:
        meta: Collection[dict[str, Any]] = client[database]["meta"]
        assert meta.find_one({"_id": "head"}) is None  # where schema 1 looks
        meta.update_one({"_id": "schema"}, {"$set": {"version": 99}})
        meta.update_one({"_id": mongo_schema.HEAD}, {"$set": {"schema": 99}})
    with pytest.raises(StoreError, match=r"newer LCM \(schema 99"):
        await store.commit([note("b")])
    assert await ids(store, kind=NOTES) == ["a"]
    await store.close()


async def test_an_older_schema_is_migrated_once(
    mongodb_uri: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MongoStore(mongodb_uri, database)
    await store.open(KINDS)
    await store.commit([note("a")])
    await store.close()
    taken: list[int] = []

    async def second(found: Database) -> None:
        await found["added"].update_one({"_id": 1}, {"$set": {"a": 1}}, upsert=True)
        taken.append(2)
        if len(taken) == 1:
            raise RuntimeError("cut off")

    monkeypatch.setattr(mongo_schema, "MIGRATIONS", (*mongo_schema.MIGRATIONS, second))
    with pytest.raises(RuntimeError, match="cut off"):
        await MongoStore(mongodb_uri, database).open(KINDS)
    for _ in range(2):
        store = MongoStore(mongodb_uri, database)
        await store.open(KINDS)
        assert await ids(store, kind=NOTES) == ["a"]
        await store.close()
    assert taken == [2, 2]
