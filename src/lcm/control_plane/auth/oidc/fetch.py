"""Calls to the identity provider: bounded in size and time, uncompressed, and never redirected to another host."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urljoin, urlsplit

from lcm.http.transport import HttpRequest, HttpTransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from lcm.http.transport import HttpResponse, HttpTransport

TIMEOUT = 5.0
TOKEN_TIMEOUT = 10.0  # longer: after a request for tokens that is given up, the provider may have replaced ours
MAX_BYTES = 256 * 1024
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200


class ProviderResponseError(Exception):
    """The identity provider gave no usable response; the message completes "it …". `status` is that of a refusal."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ProviderConnection:
    """The way to the provider. `tls` verifies it; None for the CAs of the system. The caller closes the transport."""

    http: HttpTransport
    tls: ssl.SSLContext | None = None

    async def get(self, url: str, authorization: str | None = None) -> dict[str, Any]:
        """A JSON object; raises `ProviderResponseError`."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return parse_object(await fetch_document(self, url, authorization=authorization))
        except (TimeoutError, HttpTransportError, OSError) as error:
            raise ProviderResponseError(_describe(error, TIMEOUT)) from None

    async def post(
        self, url: str, fields: Mapping[str, str], authorization: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object that answer a form; an empty object for anything else."""
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT):
                return await self._post(url, fields, authorization)
        except (TimeoutError, HttpTransportError, OSError) as error:
            raise ProviderResponseError(_describe(error, TOKEN_TIMEOUT)) from None

    async def _post(self, url: str, fields: Mapping[str, str], authorization: str | None) -> tuple[int, dict[str, Any]]:
        headers = {**_headers(authorization), "Content-Type": "application/x-www-form-urlencoded"}
        response = await self.send(url, "POST", headers, urlencode(fields).encode(), TOKEN_TIMEOUT)
        try:
            body = await _read_body(response)
        finally:
            await response.aclose()
        try:
            return response.status, parse_object(body)
        except ProviderResponseError:
            return response.status, {}

    async def send(
        self, url: str, method: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> HttpResponse:
        """One request; `seconds` is the longest silence."""
        request = HttpRequest(
            method, url, headers, body, connect_seconds=TIMEOUT, read_seconds=seconds, tls=self.tls, keep=False
        )
        return await self.http.send(request)


async def fetch_document(connection: ProviderConnection, url: str, *, authorization: str | None = None) -> bytes:
    """The body of a document, after at most three redirects on the same host; the caller bounds the time."""
    for _ in range(_MAX_REDIRECTS + 1):
        response = await connection.send(url, "GET", _headers(authorization), None, TIMEOUT)
        try:
            target = response.header("location")
            if response.status not in _REDIRECTS or target is None:
                if response.status != _OK:
                    raise ProviderResponseError(f"responded with status {response.status}", response.status)
                return await _read_body(response)
            url = _checked_redirect(url, target)
        finally:
            await response.aclose()
    raise ProviderResponseError(f"sent more than {_MAX_REDIRECTS} redirects")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object; raises `ProviderResponseError`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderResponseError("did not respond with a JSON object")
    return found


def _headers(authorization: str | None) -> dict[str, str]:
    # Uncompressed: a small compressed response could expand to any size.
    plain = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "lcm"}
    return plain if authorization is None else {**plain, "Authorization": authorization}


def _checked_redirect(url: str, location: str) -> str:
    try:
        target = urljoin(url, location)
        here, there = urlsplit(url), urlsplit(target)
        same = (there.scheme, there.hostname, there.port) == (here.scheme, here.hostname, here.port)
    except ValueError:
        raise ProviderResponseError("redirected to an invalid URL") from None
    if not same:
        # A redirect must not decide whom we trust.
        raise ProviderResponseError(
            f"redirected to another host, {there.hostname}; set OIDC_ISSUER and OIDC_JWKS_URL to the final addresses"
        )
    return target


async def _read_body(response: HttpResponse) -> bytes:
    if (response.header("content-encoding") or "identity") != "identity":
        raise ProviderResponseError("sent a compressed response that was not requested")
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > MAX_BYTES:
            raise ProviderResponseError(f"responded with more than {MAX_BYTES} bytes")
    return bytes(body)


def _describe(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"did not respond within {seconds:g} s"
    return f"cannot be reached: {error}"
