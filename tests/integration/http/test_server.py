"""The HTTP server on real sockets: when it listens, and what it refuses to receive."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from lcm.http.protocol import MAX_HEADER_BYTES, HttpProtocol
from lcm.http.server import HttpServer, PortInUseError, make_process_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def make_server(port: int = 0) -> HttpServer:
    return HttpServer(make_process_app([], {"version": "0"}), "127.0.0.1", port, port_setting="PORT")


def port_of(server: HttpServer) -> int:
    return int(server.url.rsplit(":", 1)[1])


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    made = make_server()
    await made.start()
    yield made
    await made.stop()


async def exchange(server: HttpServer, *pieces: bytes) -> bytes:
    """Everything the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_started_server_listens() -> None:
    """No turn of the event loop lies between the start and this connection."""
    server = make_server()
    await server.start()
    try:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port_of(server))) == 0
    finally:
        await server.stop()


async def test_a_port_on_which_another_server_listens_is_reported(server: HttpServer) -> None:
    with pytest.raises(PortInUseError, match="set PORT or BIND_HOST"):
        await make_server(port_of(server)).start()


async def test_a_server_that_cannot_serve_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise OSError("no more file descriptors")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", broken)
    server = make_server()
    with pytest.raises(OSError, match="no more file descriptors"):
        await server.start()
    await server.stop()


async def test_headers_without_an_end_are_not_collected(server: HttpServer) -> None:
    piece = b"x" * 8192
    pieces = [b"GET /health HTTP/1.1\r\nHost: a\r\nX-Long: ", *[piece] * (MAX_HEADER_BYTES // len(piece) + 1)]
    response = await exchange(server, *pieces)
    assert response.startswith(b"HTTP/1.1 431 ")
    assert response.endswith(b"The headers of the request are too large.")


async def test_headers_below_the_limit_are_read(server: HttpServer) -> None:
    value = b"x" * (MAX_HEADER_BYTES // 2)
    request = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Long: "
    response = await exchange(server, request, value, b"\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 ")


async def test_each_request_of_a_connection_has_a_limit_of_its_own(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    try:
        for _ in range(3):
            writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * (MAX_HEADER_BYTES // 2))
            writer.write(b"\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
    finally:
        writer.close()
        await writer.wait_closed()


async def test_connections_send_without_delay(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short response is not delayed until the client has acknowledged its first part.

    Checks the socket option: the delay itself depends on the client's kernel.
    """
    at_once: list[bool] = []
    made = HttpProtocol.connection_made

    def noted(self: HttpProtocol, transport: asyncio.Transport) -> None:
        accepted = transport.get_extra_info("socket")
        at_once.append(bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        made(self, transport)

    monkeypatch.setattr(HttpProtocol, "connection_made", noted)
    request = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert (await exchange(server, request)).startswith(b"HTTP/1.1 200 ")
    assert at_once == [True]


async def test_headers_that_do_not_arrive_in_time_are_given_up(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcm.http.protocol.HEADER_SECONDS", 0.2)
    assert await exchange(server) == b"", "a silent connection is closed"
    response = b""
    while not response:  # on a busy host, the time may be over before the first byte is sent
        response = await exchange(server, b"GET /health HTTP/1.1\r\nHost: a\r\n")
    assert response.startswith(b"HTTP/1.1 408 ")


async def test_beyond_the_limit_the_connection_that_waits_longest_makes_room(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcm.http.protocol.max_connections", lambda: 3)
    waiting = [await asyncio.open_connection("127.0.0.1", port_of(server)) for _ in range(3)]
    response = await exchange(server, b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 "), "others are served"
    with contextlib.suppress(ConnectionError):
        assert await waiting[0][0].read() == b"", "the oldest was closed"
    for _, writer in waiting:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
