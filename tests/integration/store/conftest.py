"""A mongod per test that kills it, and one for all other tests."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from tests.support.servers.mongod import MongoServer, database_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[MongoServer]:
    """A server for one test, which may kill and restart it."""
    server = MongoServer(tmp_path / "mongod").start()
    yield server
    server.kill()
    gc.collect()  # leftovers of the driver surface here, not in a later test


@pytest.fixture
def database() -> str:
    return database_name()
