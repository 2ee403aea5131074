"""Servers that all tests of a pytest worker share; tests that stop or damage one start their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.auth.identity_provider import IdentityProvider
    from tests.support.servers.etcd import EtcdServer


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd in which each test uses a prefix of its own."""
    from tests.support.servers.etcd import EtcdServer  # unit tests start without it

    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mongodb_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A mongod, or the one at $MONGODB_URI, in which each test uses a database of its own."""
    if uri := os.environ.get("MONGODB_URI"):
        yield uri
        return
    from tests.support.servers.mongod import MongoServer  # unit tests start without it

    server = MongoServer(tmp_path_factory.mktemp("mongod")).start()
    yield server.uri
    server.kill()


@pytest.fixture(scope="session")
def identity_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    """An identity provider; each file sets its control planes and people."""
    from tests.support.auth.identity_provider import IdentityProvider  # unit tests start without it

    provider = IdentityProvider(tmp_path_factory.mktemp("provider")).start()
    yield provider
    provider.stop()
