"""Several replicas of a worker controller that read for the leader, and the network between them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from lcm.client.errors import UnauthenticatedError
from lcm.cml.reading import ServerQuery
from lcm.controllers.common.admin_api import install_problem_handlers
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.worker.readers.client import SharedCMLClient
from lcm.controllers.worker.readers.directory import Reader, ReaderDirectory
from lcm.controllers.worker.readers.metrics import SharedMetrics
from lcm.controllers.worker.readers.pool import ReaderPool
from lcm.controllers.worker.readers.remote_reader import RemoteReader
from lcm.controllers.worker.readers.routes import ServerReader, reader_routes
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core.hosting import cancel_and_wait
from lcm.http.in_process import asgi_scope
from lcm.http.transport import ConnectionFailedError, ResponseTimeoutError
from lcm.model.access import CallerIdentity, CallerKind, Role
from lcm.model.problems import ProblemCode
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeServer, FakeSharedMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.cml.reading import ServerReading
    from lcm.http.transport import HttpRequest


TTL = 15
TOKEN = "controller-token"
SERVERS = [f"198.18.0.{number}" for number in range(1, 41)]


async def whoami(token: str) -> CallerIdentity:
    roles = {TOKEN: Role.CONTROLLER, "admin-token": Role.ADMIN}
    if token not in roles:
        raise UnauthenticatedError(401, ProblemCode.UNAUTHENTICATED, "no such token")
    return CallerIdentity(name=token, role=roles[token], kind=CallerKind.TOKEN)


class Replica:
    """A worker controller, as far as it reads CML servers and metrics."""

    def __init__(self, name: str, coordination: MemoryServer, servers: dict[str, FakeServer]) -> None:
        self.own = Reader(name, f"http://{name}")
        self.cml = FakeCml(**servers)
        self.metrics = FakeSharedMetrics()
        self.directory = ReaderDirectory(MemoryCoordination(coordination), self.own, key=b"key", lease_ttl=TTL)
        self.app = FastAPI()
        self.reader = ServerReader(self.cml, self.directory, self.metrics)
        self.app.include_router(reader_routes(self.reader, AdminAuthenticator(whoami)))
        install_problem_handlers(self.app, "worker controller")
        self.is_cut_off = False
        self.is_silent = False
        self.spoil: Callable[[bytes], bytes] = lambda line: line  # what it makes of the lines of its responses

    @property
    def read(self) -> set[str]:
        """The servers that it has called."""
        return set(self.cml.dialled)


class Network:
    """Carries requests to the replicas, and their responses piece by piece."""

    def __init__(self, replicas: dict[str, Replica]) -> None:
        self._replicas = replicas
        self.requests = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def send(self, request: HttpRequest) -> _Response:
        self.requests += 1
        replica = self._replicas[request.url.removeprefix("http://").split("/")[0]]
        if replica.is_cut_off:
            raise ConnectionFailedError("connection refused")
        response = _Response(replica, request.read_seconds)
        scope = asgi_scope(request)
        self.tasks.append(asyncio.create_task(response.run(scope, request.body or b"")))
        await response.started()
        return response

    def discard(self, tls: Any) -> None: ...

    async def aclose(self) -> None:
        await cancel_and_wait(self.tasks)


class _Response:
    def __init__(self, replica: Replica, silence: float) -> None:
        self._replica = replica
        self._silence = silence
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.status = 0

    async def run(self, scope: Any, body: bytes) -> None:
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if parts:
                return parts.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if not self._replica.is_silent:
                self._messages.put_nowait(message)

        await self._replica.app(scope, receive, send)

    async def _next(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._silence):
                return await self._messages.get()
        except TimeoutError:
            raise ResponseTimeoutError("nothing arrived") from None

    async def started(self) -> None:
        self.status = (await self._next())["status"]

    def header(self, name: str) -> str | None:
        return None

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._next()
            if message.get("body"):
                yield b"".join(map(self._replica.spoil, message["body"].splitlines(keepends=True)))
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self._gone.set()


class Scene:
    """A leader and other replicas, all of which reach the same servers."""

    def __init__(self, *names: str) -> None:
        self.coordination = MemoryServer()
        self.servers = {address: FakeServer() for address in SERVERS}
        self.replicas = {name: Replica(name, self.coordination, self.servers) for name in names}
        self.leader = self.replicas[names[0]]
        self.network = Network(self.replicas)
        self.registry = CollectorRegistry()
        self.pool = ReaderPool(
            self.leader.directory,
            lambda reader: RemoteReader(reader, self.network, f"Bearer {TOKEN}", None),
            registry=self.registry,
        )
        self.client = SharedCMLClient(self.leader.cml, self.pool, registry=self.registry)
        self.metrics = SharedMetrics(self.leader.metrics, self.pool, registry=self.registry)

    async def read(self, address: str, seconds: float = 45.0) -> ServerReading:
        self.client.trust(address, "c0" * 32)
        query = ServerQuery(address, DEFAULT, license=True, instance_id=f"i-{address}")
        return await self.client.read_server(query, seconds)

    async def read_all(self) -> list[ServerReading]:
        for replica in self.replicas.values():
            replica.cml.dialled.clear()
        return await asyncio.gather(*(self.read(address) for address in SERVERS))

    def of(self, name: str) -> list[str]:
        """The servers that a replica reads."""
        wanted = None if name == self.leader.own.instance_id else self.replicas[name].own
        return [address for address in SERVERS if self.client.reader_of(address) == wanted]


@asynccontextmanager
async def a_scene(*names: str) -> AsyncIterator[Scene]:
    scene = Scene(*names)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(scene.network.aclose)
        stack.push_async_callback(scene.pool.close)
        for replica in scene.replicas.values():
            await replica.directory.start()
            stack.push_async_callback(replica.directory.stop)
        await asyncio.sleep(1)
        yield scene
