"""Real servers for fault tests."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from lcm.coordination.etcd import EtcdConfig, EtcdCoordination
from tests.support.network.tcp_proxy import TcpProxy
from tests.support.servers.etcd import EtcdCluster, EtcdServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_numbers = itertools.count(1)


class Connect(Protocol):
    """Makes a client that is closed when the test ends."""

    def __call__(self, *endpoints: str, **settings: Any) -> EtcdCoordination: ...


@pytest.fixture(scope="session")
def breakable_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture
def etcd(breakable_etcd: EtcdServer) -> EtcdServer:
    """One server, running whatever the test before did to it."""
    if not breakable_etcd.running:
        breakable_etcd.launch()
    breakable_etcd.wait_ready()
    return breakable_etcd


@pytest.fixture(scope="session")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(tmp_path_factory.mktemp("cluster")).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(etcd_cluster: EtcdCluster) -> Iterator[EtcdCluster]:
    """Three servers, all up at the start and set going again at the end."""
    yield etcd_cluster.start()
    for server in etcd_cluster:
        if server.running:
            server.resume()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        def make(*endpoints: str, **settings: Any) -> EtcdCoordination:
            # Longer than by default, so that a machine under load does not pass for a fault.
            client = EtcdCoordination(EtcdConfig(endpoints, **{"call_timeout": 10.0} | settings))
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
async def proxy(etcd: EtcdServer) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(etcd.endpoint) as proxy:
        yield proxy


@pytest.fixture
def prefix() -> str:
    """Keys of this test alone."""
    return f"/test{next(_numbers)}/"
