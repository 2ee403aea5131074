"""A few threads that read, each with a connection of its own, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from lcm.control_plane.store.port import StoreUnavailable
from lcm.control_plane.store.sqlite.errors import in_words
from lcm.control_plane.store.sqlite.schema import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

READERS = 2  # each row passes through the interpreter: more threads only wait for each other there


class Readers:
    """Each job is short: a long one would keep SQLite's log from being started over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix=f"store-reader {path.name}")
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._ended = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in a reader's thread."""
        if self._ended:
            raise StoreUnavailable(f"{self._path}: the store is closed")
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
            raise in_words(self._path, error) from error
