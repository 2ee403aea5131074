"""The threads that use the SQLite file, so that the event loop never waits for the disk: one writer, a few readers."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lcm.control_plane.store.port import StoreUnavailableError
from lcm.control_plane.store.sqlite.database import WAL_LIMIT, open_reader, translate_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


T = TypeVar("T")

MAX_BATCH = 64


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class WriterThread:
    """Runs jobs in order, each in a savepoint. Up to 64 waiting jobs share one transaction and one sync to disk."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._wal_limit = WAL_LIMIT
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=f"store-writer {path.name}", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run it in the writer's thread. It is durable on return."""
        if self._closed:
            raise StoreUnavailableError(f"{self._path}: the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """Finish the waiting jobs, then close the connection."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        running = True
        while running:
            batch, running = self._next_batch()
            if batch:
                outcomes = self._run_batch(batch)
                # If the loop was closed before the store, there is no caller left to receive the results.
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

    def _run_batch(self, batch: Sequence[_Job]) -> list[Any]:
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
        except Exception as error:  # noqa: BLE001 - its own caller gets the error, the other jobs go on
            self._connection.execute("ROLLBACK TO job")
            outcome = error
        self._connection.execute("RELEASE job")
        return outcome

    def _bound_wal(self) -> None:
        """SQLite restarts the log only when no reader needs it. Under constant reads this has to wait for them."""
        try:
            size = self._wal.stat().st_size
            if size > self._wal_limit:
                (blocked, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._wal_limit = size + WAL_LIMIT if blocked else WAL_LIMIT
        except (OSError, sqlite3.Error):
            self._wal_limit += WAL_LIMIT  # the next commit reports the cause; the checkpoint is retried later


def _resolve_futures(batch: Sequence[_Job], outcomes: Sequence[Any]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        if job.future.done():
            continue
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)


READER_THREADS = 2  # more threads would only wait for the interpreter lock, which every row needs


class ReaderPool:
    """Threads that read, each with its own connection. Jobs must be short: a long one would block the checkpoint.

    Threads of our own: an executor's job has two futures with locks between them, which takes as long as a short read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"store-reader {path.name}", daemon=True)
            for _ in range(READER_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run it in a reader's thread."""
        if self._closed:
            raise StoreUnavailableError(f"{self._path}: the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """Finish the waiting jobs, then close the connections."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _serve(self) -> None:
        connection: sqlite3.Connection | None = None
        while (job := self._jobs.get()) is not None:
            if job.future.cancelled():
                continue  # nobody waits any more: a flag that is only ever set can be read from here
            try:
                connection = connection or open_reader(self._path)
                outcome = job.work(connection)
            except sqlite3.Error as error:
                outcome = translate_error(self._path, error)
            except BaseException as error:  # noqa: BLE001 - its own caller gets it, and the thread goes on
                outcome = error
            # If the loop was closed before the store, there is no caller left to receive the results.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_resolve_futures, (job,), (outcome,))
        if connection is not None:
            connection.close()
