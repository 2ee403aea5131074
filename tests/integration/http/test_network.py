"""HTTP calls over real sockets: what is sent, kept, refused, and certain about a request without a response."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cml.client.tls import PinnedCertificate, make_tls_context
from lcm.cml.simulator.listener import make_server_identity
from lcm.core.authorization import NotAuthorizedError
from lcm.http.connection import MAX_HEADER_BYTES
from lcm.http.network import NetworkTransport
from lcm.http.transport import (
    ConnectionFailedError,
    ConnectionLostError,
    ConnectTimeoutError,
    HttpRequest,
    HttpTransportError,
    InvalidHttpError,
    ResponseTimeoutError,
)
from tests.support.network.scripted_server import OK, ScriptedServer, call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lcm.cml.simulator.listener import ServerIdentity


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _client_sides_of_tls() -> list[weakref.ref[ssl.SSLObject]]:
    objects = [each for each in gc.get_objects() if isinstance(each, ssl.SSLObject) and not each.server_side]
    return [weakref.ref(each) for each in objects]


async def test_a_request_is_sent_as_given(http: NetworkTransport) -> None:
    async with ScriptedServer() as server:
        assert await call(http, f"{server.url}/a%20b?c=d", "POST", body=b"{}") == (200, b"ok")
        host = server.url.removeprefix("http://").encode()
        lines = [b"POST /a%20b?c=d HTTP/1.1", b"Host: " + host, b"Accept: x/y", b"Content-Length: 2", b"", b"{}"]
        assert server.requests == [b"\r\n".join(lines)]
        assert await call(http, server.url, "PUT") == (200, b"ok")
        assert b"Content-Length: 0\r\n" in server.requests[1], "a server must not wait for a body"


async def test_connections_are_kept_and_shared_by_requests(http: NetworkTransport) -> None:
    async with ScriptedServer() as server:
        for _ in range(3):
            assert await call(http, server.url) == (200, b"ok")
        assert server.connections == 1
        await asyncio.gather(*(call(http, server.url) for _ in range(3)))
        assert 1 < server.connections <= 3
        assert http.idle_count == server.connections


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with aclosing(NetworkTransport(idle_seconds=0.0, max_idle=2)) as http, ScriptedServer() as server:
        await call(http, server.url)
        await server.wait_until_open(0)
        assert await call(http, server.url) == (200, b"ok")
        assert server.connections == 2


async def test_a_connection_with_large_buffers_is_not_kept() -> None:
    async with (
        aclosing(NetworkTransport(idle_seconds=60.0, max_idle=2, max_kept_response=1000)) as http,
        ScriptedServer([OK, b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + 2000 * b"x", OK]) as server,
    ):
        await call(http, server.url)
        assert (await call(http, server.url))[1] == 2000 * b"x"
        await server.wait_until_open(0)
        await call(http, server.url)
        assert (server.connections, http.idle_count) == (2, 1)


async def test_a_connection_that_the_server_closes_is_not_used_again(http: NetworkTransport) -> None:
    async with ScriptedServer([OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK]) as server:
        await call(http, server.url)
        assert http.idle_count == 0
        assert await call(http, server.url, "PUT") == (200, b"ok")


async def test_a_request_for_its_own_connection_closes_it(http: NetworkTransport) -> None:
    async with ScriptedServer() as server:
        await call(http, server.url, keep=False)
        assert b"Connection: close\r\n" in server.requests[0]
        await server.wait_until_open(0)
        assert http.idle_count == 0


async def test_connections_of_a_discarded_context_are_closed(http: NetworkTransport, identity: ServerIdentity) -> None:
    context = make_tls_context(PinnedCertificate(identity.pem))
    async with ScriptedServer(tls=identity.context) as server:
        await call(http, server.url, tls=context)
        under_way = await http.send(HttpRequest("GET", server.url, {}, tls=context))
        other = make_tls_context(PinnedCertificate(identity.pem))
        await call(http, server.url, tls=other)
        http.discard(context)
        assert b"".join([chunk async for chunk in under_way.chunks()]) == b"ok"
        await under_way.aclose()
        await server.wait_until_open(1)
        await call(http, server.url, tls=other)
        assert server.connections == 2


@pytest.mark.parametrize("response", [OK, None], ids=["answered", "broken"])
@pytest.mark.usefixtures("no_garbage_collector")
async def test_the_memory_of_a_closed_connection_is_free_at_once(
    http: NetworkTransport, identity: ServerIdentity, response: bytes | None
) -> None:
    """Without help of the garbage collector, which leaves thousands of them."""
    context = make_tls_context(PinnedCertificate(identity.pem))
    async with ScriptedServer([response], tls=identity.context) as server:
        under_way = asyncio.create_task(call(http, server.url, tls=context, keep=False))
        await asyncio.wait([under_way])
        assert isinstance(under_way.exception(), ConnectionLostError) == (response is None)
        del under_way
        await server.wait_until_open(0)
        async with asyncio.timeout(60):
            while any(each() is not None for each in _client_sides_of_tls()):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_no_request_is_ever_sent_twice(http: NetworkTransport, method: str) -> None:
    """A kept connection breaks after the request was sent: only its caller knows whether it may be repeated."""
    async with ScriptedServer([OK, None]) as server:
        await call(http, server.url)
        with pytest.raises(ConnectionLostError):
            await call(http, server.url, method)
        assert len(server.requests) == 2


async def test_a_refused_connection_means_that_nothing_was_sent(http: NetworkTransport) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionFailedError):
            await call(http, f"http://127.0.0.1:{unused.getsockname()[1]}", "POST")


async def test_a_connection_that_does_not_come_about_in_time_means_that_nothing_was_sent(
    http: NetworkTransport, identity: ServerIdentity
) -> None:
    """The server accepts connections, but never responds to a handshake."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ConnectTimeoutError):
            await call(
                http,
                f"https://127.0.0.1:{silent.getsockname()[1]}",
                "POST",
                tls=make_tls_context(PinnedCertificate(identity.pem)),
                connect_seconds=0.05,
            )


