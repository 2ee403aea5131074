"""Connections of HTTP calls over real sockets: which are kept, how servers prove who they are, and proxies."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from lcm.http.network import NetworkTransport
from lcm.http.proxy import ProxyAddress
from lcm.http.transport import ConnectionFailedError, ConnectionLostError, ConnectTimeoutError, ProxyError
from tests.support.network.connect_proxy import ConnectProxy
from tests.support.network.scripted_server import OK, ScriptedServer, call
from tests.support.servers.certificates import CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.cml.simulator.listener import ServerIdentity

HEAD_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


async def test_connections_that_wait_are_not_pushed_out_by_later_ones() -> None:
    async with aclosing(NetworkTransport(idle_seconds=60.0, max_idle=2)) as http:
        servers = [ScriptedServer() for _ in range(3)]
        async with servers[0], servers[1], servers[2]:
            for _ in range(2):
                for server in servers:
                    await call(http, server.url)
            await servers[2].wait_until_open(0)
            assert [server.connections for server in servers] == [1, 1, 2]
            assert http.idle_count == 2


async def test_responses_that_end_together_keep_no_more_connections_than_allowed() -> None:
    async with (
        aclosing(NetworkTransport(idle_seconds=60.0, max_idle=2)) as http,
        ScriptedServer(together=12) as server,
    ):
        await asyncio.gather(*(call(http, server.url) for _ in range(12)))
        assert http.idle_count == 2
        await server.wait_until_open(2)


async def test_a_write_does_not_use_a_connection_that_its_server_may_be_closing() -> None:
    http = NetworkTransport(idle_seconds=60.0, max_idle=10, write_idle_seconds=0.0)
    async with aclosing(http), ScriptedServer() as server:
        await call(http, server.url)
        await call(http, server.url, "HEAD")
        assert server.connections == 1
        await call(http, server.url, "PUT")
        assert server.connections == 2


async def test_a_write_uses_a_connection_that_was_just_used(http: NetworkTransport) -> None:
    async with ScriptedServer() as server:
        for method in ("GET", "POST", "DELETE"):
            await call(http, server.url, method)
        assert server.connections == 1


async def test_the_response_to_head_has_no_body(http: NetworkTransport) -> None:
    async with ScriptedServer([HEAD_OK, OK]) as server:
        assert await call(http, server.url, "HEAD") == (200, b"")
        assert await call(http, server.url) == (200, b"ok")
        assert server.connections == 1


async def test_a_body_after_head_is_not_the_next_response(http: NetworkTransport) -> None:
    async with ScriptedServer([HEAD_OK + b"x", OK]) as server:
        assert await call(http, server.url, "HEAD") == (200, b"")
        await server.wait_until_open(0)
        assert await call(http, server.url) == (200, b"ok")


@pytest.mark.parametrize(
    "url",
    ["http://a..b/", "http://[::1/", "http://host:99999/", "http://ho st/", "ftp://host/", "http:///x", "http://é/"],
)
async def test_a_url_without_a_server_means_that_nothing_was_sent(http: NetworkTransport, url: str) -> None:
    with pytest.raises(ConnectionFailedError):
        await call(http, url, "POST")


async def test_a_handshake_that_is_given_up_closes_its_socket(http: NetworkTransport, identity: ServerIdentity) -> None:
    closed = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()  # to the end
        except OSError:
            pass
        finally:
            closed.set()
            writer.transport.abort()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectTimeoutError):
            await call(http, url, connect_seconds=0.05)
        await asyncio.wait_for(closed.wait(), 60)


async def test_requests_under_way_fail_when_the_transport_is_closed(http: NetworkTransport) -> None:
    async with ScriptedServer([b""]) as server:
        waiting = asyncio.create_task(call(http, server.url, "PUT"))
        await server.wait_until_open(1)
        await http.aclose()
        with pytest.raises((ConnectionLostError, ConnectionFailedError)):
            await waiting
        await server.wait_until_open(0)


def server_context(folder: Path, *hosts: str) -> tuple[ssl.SSLContext, ssl.SSLContext, list[str | None]]:
    """A server certificate for hosts, a client context that trusts its CA, and the names that clients ask for."""
    authority = CertificateAuthority(folder, "authority")
    issued = authority.issue("server", hosts=hosts)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(issued.cert_file, issued.key_file)
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    return server, ssl.create_default_context(cafile=str(authority.ca_file)), names


async def test_a_certificate_for_another_host_is_rejected(http: NetworkTransport, tmp_path: Path) -> None:
    context, trust, _ = server_context(tmp_path, "other.test")
    async with ScriptedServer(tls=context) as server:
        with pytest.raises(ConnectionFailedError) as caught:
            await call(http, server.url, "POST", tls=trust)
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert not server.requests


@pytest.mark.parametrize("host", ["cml.test", "[fd00::17]"])
async def test_a_server_behind_a_proxy_proves_its_own_name(tmp_path: Path, host: str) -> None:
    context, trust, names = server_context(tmp_path, host.strip("[]"))
    async with ScriptedServer(tls=context) as server, ConnectProxy({}) as proxy:
        proxy.routes = {f"{name}:8443": ("127.0.0.1", server.port) for name in (host, "other.test")}
        http = NetworkTransport(idle_seconds=60.0, max_idle=10, proxy=ProxyAddress(proxy.url))
        async with aclosing(http):
            assert await call(http, f"https://{host}:8443/a", tls=trust) == (200, b"ok")
            assert await call(http, f"https://{host}:8443/b", tls=trust) == (200, b"ok")
            assert proxy.targets == [f"{host}:8443"]
            assert f"Host: {host}:8443\r\n".encode() in server.requests[0]
            assert names == ([None] if "[" in host else [host])
            with pytest.raises(ConnectionFailedError):
                await call(http, "https://other.test:8443/", tls=trust)
            assert len(server.requests) == 2
            await server.wait_until_open(1)
        await server.wait_until_open(0)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnope", "403 Forbidden"),
        (b"HTTP/1.1 200 OK\r\n\r\nunrequested", "not requested"),
        (b"hello\r\n\r\n", "rejected"),
        (b"x" * 20_000, "not that of an HTTP proxy"),
        (None, "closed"),
    ],
)
async def test_a_proxy_that_does_not_open_a_tunnel(response: bytes | None, message: str) -> None:
    async with ScriptedServer([response]) as proxy:
        http = NetworkTransport(idle_seconds=60.0, max_idle=10, proxy=ProxyAddress(proxy.url))
        async with aclosing(http):
            with pytest.raises(ProxyError, match=message):
                await call(http, "http://cml.test/", "POST")
            await proxy.wait_until_open(0)
