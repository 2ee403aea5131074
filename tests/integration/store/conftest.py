"""A mongod for each test that harms it, one for all the others."""

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
    if given := os.environ.get("MONGODB_URI"):
        yield given
        return
    server = MongoServer(tmp_path_factory.mktemp("mongod")).start()
    yield server.uri
    server.kill()


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[MongoServer]:
    """A server of this test alone, to be killed and started again."""
    server = MongoServer(tmp_path / "mongod").start()
    yield server
    server.kill()
    gc.collect()  # what the driver left behind is met here, not in a later test


@pytest.fixture
def database() -> str:
    return database_name()
