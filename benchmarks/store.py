"""The store: durable commits, pages and summaries over 10,000 workers, on SQLite and on mongod."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.output import percentile, report
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Kind, NewJournalEntry, Put, Sort, Where
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.core import clock
from tests.support.servers.mongod import MongoServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.store.port import FieldValue, Store

WORKERS = 10_000
READERS = 8
PAGES_EACH = 100
BARE = 1_000
SUMMARIES = 200
STATUSES = ("running", "stopped", "pending", "terminated", "failed")
REGIONS = ("eu-west-1", "eu-central-1", "us-east-1", "us-west-2")
KIND = Kind(
    "worker",
    fields=("name", "status", "desired_status", "region", "template", "created_at", "cost"),
    unique=("name", "instance"),
    grouped=("status", "region", "template", "cost"),
)
FILLER = {f"field_{number}": f"value {number} of a record" for number in range(45)}  # 1.9 KB with the rest


def worker(number: int, expected: int | None = None, changed: int = 0) -> Put:
    name = f"worker-{number:05}"
    fields: dict[str, FieldValue] = {
        "name": name,
        "status": STATUSES[number % 5],
        "desired_status": "running",
        "region": REGIONS[number % 4],
        "template": f"template-{number % 3}",
        "created_at": f"2026-01-17T10:{number % 60:02}:00Z",
        "cost": (number % 7) / 10,
    }
    record = json.dumps({"id": name, **fields, **FILLER, "changed": changed}).encode()
    return Put(KIND, name, record, expected, fields, {"name": name, "instance": f"i-{number:08x}"})


async def fill(store: Store, record: Callable[[int], Put] = worker, count: int = WORKERS) -> None:
    """Store that many records; `record` makes each from its number."""
    for begin in range(0, count, 500):
        await store.commit([record(number) for number in range(begin, min(begin + 500, count))])


async def commits(store: Store, clients: int, each: int) -> float:
    """Commits per second: a record and a journal entry, each after a read."""

    async def client(number: int) -> float:
        spent = 0.0
        for change in range(each):
            found = await store.get(KIND, f"worker-{number:05}")
            assert found is not None
            event = NewJournalEntry("worker", found.id, b'{"what":"changed"}', clock.now())
            began = time.perf_counter()
            await store.commit([worker(number, found.revision, change)], entries=[event])
            spent += time.perf_counter() - began
        return spent

    began = time.perf_counter()
    spent = await asyncio.gather(*(client(number) for number in range(clients)))
    # One client: count only its commits, without the reads in between. Many: they overlap, so count all of the time.
    return clients * each / (spent[0] if clients == 1 else time.perf_counter() - began)


def bare(path: Path) -> float:
    """Durable commits per second of SQLite alone, on this disk in this run."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE t (n, body)"):
        connection.execute(statement)
    connection.execute("INSERT INTO t VALUES (0, '')")
    began = time.perf_counter()
    for number in range(BARE):
        connection.execute("UPDATE t SET n = ?, body = ?", (number, "x" * 1900))
    rate = BARE / (time.perf_counter() - began)
    connection.close()
    return rate


async def waits(calls: Callable[[int], Awaitable[object]], clients: int, each: int) -> list[float]:
    """The duration of each call in milliseconds."""

    async def client(number: int) -> list[float]:
        took = []
        for turn in range(each):
            began = time.perf_counter()
            await calls(number * each + turn)
            took.append((time.perf_counter() - began) * 1000)
        return took

    return [wait for one in await asyncio.gather(*(client(number) for number in range(clients))) for wait in one]


async def measure(store: Store, name: str, *, single: int, many: int, beside: str = "") -> None:
    await store.open([KIND])
    await fill(store)
    report(f"{name}: durable commits, 1 client", await commits(store, 1, single), "/s", beside=beside)
    report(f"{name}: durable commits, 32 clients", await commits(store, 32, many), "/s")

    places = [Where(any_of={"status": STATUSES[:3], "region": [region]}) for region in REGIONS]
    seconds = [(await store.find(KIND, where, sort=Sort("name"), limit=100)).next_cursor for where in places]

    async def page(number: int) -> None:
        after = seconds[number % 4] if number % 8 < 4 else None
        found = await store.find(KIND, places[number % 4], sort=Sort("name"), after=after, limit=100)
        assert len(found.items) == 100

    took = await waits(page, READERS, PAGES_EACH)
    report(f"{name}: filtered page of 100 from 10,000, 8 clients, p50", percentile(took, 50), "ms")
    report(f"{name}: filtered page of 100 from 10,000, 8 clients, p99", percentile(took, 99), "ms", aim="50")

    async def summary(_: int) -> None:
        groups = await store.count_by(KIND, ["status", "region"], sums=["cost"])
        assert sum(count for _, count, _ in groups) == WORKERS

    took = await waits(summary, 1, SUMMARIES)
    report(f"{name}: summary of 10,000, 1 client, p99", percentile(took, 99), "ms", aim="10")
    took = await waits(summary, READERS, SUMMARIES // READERS)
    report(f"{name}: summary of 10,000, 8 clients, p99", percentile(took, 99), "ms", aim="50")
    await store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        beside = f"bare sqlite3 {bare(Path(folder) / 'bare.db'):,.0f}/s"
        store = SqliteStore(Path(folder) / "lcm.db")
        asyncio.run(measure(store, "SQLite FULL", single=1000, many=200, beside=beside))
        server = MongoServer(Path(folder)).start()
        try:
            asyncio.run(measure(MongoStore(server.uri, "benchmark"), "mongod majority", single=300, many=60))
        finally:
            server.kill()
