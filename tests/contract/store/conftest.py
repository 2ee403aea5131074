"""The adapters that the contract tests run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pymongo import AsyncMongoClient

from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.sqlite.store import SqliteStore
from tests.support.records.store_documents import KINDS
from tests.support.servers.mongod import database_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path
    from typing import Any

    from lcm.control_plane.store.port import Kind, Store


class Bed:
    """One database, and the processes that open and close it."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._store: Store | None = None

    async def open(self, kinds: Sequence[Kind] = KINDS) -> Store:
        """The store, opened by a new process after the previous one ended."""
        await self.close()
        self._store = self._make()
        await self._store.open(kinds)
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


@pytest.fixture(params=["memory", "sqlite", "mongo"])
async def bed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bed]:
    make: Callable[[], Store]
    uri, database = "", database_name()
    if request.param == "memory":
        disk = MemoryDisk()
        make = lambda: MemoryStore(disk)  # noqa: E731 - one line per adapter
    elif request.param == "sqlite":
        make = lambda: SqliteStore(tmp_path / "lcm.db")  # noqa: E731
    else:
        uri = request.getfixturevalue("mongodb_uri")
        make = lambda: MongoStore(uri, database)  # noqa: E731
    made = Bed(make)
    yield made
    await made.close()
    if request.param == "mongo":
        # The other client has threads, which close its sockets half a second later: each test would wait for them.
        client: AsyncMongoClient[dict[str, Any]]
        async with AsyncMongoClient(uri) as client:
            await client.drop_database(database)


@pytest.fixture
async def store(bed: Bed) -> Store:
    return await bed.open()
