"""After kill -9 the store opens and has every acknowledged commit."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.sqlite.store import SqliteStore
from tests.support.real.store_writer import WRITERS, persistently, until_available
from tests.support.records.store_documents import KINDS, NOTES, encode
from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.control_plane.store.port import Store
    from tests.support.servers.mongod import MongoServer

ROUNDS = 3
ACKNOWLEDGED = 300


def write_and_kill(*arguments: str) -> dict[int, int]:
    """Run writers in another process and kill it; returns the last number acknowledged to each writer."""
    command = [sys.executable, "-m", "tests.support.real.store_writer", *arguments]
    last: dict[int, int] = {}
    killed = False
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for count, line in enumerate(process.stdout):
                writer, number = map(int, line.split())
                last[writer] = number
                if not killed and count >= ACKNOWLEDGED and len(last) == WRITERS:
                    process.kill()
                    killed = True
        finally:
            process.kill()
    assert killed, "the process ended by itself"
    return last


async def assert_whole(store: Store, acknowledged: dict[int, int]) -> None:
    """Documents have the acknowledged number or the next one, and the journal has exactly these numbers in order.

    Documents are read first: the last commit of a killed process may still be under way in the server.
    """
    numbers: dict[int, int] = {}
    for writer, last in acknowledged.items():
        document = await store.get(NOTES, f"writer-{writer}")
        assert document is not None
        numbers[writer] = int(document.body)
        assert numbers[writer] in (last, last + 1)
    recorded: dict[str, list[bytes]] = defaultdict(list)
    after: str | None = None
    while lines := await store.read_journal(after=after, limit=1000):
        for line in lines:
            recorded[line.subject].append(line.body)
        after = lines[-1].cursor
    for writer, last in acknowledged.items():
        journal = recorded[f"writer-{writer}"]
        assert journal == [encode(value) for value in range(1, len(journal) + 1)]
        assert numbers[writer] <= len(journal) <= last + 1


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
        await until_available(lambda: store.open(KINDS))  # noqa: B023
        await until_available(store.check)
        await until_available(lambda: assert_whole(store, acknowledged))  # noqa: B023
        await store.close()


def remember(last: dict[int, int], writer: int, number: int) -> None:
    assert number >= last.get(writer, 0), "an acknowledged write is gone"
    last[writer] = number


async def until_written(last: dict[int, int], total: int) -> None:
    while sum(last.values()) < total:
        await asyncio.sleep(0.01)


async def test_a_killed_mongod_that_comes_back(mongod: MongoServer, database: str) -> None:
    store = MongoStore(mongod.uri, database)
    await until_available(lambda: store.open(KINDS))
    last: dict[int, int] = {}
    writers = asyncio.gather(*(persistently(store, writer, partial(remember, last), 60) for writer in range(WRITERS)))
    for share in (1, 2):
        await until_written(last, share * WRITERS * 15)
        await asyncio.to_thread(mongod.kill)
        mongod.launch()
        await asyncio.to_thread(mongod.wait_ready)
    await writers
    await until_available(lambda: assert_whole(store, last))
    assert set(last.values()) == {60}
    await store.close()


async def test_a_primary_that_steps_down(mongod: MongoServer, database: str) -> None:
    store = MongoStore(mongod.uri, database)
    await until_available(lambda: store.open(KINDS))
    last: dict[int, int] = {}
    writers = asyncio.gather(*(persistently(store, writer, partial(remember, last), 40) for writer in range(8)))
    await until_written(last, 60)
    await asyncio.to_thread(mongod.step_down)
    await writers
    await until_available(lambda: assert_whole(store, last))
    assert set(last.values()) == {40}
    await store.close()
