"""HTTP requests to CML servers that are not trusted: bounded in time and size, verified, never redirected."""

from __future__ import annotations

import asyncio
import ipaddress
import json as json_format
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

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
from lcm.http.network import NetworkTransport
from lcm.http.transport import (
    ConnectionFailedError,
    ConnectionLostError,
    ConnectTimeoutError,
    HttpRequest,
    HttpTransportError,
    ProxyError,
    ResponseTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.cml.client.bodies import BodyBuffer
    from lcm.http.proxy import ProxyAddress
    from lcm.http.transport import HttpTransport

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
IDLE_SECONDS = 600.0
"""Longer than any polling interval: a server is asked again over the connection it has, unless it closes that."""
MAX_IDLE_CONNECTIONS = 3000
"""A kept TLS connection takes about 50 KiB of memory on uvloop."""
MAX_KEPT_RESPONSE_BYTES = 32 * 1024
"""A connection that has received more at once is not kept: its buffers would stay as large for as long as it is."""

BaseUrlResolver = Callable[[str], str]


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


def cml_network(proxy: ProxyAddress | None = None, *, max_idle: int = MAX_IDLE_CONNECTIONS) -> NetworkTransport:
    """Connections to many servers, each kept until its next request as far as memory allows."""
    return NetworkTransport(
        idle_seconds=IDLE_SECONDS, max_idle=max_idle, max_kept_response=MAX_KEPT_RESPONSE_BYTES, proxy=proxy
    )


@dataclass(frozen=True, slots=True)
class _Call:
    """One request as the caller wants it, and the bounds of its response."""

    address: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    seconds: float
    make_buffer: Callable[[], BodyBuffer]
    mutating: bool

    @property
    def is_secret(self) -> bool:
        """Whether it may go only to a server whose certificate is known."""
        return "authorization" in self.headers or self.method != "GET"


class CMLTransport:
    """Sends requests to any number of servers. Servers with the same trust policy share a TLS context.

    `base_url_of` returns the base URL of an address and may raise OSError for an unreachable one. `http` replaces the
    network, and `open_tls` the connection to a server whose certificate is not known yet.
    """

    def __init__(
        self,
        trust: TrustPolicy | Callable[[str], TrustPolicy],
        *,
        base_url_of: BaseUrlResolver = https_base_url,
        http: HttpTransport | None = None,
        open_tls: TlsConnector = open_tls_connection,
        connect_seconds: float = CONNECT_TIMEOUT,
        read_seconds: float = READ_TIMEOUT,
    ) -> None:
        self._trust = trust
        self._base_url_of = base_url_of
        self._http = http or cml_network()
        self._open_tls = open_tls
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds
        self._contexts: dict[ResolvedTrust, ssl.SSLContext] = {}
        self._users: dict[str, ResolvedTrust] = {}
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
        url = self._base(address) + path + (f"?{urlencode(query)}" if query else "")
        headers, body = _encode(json, text, token)
        seconds = self._read_seconds if timeout is None else timeout
        collect = make_buffer or (lambda: WholeBody(max_bytes))
        call = _Call(address, method, url, headers, body, seconds, collect, mutating)
        deadline = seconds + self._connect_seconds
        try:
            async with asyncio.timeout(deadline):
                response, buffer, certificate = await self._send_trusted(call)
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
        context = self._contexts.pop(resolved, None)
        if context is not None:
            self._http.discard(context)

    async def aclose(self) -> None:
        """Close all connections."""
        self._contexts.clear()
        await self._http.aclose()

    async def _send_trusted(self, call: _Call) -> tuple[RawResponse, BodyBuffer, str | None]:
        """Send a call to the server that the trust policy accepts; also returns the fingerprint of a pinned one."""
        trust = self._trust(call.address) if callable(self._trust) else self._trust
        certificate: str | None = None
        if isinstance(trust, PinPerServer):
            pem = await self._certificate(call.address, call.url, secret=call.is_secret)
            trust, certificate = PinnedCertificate(pem), fingerprint(pem)
        lasting = certificate in (None, self._pins.get(call.address))
        if lasting:
            self._users[call.address] = trust
        context = self._context(call.address, trust) if lasting else make_tls_context(trust)
        if call.mutating:
            check_may_send()
        request = HttpRequest(
            call.method,
            call.url,
            call.headers,
            call.body,
            connect_seconds=self._connect_seconds,
            read_seconds=call.seconds,
            tls=context,
            before_send=check_may_send if call.mutating else None,
            keep=lasting,
        )
        response, buffer = await self._send(request, call.address, call.make_buffer)
        return response, buffer, certificate

    def _base(self, address: str) -> str:
        if not is_address(address):
            raise CMLInvalidRequestError(printable_text(address), "this is not a valid host address")
        try:
            return self._base_url_of(address)
        except OSError as error:
            raise CMLNotReadyError(address, f"no route to it ({error})") from error

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
        target = urlsplit(url)
        port = target.port or _HTTPS_PORT
        return await fetch_certificate(address, target.hostname or "", port, self._connect_seconds, self._open_tls)

    async def _report_changed_certificate(self, address: str, url: str) -> None:
        """After a failed handshake: if the server presents another certificate by now, raise the error that says so."""
        if address in self._pinned_certificates:
            self._drop_certificate(address)
            await self._certificate(address, url, secret=False)

    async def _send(
        self, request: HttpRequest, address: str, make_buffer: Callable[[], BodyBuffer]
    ) -> tuple[RawResponse, BodyBuffer]:
        try:
            return await self._receive(request, address, make_buffer())
        except HttpTransportError as error:
            failure, broken = _translate_error(error, address, request.method)
            if not broken or request.method != "GET":
                raise failure from error
        try:
            return await self._receive(request, address, make_buffer())
        except HttpTransportError as error:
            raise _translate_error(error, address, request.method)[0] from error

    async def _receive(self, request: HttpRequest, address: str, buffer: BodyBuffer) -> tuple[RawResponse, BodyBuffer]:
        response = await self._http.send(request)
        try:
            if (response.header("content-encoding") or "identity") != "identity":
                raise CMLProtocolError(address, "the response is compressed, which was not requested")
            try:
                async for chunk in response.chunks():
                    buffer.add(chunk)
            except TooLongError as error:
                raise CMLProtocolError(address, str(error)) from None
            kind, location = response.header("content-type") or "", response.header("location") or ""
            return RawResponse(response.status, kind, buffer.first_bytes(), location), buffer
        finally:
            await response.aclose()


def _encode(json: Any, text: str | None, token: str | None) -> tuple[dict[str, str], bytes | None]:
    """The headers and the body of a request."""
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "lcm"}
    body: bytes | None = None
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if text is not None:
        headers["content-type"] = "text/plain; charset=utf-8"
        body = text.encode()
    elif json is not None:
        headers["content-type"] = "application/json"
        body = json_format.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return headers, body


