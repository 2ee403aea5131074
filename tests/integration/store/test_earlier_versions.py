"""This version opens the stores of earlier versions in tests/data."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Sort, UniqueViolationError, Where
from lcm.control_plane.store.sqlite.store import SqliteStore
from tests.support.records.make_store_data import DATA, load_mongo
from tests.support.records.store_documents import KINDS, NOTES, START, WORKERS, body, entry, existing, ids, worker

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.control_plane.store.port import Store

SQLITE = sorted(DATA.glob("store-v*.db"))
MONGO = sorted(DATA.glob("store-v*.mongo.json"))


def test_data_of_the_first_version_exists_for_both_stores() -> None:
    assert (SQLITE[0].name, MONGO[0].name) == ("store-v1.db", "store-v1.mongo.json")


async def assert_readable_and_writable(store: Store) -> None:
    assert await ids(store) == [f"w-{number}" for number in range(8)]
    assert await ids(store, kind=NOTES) == ["kept"]
    assert await body(store, WORKERS, "w-2") == {"number": 2, "name": "ÄÖ"}
    assert await ids(store, Where(any_of={"status": ["stopped"]}, contains={"name": "WORKER"})) == [
        "w-1",
        "w-3",
        "w-5",
        "w-7",
    ]
    assert await ids(store, Where(any_of={"held": [True]})) == ["w-3"]
    assert (await ids(store, sort=Sort("region")))[:2] == ["w-6", "w-7"]
    by_status = [(values, count) for values, count, _ in await store.count_by(WORKERS, ["status"], sums=["cost"])]
    assert by_status == [(("ended",), 1), (("running",), 3), (("stopped",), 4)]
    lines = await store.read_journal()
    assert [line.subject for line in lines] == [*(f"w-{number}" for number in range(8)), "w-6"]
    assert json.loads(lines[3].body) == {"made": 3}
    rows = await store.read_samples("metrics", "w-1", since=START)
    assert [row.at - START for row in rows] == [timedelta(seconds=seconds) for seconds in (0, 15, 30.000001)]

    with pytest.raises(UniqueViolationError):
        await store.commit([worker("new", unique={"instance": "i-5"})])
    old = await existing(store, WORKERS, "w-0")
    (cursor,) = await store.commit([worker("w-0", old.revision, unique={"instance": "i-6"})], entries=[entry("w-0")])
    assert cursor > lines[-1].cursor
    assert (await existing(store, WORKERS, "w-0")).revision > old.revision
    assert await store.get_unique(WORKERS, "name", "worker 0") is None


@pytest.mark.parametrize("kept", SQLITE, ids=lambda path: path.name)
async def test_a_file_of_an_earlier_version(kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "lcm.db"
    shutil.copy(kept, path)
    store = SqliteStore(path)
    await store.open(KINDS)
    await assert_readable_and_writable(store)
    await store.close()


@pytest.mark.parametrize("kept", MONGO, ids=lambda path: path.name)
async def test_a_database_of_an_earlier_version(kept: Path, mongodb_uri: str, database: str) -> None:
    load_mongo(kept.read_text(), mongodb_uri, database)
    store = MongoStore(mongodb_uri, database)
    await store.open(KINDS)
    await assert_readable_and_writable(store)
    await store.close()