async def test_another_certificate_is_rejected_before_a_byte_is_sent(
    http: NetworkTransport, identity: ServerIdentity
) -> None:
    other = make_tls_context(PinnedCertificate(make_server_identity().pem))
    async with ScriptedServer(tls=identity.context) as server:
        with pytest.raises(ConnectionFailedError) as caught:
            await call(http, server.url, "POST", body=b"secret", tls=other)
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert not server.requests


@pytest.mark.parametrize("kept", [False, True])
async def test_the_last_check_is_made_when_the_connection_exists(http: NetworkTransport, *, kept: bool) -> None:
    def refuse() -> None:
        raise NotAuthorizedError("no longer leader")

    async with ScriptedServer() as server:
        if kept:
            await call(http, server.url)
        with pytest.raises(NotAuthorizedError):
            await call(http, server.url, "PUT", before_send=refuse)
        await server.wait_until_open(0)
        assert server.connections == 1
        assert len(server.requests) == int(kept)


async def test_silence_after_the_request_times_out_and_closes(http: NetworkTransport) -> None:
    async with ScriptedServer([b""]) as server:
        with pytest.raises(ResponseTimeoutError):
            await call(http, server.url, "POST", read_seconds=0.05)
        await server.wait_until_open(0)


async def test_a_caller_that_gives_up_closes_the_connection(http: NetworkTransport) -> None:
    async with ScriptedServer([b""]) as server:
        waiting = asyncio.create_task(call(http, server.url))
        await server.wait_until_open(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.wait_until_open(0)


async def test_an_unread_response_closes_its_connection(http: NetworkTransport) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    async with ScriptedServer([head + b"x" * 10]) as server:
        response = await http.send(HttpRequest("GET", server.url, {}))
        assert response.header("CONTENT-length") == "1000"
        await response.aclose()
        await server.wait_until_open(0)


LONG = b"x" * (16 * MAX_HEADER_BYTES)


@pytest.mark.parametrize(
    ("received", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nab", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nab", ConnectionLostError),
        (b"SSH-2.0-OpenSSH_9\r\n", InvalidHttpError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", InvalidHttpError),
        (b"HTTP/1.1 200 OK\r\nA: " + LONG, InvalidHttpError),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_HEADER_BYTES // 20), InvalidHttpError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: " + LONG, InvalidHttpError),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", InvalidHttpError),
    ],
    ids=[
        "cut body",
        "cut chunk",
        "not HTTP",
        "two lengths",
        "long header",
        "endless interim",
        "long trailer",
        "upgrade",
    ],
)
async def test_responses_that_are_cut_or_invalid(
    http: NetworkTransport, received: bytes, kind: type[HttpTransportError]
) -> None:
    async with ScriptedServer([received]) as server:
        with pytest.raises(kind):
            await call(http, server.url)
        await server.wait_until_open(0)


@pytest.mark.parametrize(
    ("received", "body"),
    [
        (b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"abc"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nT: u\r\n\r\n", b"x"),
    ],
    ids=["interim", "chunked", "until the end", "HTTP/1.0", "no content", "not modified", "extension and trailer"],
)
async def test_responses_of_all_shapes(http: NetworkTransport, received: bytes, body: bytes) -> None:
    async with ScriptedServer([received]) as server:
        assert (await call(http, server.url))[1] == body


@pytest.mark.parametrize(
    "first",
    [
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        OK + b"evil",
        OK + b"H",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil",
    ],
    ids=["response", "garbage", "beginning", "body where none may be"],
)
async def test_data_that_nobody_requested_is_not_the_next_response(http: NetworkTransport, first: bytes) -> None:
    async with ScriptedServer([first, OK]) as server:
        assert (await call(http, server.url))[0] in (200, 204)
        await server.wait_until_open(0)
        assert await call(http, server.url) == (200, b"ok")
        assert server.connections == 2


async def test_a_slow_reader_holds_the_server_back(http: NetworkTransport) -> None:
    size = 32 * 1024 * 1024
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    async with ScriptedServer([head + b"x" * size]) as server:
        response = await http.send(HttpRequest("GET", server.url, {}))
        received, most = 0, 0
        async for chunk in response.chunks():
            received += len(chunk)
            most = max(most, response.buffered)
            await asyncio.sleep(0)
        assert received == size
        assert most < 2 * 1024 * 1024


async def test_a_line_break_in_a_header_is_never_sent(http: NetworkTransport) -> None:
    async with ScriptedServer() as server:
        with pytest.raises(ValueError, match="line break"):
            await http.send(HttpRequest("GET", server.url, {"A": "b\r\nC: d"}))
        with pytest.raises(ConnectionFailedError, match="not encoded"):
            await http.send(HttpRequest("GET", f"{server.url}/a b", {}))
        assert server.connections == 0


async def test_a_closed_transport_sends_nothing(http: NetworkTransport) -> None:
    async with ScriptedServer() as server:
        await call(http, server.url)
        await http.aclose()
        await server.wait_until_open(0)
        with pytest.raises(RuntimeError, match="closed"):
            await call(http, server.url)


async def test_with_a_resolver_connections_go_to_its_addresses_only() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if host == "hooks.test" else []

    async with (
        aclosing(NetworkTransport(idle_seconds=30.0, max_idle=2, resolve=resolve)) as http,
        ScriptedServer() as server,
    ):
        assert await call(http, f"http://hooks.test:{server.port}/x", "POST", body=b"{}") == (200, b"ok")
        assert f"Host: hooks.test:{server.port}".encode() in server.requests[0]
        with pytest.raises(ConnectionFailedError, match="has no address"):
            await call(http, f"http://localhost:{server.port}/")
        assert asked == ["hooks.test", "localhost"]


async def test_an_address_that_is_silent_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def silent_at_first(factory: Any, host: str, port: int, **options: Any) -> Any:
        if host == "192.0.2.1":  # nobody has this address
            await asyncio.Event().wait()
        return await connect(factory, host, port, **options)

    async def resolve(host: str, port: int) -> list[str]:
        return ["192.0.2.1", "127.0.0.1"]

    monkeypatch.setattr(loop, "create_connection", silent_at_first)
    async with (
        aclosing(NetworkTransport(idle_seconds=30.0, max_idle=2, resolve=resolve)) as http,
        ScriptedServer() as server,
    ):
        assert await call(http, f"http://hooks.test:{server.port}/") == (200, b"ok")


async def test_a_resolver_that_denies_a_host_leaves_the_request_unsent() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError(f"{host} is not allowed")

    async with (
        aclosing(NetworkTransport(idle_seconds=30.0, max_idle=2, resolve=resolve)) as http,
        ScriptedServer() as server,
    ):
        with pytest.raises(ConnectionFailedError, match="is not allowed"):
            await call(http, server.url)
        assert server.connections == 0
