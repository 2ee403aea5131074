"""The adapters on which the contract is checked."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from lcm.coordination.etcd import EtcdConfig, EtcdCoordination
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.coordination.namespaced import NamespacedCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.core.coordination import Coordination
    from tests.support.servers.etcd import EtcdServer

_numbers = itertools.count(1)


class Deployment:
    """One shared state, any number of clients."""

    def __init__(self, stack: AsyncExitStack, server: MemoryServer | EtcdServer, namespace: str) -> None:
        self._stack = stack
        self._server = server
        self._namespace = namespace

    def client(self) -> Coordination:
        """One more client; it is closed when the test ends."""
        plain = self.plain_client()
        return NamespacedCoordination(plain, self._namespace) if self._namespace else plain

    def plain_client(self) -> Coordination:
        """A client that sees the keys as they are stored."""
        client: Coordination
        if isinstance(self._server, MemoryServer):
            client = MemoryCoordination(self._server)
        else:
            client = EtcdCoordination(EtcdConfig((self._server.endpoint,), call_timeout=20.0))
        self._stack.push_async_callback(client.close)
        return client

    @property
    def namespace(self) -> str:
        return self._namespace

    def compact(self, revision: int) -> None:
        """Forget the history before `revision`."""
        self._server.compact(revision)


@pytest.fixture(params=["memory", "etcd", "namespaced-memory", "namespaced-etcd"])
async def deployment(request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    server = request.getfixturevalue("etcd_server") if request.param.endswith("etcd") else MemoryServer()
    namespace = f"/space{next(_numbers)}" if request.param.startswith("namespaced") else ""
    async with AsyncExitStack() as stack:
        yield Deployment(stack, server, namespace)


@pytest.fixture
def client(deployment: Deployment) -> Coordination:
    return deployment.client()


@pytest.fixture
def prefix() -> str:
    """Keys of this test alone."""
    return f"/test{next(_numbers)}/"
