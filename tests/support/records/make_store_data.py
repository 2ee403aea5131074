"""Writes the store files of tests/data with the schema of this version.

Run `python -m tests.support.records.make_store_data` once after a new schema version. Files of earlier versions stay
as they are.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bson import json_util
from pymongo import MongoClient

from lcm.control_plane.store.mongo import database as mongo_schema
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Delete
from lcm.control_plane.store.sqlite import database as sqlite_schema
from lcm.control_plane.store.sqlite.store import SqliteStore
from tests.support.records.store_documents import KINDS, NOTES, WORKERS, entry, note, revision, sample, worker
from tests.support.servers.mongod import MongoServer, database_name

if TYPE_CHECKING:
    from pymongo.database import Database

    from lcm.control_plane.store.port import Store

DATA = Path(__file__).parents[2] / "data"


async def fill(store: Store) -> None:
    """What `tests/integration/store/test_earlier_versions.py` expects; never change it, only add to it."""
    await store.open(KINDS)
    for number in range(8):
        change = worker(
            f"w-{number}",
            name=f"Worker {number}",
            status=("running", "stopped")[number % 2],
            region=None if number == 7 else "eu-west-1",
            cost=number / 4,
            held=number == 3,
            unique={"name": f"worker {number}", "instance": f"i-{number}"},
            body={"number": number, "name": "ÄÖ"},
        )
        await store.commit([change], entries=[entry(f"w-{number}", {"made": number})])
    await store.commit([note("gone")])
    await store.commit([Delete(NOTES, "gone", await revision(store, NOTES, "gone")), note("kept", body="kept")])
    freed = worker("w-6", await revision(store, WORKERS, "w-6"), name="Worker 6", status="ended")
    await store.commit([freed], entries=[entry("w-6", topic="audit")])
    await store.append_samples("metrics", [sample("w-1", second, {"cpu": second}) for second in (0, 15, 30.000001)])
    await store.close()


async def make_sqlite() -> None:
    """A store file after a clean shutdown, without a write-ahead log."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "lcm.db"
        await fill(SqliteStore(made))
        with sqlite3.connect(made) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        connection.close()
        target = DATA / f"store-v{len(sqlite_schema.MIGRATIONS)}.db"
        target.write_bytes(made.read_bytes())


async def make_mongo() -> None:
    """All collections as MongoDB's extended JSON."""
    client: MongoClient[dict[str, Any]]
    with tempfile.TemporaryDirectory() as folder:
        server, name = MongoServer(Path(folder)).start(), database_name()
        await fill(MongoStore(server.uri, name))
        with MongoClient(server.uri) as client:
            found: Database[dict[str, Any]] = client[name]
            dump = {each: list(found[each].find().sort("_id")) for each in sorted(found.list_collection_names())}
        server.kill()
    target = DATA / f"store-v{len(mongo_schema.MIGRATIONS)}.mongo.json"
    target.write_text(json_util.dumps(dump, json_options=json_util.CANONICAL_JSON_OPTIONS, indent=1) + "\n")


def load_mongo(text: str, uri: str, name: str) -> None:
    """Load a dump into an empty database. It has no indexes: the store creates them."""
    client: MongoClient[dict[str, Any]]
    with MongoClient(uri) as client:
        for each, documents in json_util.loads(text).items():
            if documents:
                client[name][each].insert_many(documents)


async def main() -> None:
    await make_sqlite()
    await make_mongo()


if __name__ == "__main__":
    asyncio.run(main())
