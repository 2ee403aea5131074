"""The SQLite file: its lock, the errors when it is unusable, and its growth."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.port import StoreError, StoreUnavailableError
from lcm.control_plane.store.sqlite import database as sqlite_schema
from lcm.control_plane.store.sqlite import threads
from lcm.control_plane.store.sqlite.store import SqliteStore
from tests.support.records.store_documents import KINDS, NOTES, WORKERS, body, ids, note, revision, worker
from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lcm.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open(KINDS)
    yield store
    await store.close()


async def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as refused:
        await SqliteStore(path).open(KINDS)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    return str(refused.value)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions do not apply to root: run as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def test_a_second_process_is_rejected_with_file_and_pid(store: SqliteStore, path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from lcm.control_plane.store.port import StoreError\n"
        "from lcm.control_plane.store.sqlite.store import SqliteStore\n"
        "try: asyncio.run(SqliteStore(Path(sys.argv[1])).open(()))\n"
        "except StoreError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    said = (await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True)).stdout
    assert len(said.splitlines()) == 1
    assert str(path) in said
    assert str(os.getpid()) in said
    await store.commit([note("a")])


async def test_a_second_store_in_the_same_process_is_rejected_too(store: SqliteStore, path: Path) -> None:
    assert str(os.getpid()) in await refusal(path)


async def test_a_closed_store_leaves_one_file_that_others_can_use(path: Path) -> None:
    for _ in range(2):
        store = SqliteStore(path)
        await store.open(KINDS)
        await store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["lcm.db", "lcm.db.lock"]


async def test_only_its_owner_can_read_it(store: SqliteStore, path: Path) -> None:
    await store.commit([note("a")])
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("lcm.db", "lcm.db-shm", "lcm.db-wal", "lcm.db.lock"), 0o600)


async def test_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with unprivileged():
        assert "not writable" in await refusal(open_folder / "lcm.db")
    assert list(open_folder.iterdir()) == []


async def test_a_folder_that_does_not_exist(path: Path) -> None:
    assert "not writable" in await refusal(path / "lcm.db")


async def test_a_file_that_cannot_be_written(open_folder: Path) -> None:
    path = open_folder / "lcm.db"
    store = SqliteStore(path)
    await store.open(KINDS)
    await store.close()
    path.chmod(0o444)
    path.with_name("lcm.db.lock").chmod(0o666)
    open_folder.chmod(0o777)
    with unprivileged():
        assert "not writable" in await refusal(path)


async def test_a_file_that_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"dear diary" * 1000)
    assert "not a store" in await refusal(path)
    assert path.read_bytes() == b"dear diary" * 1000


async def test_a_corrupt_file(path: Path) -> None:
    store = SqliteStore(path)
    await store.open(KINDS)
    await store.commit([note(f"n{number}", body="x" * 500) for number in range(200)])
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    assert "corrupt" in await refusal(path)


async def test_a_database_of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    assert "another program" in await refusal(path)


async def test_a_full_disk_is_reported_and_survived(store: SqliteStore) -> None:
    await store.commit([note("a", body=1)])
    writer = store._writer
    assert writer is not None
    pages = await writer.run(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await writer.run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    big = note("big", body="x" * 100_000)
    with pytest.raises(StoreUnavailableError, match="disk is full"):
        await store.commit([note("a", await revision(store, NOTES, "a"), body=2), big])
    with pytest.raises(StoreUnavailableError, match="disk is full"):
        await store.check()  # a page that exists can still be written, but no record that needs another page
    assert await body(store, NOTES, "a") == 1
    await writer.run(lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchone())
    await store.commit([big])
    assert await ids(store, kind=NOTES) == ["a", "big"]
    await store.check()


async def test_a_check_needs_room_beside_the_file(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full file system or quota: the log may have room for a small write, and none for the next record."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(StoreUnavailableError, match="disk is full"):
            await store.check()
    await store.check()


async def test_checks_leave_nothing_behind(store: SqliteStore, path: Path) -> None:
    await store.check()
    files, writer = sorted(path.parent.iterdir()), store._writer
    assert writer is not None
    pages = await writer.run(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    for _ in range(50):
        await store.check()
    assert sorted(path.parent.iterdir()) == files
    assert await writer.run(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0]) == pages
    assert await writer.run(lambda connection: connection.execute("SELECT COUNT(*) FROM samples").fetchone()[0]) == 0


async def test_a_disk_that_hangs_does_not_hang_the_caller(path: Path) -> None:
    store = SqliteStore(path, timeout=0.2)
    await store.open(KINDS)
    writer = store._writer
    assert writer is not None
    hangs, released = threading.Event(), threading.Event()

    def hang(_: sqlite3.Connection) -> None:
        hangs.set()
        released.wait()

    hanging = asyncio.create_task(writer.run(hang))
    await asyncio.to_thread(hangs.wait)
    with pytest.raises(StoreUnavailableError, match="did not respond"):
        await store.check()
    released.set()
    await hanging
    await store.close()


async def test_the_log_stays_small_under_steady_reading(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1024 * 1024
    monkeypatch.setattr(threads, "WAL_LIMIT", limit)
    assert store._writer is not None
    store._writer._wal_limit = limit
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            await store.find(NOTES, limit=50)

    readers = [asyncio.create_task(read()) for _ in range(4)]
    largest = 0
    for number in range(300):
        await store.commit([note(f"n{number}", body="x" * 20_000)])
        largest = max(largest, path.with_name("lcm.db-wal").stat().st_size)
    done.set()
    await asyncio.gather(*readers)
    assert path.stat().st_size > 5 * limit
    assert largest < 4 * limit


async def test_a_newer_schema_is_rejected_and_unchanged(path: Path) -> None:
    store = SqliteStore(path)
    await store.open(KINDS)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    assert "newer LCM (schema 99" in await refusal(path)
    assert path.read_bytes() == before


async def test_an_older_schema_is_migrated_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await store.open(KINDS)
    await store.commit([worker("a", name="A")])
    await store.close()
    taken: list[int] = []

    def second(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE added (a)")
        taken.append(2)

    def third(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO added VALUES (3)")
        if len(taken) == 1:
            taken.append(-3)
            raise RuntimeError("cut off")
        taken.append(3)

    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*sqlite_schema.MIGRATIONS, second, third))
    with pytest.raises(RuntimeError, match="cut off"):
        await SqliteStore(path).open(KINDS)
    for _ in range(2):
        store = SqliteStore(path)
        await store.open(KINDS)
        assert await ids(store) == ["a"]
        await store.close()
    assert taken == [2, -3, 3]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM added").fetchall() == [(3,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(sqlite_schema.MIGRATIONS),)
    connection.close()


async def test_a_count_reads_only_its_index(store: SqliteStore, path: Path) -> None:
    sql = sqlite_plan(path, "SELECT f_region, f_status, COUNT(*), TOTAL(f_cost) FROM d_worker GROUP BY 1, 2")
    assert "COVERING INDEX d_worker__by__" in sql
    assert WORKERS.grouped == ("status", "region", "cost")


def sqlite_plan(path: Path, sql: str) -> str:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}"))
    connection.close()
    return plan


async def test_a_read_that_fails_leaves_its_thread_to_the_others(path: Path) -> None:
    store = SqliteStore(path)
    await store.open(KINDS)
    await store.close()
    pool = threads.ReaderPool(path)

    def fail(_: sqlite3.Connection) -> int:
        raise ValueError("not for a reader")

    def leave(_: sqlite3.Connection) -> int:
        raise asyncio.CancelledError

    def read(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT checks FROM head").fetchone()[0])

    for _ in range(2 * threads.READER_THREADS):
        with pytest.raises(asyncio.CancelledError):
            await pool.run(leave)
        with pytest.raises(ValueError, match="not for a reader"):
            await pool.run(fail)
        with pytest.raises(StoreUnavailableError):
            await pool.run(lambda connection: connection.execute("SELECT nothing"))
    assert await pool.run(read) >= 0
    waiting = [asyncio.ensure_future(pool.run(read)) for _ in range(20)]
    await asyncio.sleep(0)
    await pool.close()
    assert all(result >= 0 for result in await asyncio.gather(*waiting)), "what was asked before is still read"
    with pytest.raises(StoreUnavailableError, match="closed"):
        await pool.run(read)