def _translate_error(error: HttpTransportError, address: str, method: str) -> tuple[CMLError, bool]:
    """The matching error of ours, and whether the connection broke during the request."""
    if isinstance(error, ConnectTimeoutError):
        return CMLNotReadyError(address, "the connection timed out"), False
    if isinstance(error, ProxyError):
        return CMLNotReadyError(address, f"the proxy cannot connect to it ({printable_text(str(error))})"), False
    if isinstance(error, ConnectionFailedError):
        tls_error = _find_tls_error(error)
        if tls_error is not None:
            return CMLTlsError(address, f"certificate or TLS handshake rejected: {tls_error}"), False
        return CMLNotReadyError(address, f"cannot connect ({error})"), False
    if isinstance(error, ResponseTimeoutError):
        return _lost_response_error(address, method, "the response timed out"), False
    if isinstance(error, ConnectionLostError):
        return _lost_response_error(address, method, "the connection broke"), True
    return CMLProtocolError(address, f"unexpected HTTP behavior ({printable_text(str(error))})"), False


def _lost_response_error(address: str, method: str, cause: str) -> CMLNotReadyError:
    if method == "GET":
        return CMLNotReadyError(address, cause)
    return CMLOutcomeUnknownError(address, f"{cause}; the request may have taken effect")


def _find_tls_error(error: BaseException) -> ssl.SSLError | None:
    """The TLS error behind an error. A server that disconnects during the handshake is starting, not wrong."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return None if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) else cause
        cause = cause.__cause__ or cause.__context__
    return None
