"""HTTP requests to CML servers that are not trusted: bounded in time and size, verified, never redirected."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import httpx

from lcm.cml.client.bodies import TooLongError, WholeBody
from lcm.cml.client.responses import CMLResponse, RawResponse, check_response, parse_response, printable_text
from lcm.cml.client.tls import (
    PinnedCertificate,
    PinPerServer,
    ResolvedTrust,
    TlsConnector,
    TrustPolicy,
    fetch_certificate,
    fingerprint,
    make_tls_context,
    open_tls_connection,
)
from lcm.cml.errors import (
    CMLCertificateChangedError,
    CMLError,
    CMLInvalidRequestError,
    CMLNotReadyError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
    CMLTlsError,
)
from lcm.core.authorization import check_may_send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from lcm.cml.client.bodies import BodyBuffer

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
DEREGISTER_TIMEOUT = 90.0
IMPORT_TIMEOUT = 60.0
MAX_RESPONSE_BYTES = 8 * 1024 * 1024
MAX_SMALL_RESPONSE_BYTES = 64 * 1024

_HTTPS_PORT = 443
_MAX_PORT = 65_535
_HOSTNAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_PORT = re.compile(r"\d{1,5}")
POOL_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=20.0)
UNUSED_POOL_SECONDS = 60.0
_SHARED_POOL_COUNT = 32
"""A pool scans all its connections for each request, so servers that could share one pool are spread over several."""

BaseUrlResolver = Callable[[str], str]
HttpTransportFactory = Callable[[ssl.SSLContext], httpx.AsyncBaseTransport]


def is_address(text: str) -> bool:
    """Whether this is a valid address: a host name or IPv4 address with an optional port, or an IPv6 address."""
    if ":" in text.partition(":")[2]:
        try:
            return ipaddress.ip_address(text).version == 6
        except ValueError:
            return False
    name, colon, port = text.partition(":")
    good_port = not colon or (_PORT.fullmatch(port) is not None and 0 < int(port) <= _MAX_PORT)
    return good_port and _HOSTNAME.fullmatch(name) is not None


def https_base_url(address: str) -> str:
    """The default base URL of a worker: HTTPS at its address."""
    try:
        is_v6 = ipaddress.ip_address(address).version == 6
    except ValueError:
        is_v6 = False
    return f"https://[{address}]" if is_v6 else f"https://{address}"


def _network_transport(context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    return httpx.AsyncHTTPTransport(verify=context, limits=POOL_LIMITS, trust_env=False)


class CMLTransport:
    """Sends requests to any number of servers. Servers with the same trust policy share pools and TLS contexts.

    `base_url_of` returns the base URL of an address and may raise OSError for an unreachable one. `make_http_transport`
    replaces the network, and `open_tls` the connection to a server whose certificate is not known yet.
    """

    def __init__(
        self,
        trust: TrustPolicy | Callable[[str], TrustPolicy],
        *,
        base_url_of: BaseUrlResolver = https_base_url,
        make_http_transport: HttpTransportFactory = _network_transport,
        open_tls: TlsConnector = open_tls_connection,
        connect_seconds: float = CONNECT_TIMEOUT,
        read_seconds: float = READ_TIMEOUT,
    ) -> None:
        self._trust = trust
        self._base_url_of = base_url_of
        self._make_http_transport = make_http_transport
        self._open_tls = open_tls
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds
        self._contexts: dict[ResolvedTrust, ssl.SSLContext] = {}
        self._clients: dict[tuple[ResolvedTrust, int], httpx.AsyncClient] = {}
        self._users: dict[str, ResolvedTrust] = {}
        self._retired: list[httpx.AsyncClient] = []
        self._in_use: Counter[httpx.AsyncClient] = Counter()
        self._last_used: dict[httpx.AsyncClient, float] = {}
        self._searched_at = -math.inf
        self._pins: dict[str, str] = {}  # fingerprints of the certificates that are accepted, by address
        self._pinned_certificates: dict[str, str] = {}  # the certificates themselves (PEM), once they were presented

    async def exchange(
        self,
        address: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        json: Any = None,
        text: str | None = None,
        token: str | None = None,
        timeout: float | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
        make_buffer: Callable[[], BodyBuffer] | None = None,
        mutating: bool = False,
    ) -> CMLResponse:
        """Send a request and return its response, within `timeout` seconds and of at most `max_bytes` bytes.

        With `make_buffer` such a buffer collects the content of the response, which is not parsed here.

        A GET is sent once more if its connection broke. A mutating request is sent only while it is authorized.
        """
        url = self._base(address) + path
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        if text is not None:
            headers["content-type"] = "text/plain; charset=utf-8"
        self._retire_unused()
        await self._close_retired()
        limit = self._read_seconds if timeout is None else timeout
        content = None if text is None else text.encode()
        deadline = limit + self._connect_seconds

        def whole_body() -> BodyBuffer:
            return WholeBody(max_bytes)

        trust = self._trust(address) if callable(self._trust) else self._trust
        certificate: str | None = None
        try:
            async with asyncio.timeout(deadline):
                if isinstance(trust, PinPerServer):
                    secret = token is not None or method != "GET"
                    pem = await self._certificate(address, url, secret=secret)
                    trust, certificate = PinnedCertificate(pem), fingerprint(pem)
                lasting = certificate in (None, self._pins.get(address))
                async with self._client(address, trust, lasting=lasting) as client:
                    request = client.build_request(
                        method,
                        url,
                        params=query,
                        json=json,
                        content=content,
                        headers=headers,
                        timeout=httpx.Timeout(limit, connect=self._connect_seconds),
                        extensions={"trace": _check_before_bytes} if mutating else {},
                    )
                    if mutating:
                        check_may_send()
                    response, buffer = await self._send(client, request, address, make_buffer or whole_body)
        except TimeoutError:
            raise _lost_response_error(address, method, f"no complete response within {deadline:g} s") from None
        except CMLTlsError:
            await self._report_changed_certificate(address, url)
            raise
        if make_buffer is not None:
            check_response(address, method, response)
            return CMLResponse(response.status, buffer, certificate)
        return replace(parse_response(address, method, response), certificate=certificate)

    def trust(self, address: str, certificate: str) -> None:
        """Accept only the certificate with this fingerprint at an address; the policy must be to pin."""
        self._pins[address] = certificate

    def forget(self, address: str) -> None:
        """Another server now uses this address: connections to the old one are closed before the next request."""
        self._pins.pop(address, None)
        self._drop_certificate(address)

    def _drop_certificate(self, address: str) -> None:
        self._pinned_certificates.pop(address, None)
        resolved = self._users.pop(address, None)
        if not isinstance(resolved, PinnedCertificate) or resolved in self._users.values():
            return
        self._contexts.pop(resolved, None)
        client = self._clients.pop((resolved, 0), None)
        if client is not None:
            self._retired.append(client)

    async def aclose(self) -> None:
        """Close all connections."""
        self._retired.extend(self._clients.values())
        self._clients.clear()
        self._contexts.clear()
        await self._close_retired()

    @contextmanager
    def _using(self, client: httpx.AsyncClient) -> Iterator[None]:
        self._in_use[client] += 1
        try:
            yield
        finally:
            self._in_use[client] -= 1
            self._last_used[client] = asyncio.get_running_loop().time()

    def _retire_unused(self) -> None:
        """Give up pools without recent requests.

        A pool notices that a server has closed a connection only at its next request. The server of a worker that was
        stopped or terminated gets none, so its connections would stay open here.
        """
        now = asyncio.get_running_loop().time()
        if now < self._searched_at + UNUSED_POOL_SECONDS / 2:
            return
        self._searched_at = now
        for pool, client in list(self._clients.items()):
            if not self._in_use[client] and self._last_used.get(client, now) <= now - UNUSED_POOL_SECONDS:
                self._retired.append(self._clients.pop(pool))
        open_clients = set(self._clients.values())
        self._in_use = Counter(
            {client: used for client, used in self._in_use.items() if used or client in open_clients}
        )
        self._last_used = {client: at for client, at in self._last_used.items() if client in open_clients}

    async def _close_retired(self) -> None:
        retired, self._retired = self._retired, []
        for client in retired:
            await client.aclose()

    def _base(self, address: str) -> str:
        if not is_address(address):
            raise CMLInvalidRequestError(printable_text(address), "this is not a valid host address")
        try:
            return self._base_url_of(address)
        except OSError as error:
            raise CMLNotReadyError(address, f"no route to it ({error})") from error

    @asynccontextmanager
    async def _client(self, address: str, trust: ResolvedTrust, *, lasting: bool) -> AsyncIterator[httpx.AsyncClient]:
        """A client with this trust: one that is shared and kept, or one for a single request."""
        if not lasting:
            async with self._make_client(make_tls_context(trust)) as client:
                yield client
            return
        pool = (trust, 0 if isinstance(trust, PinnedCertificate) else crc32(address.encode()) % _SHARED_POOL_COUNT)
        if pool not in self._clients:
            self._clients[pool] = self._make_client(self._context(address, trust))
        self._users[address] = trust
        client = self._clients[pool]
        with self._using(client):
            yield client

    def _make_client(self, context: ssl.SSLContext) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._make_http_transport(context), follow_redirects=False, trust_env=False)

    def _context(self, address: str, resolved: ResolvedTrust) -> ssl.SSLContext:
        if resolved not in self._contexts:
            try:
                self._contexts[resolved] = make_tls_context(resolved)
            except ValueError as error:
                raise CMLTlsError(address, str(error)) from error
        return self._contexts[resolved]

    async def _certificate(self, address: str, url: str, *, secret: bool) -> str:
        """The certificate (PEM) to accept: the pinned one, or before that whichever the server presents now."""
        pinned = self._pins.get(address)
        if pinned is None and secret:
            raise CMLNotReadyError(address, "its certificate is not pinned yet; that happens when it is ready")
        known = self._pinned_certificates.get(address)
        if pinned is not None and known is not None and fingerprint(known) == pinned:
            return known
        pem = await self._presented_certificate(address, url)
        if pinned is not None:
            if fingerprint(pem) != pinned:
                raise CMLCertificateChangedError(address, pinned, fingerprint(pem))
            self._pinned_certificates[address] = pem
        return pem

    async def _presented_certificate(self, address: str, url: str) -> str:
        target = httpx.URL(url)
        port = target.port or _HTTPS_PORT
        return await fetch_certificate(address, target.host, port, self._connect_seconds, self._open_tls)

    async def _report_changed_certificate(self, address: str, url: str) -> None:
        """After a failed handshake: if the server presents another certificate by now, raise the error that says so."""
        if address in self._pinned_certificates:
            self._drop_certificate(address)
            await self._certificate(address, url, secret=False)

    async def _send(
        self, client: httpx.AsyncClient, request: httpx.Request, address: str, make_buffer: Callable[[], BodyBuffer]
    ) -> tuple[RawResponse, BodyBuffer]:
        try:
            return await _receive(client, request, address, make_buffer())
        except httpx.HTTPError as error:
            failure, broken = _translate_error(error, address, request.method)
        if not broken or request.method != "GET":
            raise failure
        try:
            return await _receive(client, request, address, make_buffer())
        except httpx.HTTPError as error:
            raise _translate_error(error, address, request.method)[0] from error


async def _check_before_bytes(event: str, _: Mapping[str, Any]) -> None:
    """Called for each step of a request. The connection exists when its headers are sent, however long that took."""
    if event.endswith(("send_request_headers.started", "send_request_body.started")):
        check_may_send()


async def _receive(
    client: httpx.AsyncClient, request: httpx.Request, address: str, buffer: BodyBuffer
) -> tuple[RawResponse, BodyBuffer]:
    response = await client.send(request, stream=True)
    try:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise CMLProtocolError(address, "the response is compressed, which was not requested")
        try:
            async for chunk in response.aiter_bytes():
                buffer.add(chunk)
        except TooLongError as error:
            raise CMLProtocolError(address, str(error)) from None
        received = RawResponse(
            response.status_code,
            response.headers.get("content-type", ""),
            buffer.first_bytes(),
            response.headers.get("location", ""),
        )
        return received, buffer
    finally:
        await response.aclose()


def _translate_error(error: httpx.HTTPError, address: str, method: str) -> tuple[CMLError, bool]:
    """The matching error of ours, and whether the connection broke during the request."""
    tls_error = _find_tls_error(error) if isinstance(error, httpx.ConnectError) else None
    if tls_error is not None:
        return CMLTlsError(address, f"certificate or TLS handshake rejected: {tls_error}"), False
    if isinstance(error, httpx.ConnectTimeout):
        return CMLNotReadyError(address, "the connection timed out"), False
    if isinstance(error, httpx.ProxyError):
        return CMLNotReadyError(address, f"the proxy cannot connect to it ({printable_text(str(error))})"), False
    if isinstance(error, httpx.ConnectError | httpx.PoolTimeout):
        return CMLNotReadyError(address, f"cannot connect ({error})"), False
    if isinstance(error, httpx.TimeoutException):
        return _lost_response_error(address, method, "the response timed out"), False
    if isinstance(error, httpx.NetworkError) or _is_disconnect(error):
        return _lost_response_error(address, method, "the connection broke"), True
    return CMLProtocolError(address, f"unexpected HTTP behavior ({printable_text(str(error))})"), False


def _lost_response_error(address: str, method: str, cause: str) -> CMLNotReadyError:
    if method == "GET":
        return CMLNotReadyError(address, cause)
    return CMLOutcomeUnknownError(address, f"{cause}; the request may have taken effect")


def _is_disconnect(error: httpx.HTTPError) -> bool:
    # httpx raises one error for a closed connection and for invalid HTTP; only the message differs.
    return isinstance(error, httpx.RemoteProtocolError) and any(
        word in str(error) for word in ("disconnected", "peer closed")
    )


def _find_tls_error(error: BaseException) -> ssl.SSLError | None:
    """The TLS error behind an error. A server that disconnects during the handshake is starting, not wrong."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return None if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) else cause
        cause = cause.__cause__ or cause.__context__
    return None
