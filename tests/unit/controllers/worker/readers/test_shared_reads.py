"""The leader's reads go to the replica that reads a server; whichever is lost, each read is made by another."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from lcm.client.errors import UnauthenticatedError
from lcm.cml.errors import CMLNotReadyError, CMLPollerError
from lcm.cml.reading import ServerQuery
from lcm.controllers.common.admin_api import install_problem_handlers
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.worker.readers.client import AVOID_SECONDS, SharedCMLClient
from lcm.controllers.worker.readers.directory import Reader, ReaderDirectory
from lcm.controllers.worker.readers.remote_reader import SILENCE_SECONDS, RemoteReader
from lcm.controllers.worker.readers.routes import READ_PATH, ServerReader, reader_routes
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.hosting import cancel_and_wait
from lcm.http.in_process import asgi_scope
from lcm.http.transport import ConnectionFailedError, HttpRequest, ResponseTimeoutError
from lcm.model.access import CallerIdentity, CallerKind, Role
from lcm.model.problems import ProblemCode
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cml.reading import ServerReading

TTL = 15
TOKEN = "controller-token"
SERVERS = [f"198.18.0.{number}" for number in range(1, 41)]


async def whoami(token: str) -> CallerIdentity:
    roles = {TOKEN: Role.CONTROLLER, "admin-token": Role.ADMIN}
    if token not in roles:
        raise UnauthenticatedError(401, ProblemCode.UNAUTHENTICATED, "no such token")
    return CallerIdentity(name=token, role=roles[token], kind=CallerKind.TOKEN)


class Replica:
    """A worker controller, as far as it reads CML servers."""

    def __init__(self, name: str, coordination: MemoryServer, servers: dict[str, FakeServer]) -> None:
        self.own = Reader(name, f"http://{name}")
        self.cml = FakeCml(**servers)
        self.directory = ReaderDirectory(MemoryCoordination(coordination), self.own, lease_ttl=TTL)
        self.app = FastAPI()
        self.app.include_router(reader_routes(ServerReader(self.cml, self.directory), AdminAuthenticator(whoami)))
        install_problem_handlers(self.app, "worker controller")
        self.is_cut_off = False
        self.is_silent = False

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
                yield message["body"]
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
        self.client = SharedCMLClient(
            self.leader.cml,
            self.leader.directory,
            lambda reader: RemoteReader(reader, self.network, f"Bearer {TOKEN}", None),
            registry=self.registry,
        )

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
        stack.push_async_callback(scene.client.close)
        for replica in scene.replicas.values():
            await replica.directory.start()
            stack.push_async_callback(replica.directory.stop)
        await asyncio.sleep(1)
        yield scene


async def test_each_server_is_read_by_one_replica() -> None:
    async with a_scene("one", "two", "three") as scene:
        readings = await scene.read_all()
        assert all(reading.stats is not None and reading.license_state is not None for reading in readings)
        read = [replica.read for replica in scene.replicas.values()]
        assert all(part for part in read)
        assert sum(map(len, read)) == len(set().union(*read)) == len(SERVERS)
        assert scene.network.requests <= 4, "reads are sent together"
        assert scene.registry.get_sample_value("lcm_cml_readers") == 3
        others = scene.registry.get_sample_value("lcm_cml_reads_total", {"by": "other"})
        assert others == len(SERVERS) - len(scene.of("one"))


async def test_the_license_was_read_no_earlier_than_it_was_asked_for() -> None:
    async with a_scene("one", "two") as scene:
        await asyncio.sleep(100)
        asked_at = clock.boottime()
        assert [(await scene.read(scene.of(name)[0])).license_began for name in ("two",)] == [asked_at]


async def test_a_slow_server_delays_only_its_own_read() -> None:
    async with a_scene("one", "two") as scene:
        slow, *rest = scene.of("two")
        scene.servers[slow].hanging.add("stats")
        reads = {address: asyncio.create_task(scene.read(address)) for address in (slow, *rest)}
        done, waiting = await asyncio.wait(reads.values(), timeout=2)
        assert waiting == {reads[slow]}
        reading = await reads[slow]
        assert reading.timed_out
        assert scene.client.reader_of(slow) == scene.replicas["two"].own, (
            "a server that hangs says nothing about its reader"
        )
        assert len(done) == len(rest)


@pytest.mark.parametrize("fault", ["is_cut_off", "is_silent"])
async def test_a_lost_replica_delays_its_reads_and_the_others_make_them(fault: str) -> None:
    async with a_scene("one", "two", "three") as scene:
        lost, its = scene.replicas["two"], scene.of("two")
        setattr(lost, fault, True)
        began = clock.boottime()
        readings = await scene.read_all()
        assert all(reading.stats is not None for reading in readings)
        assert clock.boottime() - began < SILENCE_SECONDS + 2
        assert {scene.client.reader_of(address) for address in its} == {None, scene.replicas["three"].own}
        setattr(lost, fault, False)
        await asyncio.sleep(AVOID_SECONDS)
        assert scene.of("two") == its, "it is back"


async def test_a_replica_that_leaves_gives_its_servers_to_the_others() -> None:
    async with a_scene("one", "two", "three") as scene:
        kept = scene.of("three")
        await scene.replicas["two"].directory.stop()
        await asyncio.sleep(1)
        await scene.read_all()
        assert scene.replicas["two"].read == set()
        assert set(kept) <= scene.replicas["three"].read
        await scene.replicas["three"].directory.stop()
        await asyncio.sleep(1)
        await scene.read_all()
        assert scene.leader.read == set(SERVERS)


async def test_a_replica_without_its_lease_reads_nothing() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        directory = scene.replicas["two"].directory
        assert directory._lease is not None
        directory._lease._over = True
        reading = await scene.read(server)
        assert reading.stats is not None
        assert scene.replicas["two"].read == set()
        assert server in scene.leader.read


async def test_errors_of_a_server_arrive_as_they_are() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.servers[server].failures["stats"] = CMLNotReadyError(server, "HTTP 503")
        assert isinstance((await scene.read(server)).stats_error, CMLNotReadyError)
        scene.servers[server].failures["activity"] = CMLNotReadyError(server, "HTTP 502")
        with pytest.raises(CMLNotReadyError, match="HTTP 502"):
            await scene.client.get_activity_events(server, DEFAULT)
        assert await scene.client.get_own_user_id(server, DEFAULT) == "id-of-admin"
        assert scene.leader.read == set()


async def test_an_unexpected_error_of_one_server_is_its_own_and_its_reader_is_used_on() -> None:
    """Before, it ended the response of its batch, and the replica was avoided for ten seconds."""
    async with a_scene("one", "two") as scene:
        odd, *others = scene.of("two")
        await asyncio.gather(*(scene.read(address) for address in (odd, *others)))  # their certificates are pinned
        scene.servers[odd].failures["activity"] = KeyError("a field that no CML ever left out")
        reads = (scene.client.get_activity_events(address, DEFAULT) for address in (odd, *others))
        failed, *rest = await asyncio.gather(*reads, return_exceptions=True)
        assert isinstance(failed, CMLPollerError)
        assert "the reader failed: KeyError" in str(failed)
        assert not any(isinstance(each, BaseException) for each in rest)
        assert scene.leader.read == set()
        assert scene.of("two") == [odd, *others], "it is not avoided"


async def test_an_address_that_another_instance_has_now_gets_a_new_session() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        for instance, forgotten in (("i-1", []), ("i-1", []), ("i-2", [server])):
            await scene.client.read_server(ServerQuery(server, instance_id=instance), 45)
            assert scene.replicas["two"].cml.forgotten == forgotten


async def test_what_changes_a_server_is_done_by_the_leader() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.client.trust(server, "c0" * 32)
        await scene.client.get_license(server, DEFAULT)
        assert (scene.leader.read, scene.replicas["two"].read) == ({server}, set())


async def test_reads_that_nobody_can_make_in_time_say_nothing_about_the_server() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.replicas["two"].is_silent = True
        with pytest.raises(CMLPollerError, match="reader two"):
            await scene.read(server, seconds=3)


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [("admin-token", b"[]", 403), ("wrong", b"[]", 401), (TOKEN, b"{", 422), (TOKEN, b"[]", 200)],
)
async def test_only_controllers_may_ask(token: str, body: bytes, status: int) -> None:
    async with a_scene("one", "two") as scene:
        request = HttpRequest("POST", f"http://two{READ_PATH}", {"Authorization": f"Bearer {token}"}, body)
        response = await scene.network.send(request)
        assert response.status == status
