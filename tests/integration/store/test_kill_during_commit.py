"""After kill -9 the store opens and has every acknowledged commit."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Store, StoreUnavailableError
from lcm.control_plane.store.sqlite.store import SqliteStore
from tests.support.real.store_writer import WRITERS, count_up
from tests.support.records.store_documents import KINDS, NOTES, encode
from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers.mongod import MongoServer

ROUNDS = 3
ACKNOWLEDGED = 300


def write_and_kill(*arguments: str) -> dict[int, int]:
    """Run writers in another process and kill it; returns the last number acknowledged to each writer."""
    command = [sys.executable, "-m", "tests.support.real.store_writer", *arguments]
    last: dict[int, int] = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for count, line in enumerate(process.stdout):
                writer, number = map(int, line.split())
                last[writer] = number
                if count == ACKNOWLEDGED:
                    process.kill()
        finally:
            process.kill()
    assert len(last) == WRITERS, "the process ended by itself"
    return last


async def assert_whole(store: Store, acknowledged: dict[int, int]) -> None:
    """Documents have the acknowledged number or the next one, and the journal has exactly these numbers in order."""
    recorded: dict[str, list[bytes]] = defaultdict(list)
    after: str | None = None
    while lines := await store.read_journal(after=after, limit=1000):
        for line in lines:
            recorded[line.subject].append(line.body)
        after = lines[-1].cursor
    for writer, last in acknowledged.items():
        document = await store.get(NOTES, f"writer-{writer}")
        assert document is not None
        number = int(document.body)
        assert number in (last, last + 1)
        assert recorded[f"writer-{writer}"] == [encode(value) for value in range(1, number + 1)]


async def test_a_killed_process_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "lcm.db"
    for _ in range(ROUNDS):
        acknowledged = await asyncio.to_thread(write_and_kill, "sqlite", str(path))
        store = SqliteStore(path)
        await store.open(KINDS)
        await assert_whole(store, acknowledged)
        await store.close()
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


async def test_a_killed_process_on_mongodb(mongodb_uri: str, database: str) -> None:
    for _ in range(ROUNDS):
        acknowledged = await asyncio.to_thread(write_and_kill, "mongo", mongodb_uri, database)
        store = MongoStore(mongodb_uri, database)
        await store.open(KINDS)
        # The server ends the transaction of a lost client by itself; other commits wait for that.
        await store.check()
        await assert_whole(store, acknowledged)
        await store.close()


async def persistently(store: Store, writer: int, last: dict[int, int], until: int) -> None:
    """Continue after failures: `count_up` reads first, so a commit that happened is not repeated."""
    while last.get(writer, 0) < until:
        try:
            await count_up(store, writer, last.__setitem__, until)
            last.setdefault(writer, until)
            return
        except StoreUnavailableError:
            found = await store.get(NOTES, f"writer-{writer}")
            if found is not None:
                assert int(found.body) >= last.get(writer, 0), "an acknowledged write is gone"
                last[writer] = int(found.body)


async def until_written(last: dict[int, int], total: int) -> None:
    while sum(last.values()) < total:
        await asyncio.sleep(0.01)


async def test_a_killed_mongod_that_comes_back(mongod: MongoServer, database: str) -> None:
    store = MongoStore(mongod.uri, database)
    await store.open(KINDS)
    last: dict[int, int] = {}
    writers = asyncio.gather(*(persistently(store, writer, last, 60) for writer in range(WRITERS)))
    for share in (1, 2):
        await until_written(last, share * WRITERS * 15)
        await asyncio.to_thread(mongod.kill)
        mongod.launch()
        await asyncio.to_thread(mongod.wait_ready)
    await writers
    await assert_whole(store, last)
    assert set(last.values()) == {60}
    await store.close()


async def test_a_primary_that_steps_down(mongod: MongoServer, database: str) -> None:
    store = MongoStore(mongod.uri, database)
    await store.open(KINDS)
    last: dict[int, int] = {}
    writers = asyncio.gather(*(persistently(store, writer, last, 40) for writer in range(8)))
    await until_written(last, 60)
    await asyncio.to_thread(mongod.step_down)
    await writers
    await assert_whole(store, last)
    assert set(last.values()) == {40}
    await store.close()
