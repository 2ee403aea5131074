"""A mongod per test that kills it, and one for all other tests."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.servers.mongod import MongoServer, database_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def mongodb_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if uri := os.environ.get("MONGODB_URI"):
        yield uri
        return
    server = MongoServer(tmp_path_factory.mktemp("mongod")).start()
    yield server.uri
    server.kill()


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
