"""The one thread that writes: what waits together is committed together, with one wait for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lcm.control_plane.store.port import StoreUnavailableError
from lcm.control_plane.store.sqlite.errors import translate_error
from lcm.control_plane.store.sqlite.schema import WAL_LIMIT, open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


T = TypeVar("T")

MAX_BATCH = 64


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    answer: asyncio.Future[Any]


class WriterThread:
    """Runs jobs in the order they came, each within a savepoint, up to 64 of them in one transaction."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._wal_limit = WAL_LIMIT
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name=f"store-writer {path.name}", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in the writer's thread; when this returns it is durable."""
        if self._ended:
            raise StoreUnavailableError(f"{self._path}: the store is closed")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, answer))
        return await answer

    async def close(self) -> None:
        """Finish what was asked for, then let go of the file."""
        if not self._ended:
            self._ended = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        going_on = True
        while going_on:
            batch, going_on = self._next_batch()
            if batch:
                outcomes = self._perform(batch)
                # The loop may be closed before its store was: then nobody waits for the answers.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_resolve_futures, batch, outcomes)
                self._bound_wal()
        self._connection.close()

    def _next_batch(self) -> tuple[list[_Job], bool]:
        batch: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch, True
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _perform(self, batch: Sequence[_Job]) -> list[Any]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job) for job in batch]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            return [translate_error(self._path, error)] * len(batch)
        return outcomes

    def _attempt(self, job: _Job) -> Any:
        self._connection.execute("SAVEPOINT job")
        try:
            outcome = job.work(self._connection)
        except sqlite3.OperationalError:
            raise
        except Exception as error:  # noqa: BLE001 - whoever asked for it gets it; the others must not
            self._connection.execute("ROLLBACK TO job")
            outcome = error
        self._connection.execute("RELEASE job")
        return outcome

    def _bound_wal(self) -> None:
        """SQLite starts the log over only when no reader needs it; under steady reading that must be waited for."""
        try:
            size = self._wal.stat().st_size
            if size > self._wal_limit:
                (blocked, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._wal_limit = size + WAL_LIMIT if blocked else WAL_LIMIT
        except (OSError, sqlite3.Error):
            self._wal_limit += WAL_LIMIT  # the next commit says what is wrong; the log is tried again later


def _resolve_futures(batch: Sequence[_Job], outcomes: Sequence[Any]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        if job.answer.done():
            continue
        if isinstance(outcome, Exception):
            job.answer.set_exception(outcome)
        else:
            job.answer.set_result(outcome)


READER_THREADS = 2  # each row passes through the interpreter: more threads only wait for each other there


class ReaderPool:
    """Each job is short: a long one would keep SQLite's log from being started over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(READER_THREADS, thread_name_prefix=f"store-reader {path.name}")
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._ended = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in a reader's thread."""
        if self._ended:
            raise StoreUnavailableError(f"{self._path}: the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._perform, work)

    async def close(self) -> None:
        """Wait for those under way."""
        self._ended = True
        await asyncio.to_thread(self._pool.shutdown)
        while self._connections:
            self._connections.pop().close()

    def _perform(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
            if connection is None:
                connection = self._own.connection = open_reader(self._path)
                self._connections.append(connection)
            return work(connection)
        except sqlite3.Error as error:
            raise translate_error(self._path, error) from error
