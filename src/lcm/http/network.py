"""HTTP/1.1 calls over the network. Connections are kept for the next request to the same server.

Whether a request was sent is never in doubt: errors before its first byte are `ConnectionFailedError`, all others come
after it. A connection that its server closes is dropped at once, not at the next request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lcm.http.connection import Connection
from lcm.http.proxy import MAX_PROXY_HEADER_BYTES, ProxyAddress, check_connect_response
from lcm.http.transport import ConnectionFailedError, ConnectTimeoutError, HttpRequest, ProxyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from lcm.http.connection import ConnectionResponse

    Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# A server that vanished without a word is noticed within a minute: 30 s idle, then three probes.
_TCP_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_FORBIDDEN_IN_HEADERS: Final = ("\r", "\n", "\0")
_READ_METHODS: Final = ("GET", "HEAD")
WRITE_IDLE_SECONDS: Final = 4.0  # shorter than the keep-alive of any common server


@dataclass(frozen=True, slots=True)
class _Url:
    is_https: bool
    host: str
    port: int
    authority: str  # as the Host header names it
    target: str


@dataclass(frozen=True, slots=True)
class _Origin:
    """Requests with the same origin may share a connection."""

    host: str
    port: int
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class _Idle:
    """Since when a connection waits, and what ends that."""

    since: float
    timer: asyncio.TimerHandle


class NetworkTransport:
    """Sends requests over kept or new connections, of which at most `max_idle` wait for at most `idle_seconds`.

    A request that changes something is sent only over a connection that has waited for less than
    `write_idle_seconds`: a server may close an older one at this very moment, and nobody would know whether the change
    was made.
    """

    def __init__(
        self,
        *,
        idle_seconds: float,
        max_idle: int,
        write_idle_seconds: float = WRITE_IDLE_SECONDS,
        max_kept_response: int | None = None,
        proxy: ProxyAddress | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        """With `resolve`, connections go only to the addresses that it returns; otherwise the system resolves names.

        A connection is closed after a response of more than `max_kept_response` bytes: the buffers of TLS grow with the
        longest response, and do not shrink.
        """
        self._idle_seconds = idle_seconds
        self._write_idle_seconds = write_idle_seconds
        self._max_idle = max_idle
        self._max_kept_response = max_kept_response
        self._proxy = proxy
        self._resolve = resolve
        self._open: dict[Connection, _Origin] = {}
        self._idle: dict[Connection, _Idle] = {}
        self._idle_by_origin: dict[_Origin, list[Connection]] = {}
        self._closed = False

    @property
    def idle_count(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    async def send(self, request: HttpRequest) -> ConnectionResponse:
        """Send a request and wait for the headers of its response."""
        if self._closed:
            raise RuntimeError("this transport is closed")
        url = _parse_url(request.url)
        data = _request_bytes(request, url)
        origin = _Origin(url.host, url.port, (request.tls or _default_tls()) if url.is_https else None)
        longest = self._idle_seconds if request.method in _READ_METHODS else self._write_idle_seconds
        connection = self._take_idle(origin, longest) or await self._connect(origin, request.connect_seconds)
        if not request.keep:
            connection.on_idle = Connection.abort
        try:
            if request.before_send is not None:
                request.before_send()
        except BaseException:
            connection.abort()
            raise
        response = connection.send(data, request.read_seconds, expects_body=request.method != "HEAD")
        try:
            await response.wait_for_headers()
        except BaseException:
            response.abandon()
            raise
        return response

    def discard(self, tls: ssl.SSLContext) -> None:
        """Close the idle connections of this context; those in use are closed after their response."""
        for connection, origin in list(self._open.items()):
            if origin.tls is tls:
                connection.on_idle = Connection.abort
                if connection in self._idle:
                    connection.abort()

    async def aclose(self) -> None:
        """Close all connections, and wait until they are closed."""
        self._closed = True
        for connection in list(self._open):
            connection.abort()
        if self._open:
            await asyncio.wait([connection.closed for connection in self._open])

    def _take_idle(self, origin: _Origin, longest_seconds: float) -> Connection | None:
        """The connection that was used last: the others may become old and be closed."""
        waiting = self._idle_by_origin.get(origin, ())
        earliest = asyncio.get_running_loop().time() - longest_seconds
        while waiting:
            connection = waiting[-1]
            if self._idle[connection].since <= earliest:
                return None
            self._drop_idle(connection)
            if connection.is_usable:
                return connection
        return None

    def _drop_idle(self, connection: Connection) -> None:
        idle = self._idle.pop(connection, None)
        if idle is None:
            return
        idle.timer.cancel()
        origin = self._open[connection]
        waiting = self._idle_by_origin[origin]
        waiting.remove(connection)
        if not waiting:
            del self._idle_by_origin[origin]

    def _keep(self, connection: Connection) -> None:
        """Keep a connection while there is room.

        Those that wait already stay: where more servers are polled in turn than connections fit, each new one would
        push out the one that is needed next, and none would ever be used again.
        """
        limit = self._max_kept_response
        too_large = limit is not None and connection.longest_response > limit
        if self._closed or too_large or len(self._idle) >= self._max_idle:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle[connection] = _Idle(loop.time(), loop.call_later(self._idle_seconds, connection.abort))
        self._idle_by_origin.setdefault(self._open[connection], []).append(connection)

    def _forget(self, connection: Connection) -> None:
        self._drop_idle(connection)
        self._open.pop(connection, None)

    async def _connect(self, origin: _Origin, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                connection = await (
                    self._connect_directly(origin, seconds) if self._proxy is None else self._tunnel(origin)
                )
        except TimeoutError:
            raise ConnectTimeoutError(f"no connection within {seconds:g} s") from None
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be encoded
            raise ConnectionFailedError(str(error) or type(error).__name__) from error
        if connection.closed.done():  # it ended before anyone listened
            raise ConnectionFailedError("the server closed the connection")
        if self._closed:
            connection.abort()
            raise ConnectionFailedError("this transport was closed")
        self._open[connection] = origin
        connection.on_idle, connection.on_closed = self._keep, self._forget
        _set_keepalive(connection)
        return connection

    async def _connect_directly(self, origin: _Origin, seconds: float) -> Connection:
        loop = asyncio.get_running_loop()
        if self._resolve is None:
            _, connection = await loop.create_connection(Connection, origin.host, origin.port, ssl=origin.tls)
            return connection
        # The name is resolved once and the connection goes to an address: a second answer of the name server counts
        # for nothing. The certificate must still be that of the name.
        name = origin.host if origin.tls is not None else None
        end = loop.time() + seconds
        addresses = await self._resolve(origin.host, origin.port)
        for left in range(len(addresses), 0, -1):
            # One that is silent, as IPv6 is where nobody routes it, leaves time for the others.
            share = (end - loop.time()) / left
            try:
                async with asyncio.timeout(share if left > 1 else None):
                    _, connection = await loop.create_connection(
                        Connection, addresses[-left], origin.port, ssl=origin.tls, server_hostname=name
                    )
            except OSError:
                if left == 1:
                    raise
            else:
                return connection
        raise OSError(f"{origin.host} has no address")

    async def _tunnel(self, origin: _Origin) -> Connection:
        assert self._proxy is not None
        loop = asyncio.get_running_loop()
        try:
            raw, tunnel = await loop.create_connection(_TunnelProtocol, self._proxy.host, self._proxy.port)
        except OSError as error:
            raise ProxyError(str(error)) from error
        try:
            raw.write(self._proxy.connect_request(origin.host, origin.port))
            try:
                check_connect_response(*await tunnel.response)
            except ConnectionError as error:
                raise ProxyError(str(error)) from error
            connection = Connection()
            if origin.tls is None:
                raw.set_protocol(connection)
                connection.connection_made(raw)
                return connection
            secured = await loop.start_tls(raw, connection, origin.tls, server_hostname=origin.host)
        except BaseException:
            raw.abort()
            raise
        assert secured is not None
        connection.connection_made(secured)
        return connection


class _TunnelProtocol(asyncio.Protocol):
    """Collects the response of a proxy to CONNECT: its head, and what came with it."""

    def __init__(self) -> None:
        self.response: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        if self.response.done():
            return
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if end:
            self.response.set_result((head, rest))
        elif len(self._received) > MAX_PROXY_HEADER_BYTES:
            self._fail("the response is not that of an HTTP proxy")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the proxy closed the connection")

    def _fail(self, why: str) -> None:
        if not self.response.done():
            self.response.set_exception(ConnectionError(why))
            self.response.exception()  # retrieved: the caller may have given up


def _set_keepalive(connection: Connection) -> None:
    found = connection.transport.get_extra_info("socket") if connection.transport is not None else None
    if found is None:
        return
    with suppress(OSError):  # a connection that just ended: its request will say so
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_KEEPALIVE:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@lru_cache(maxsize=4096)
def _parse_url(url: str) -> _Url:
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise ConnectionFailedError(f"the URL is not encoded: {url[:200]!r}")
    try:
        parsed = urlsplit(url)
        port = parsed.port or _DEFAULT_PORTS.get(parsed.scheme)
    except ValueError as error:
        raise ConnectionFailedError(f"not a URL: {error}") from None
    if parsed.scheme not in _DEFAULT_PORTS or not parsed.hostname or port is None:
        raise ConnectionFailedError(f"not an http or https URL: {url[:200]!r}")
    target = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
    return _Url(parsed.scheme == "https", parsed.hostname, port, parsed.netloc.rpartition("@")[2], target)


@lru_cache(maxsize=1)
def _default_tls() -> ssl.SSLContext:
    """The CAs of the system."""
    return ssl.create_default_context()


def make_tls(url: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """The TLS context that trusts only these CAs; None if there are none, or the URL needs none."""
    if ca_file is None or not url.lower().startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # that of OpenSSL is one too
        raise ValueError(f"{ca_file} is not a readable file of CA certificates as PEM: {error}") from None


def _request_bytes(request: HttpRequest, url: _Url) -> bytes:
    lines = [f"{request.method} {url.target} HTTP/1.1", f"Host: {url.authority}"]
    for name, value in request.headers.items():
        if any(character in name or character in value for character in _FORBIDDEN_IN_HEADERS):
            raise ValueError(f"header {name!r} contains a line break")
        lines.append(f"{name}: {value}")
    if not request.keep:
        lines.append("Connection: close")
    body = request.body
    if body is not None or request.method not in _READ_METHODS:
        lines.append(f"Content-Length: {len(body or b'')}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")
