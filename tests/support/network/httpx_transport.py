"""Lets a client of LCM call through an httpx transport: an app in this process, a function, or a faulty network."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import httpx

from lcm.http.transport import (
    ConnectionFailedError,
    ConnectionLostError,
    ConnectTimeoutError,
    HttpTransportError,
    InvalidHttpError,
    ResponseTimeoutError,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from lcm.http.transport import HttpRequest


if find_spec("sniffio") is None:
    # For each request httpx looks for it in all folders of modules again, which takes longer than many a response.
    sys.modules["sniffio"] = None  # type: ignore[assignment]  # the documented way to say that there is none

_parsed_url = lru_cache(maxsize=1024)(httpx.URL)


class HttpxTransport:
    """The HTTP transport port over an httpx transport."""

    def __init__(self, wire: httpx.AsyncBaseTransport) -> None:
        self._wire = wire
        self.discarded: list[ssl.SSLContext] = []

    async def send(self, request: HttpRequest) -> _Response:
        """Send a request; httpx's errors become those of the port."""
        times = {
            "connect": request.connect_seconds,
            "pool": request.connect_seconds,
            "read": request.read_seconds,
            "write": request.read_seconds,
        }
        sent = httpx.Request(
            request.method,
            _parsed_url(request.url),
            content=request.body,
            headers=dict(request.headers),
            extensions={"timeout": times},
        )
        if request.before_send is not None:
            request.before_send()
        try:
            return _Response(await self._wire.handle_async_request(sent))
        except httpx.HTTPError as error:
            raise _translated(error) from error

    def discard(self, tls: ssl.SSLContext) -> None:
        """Remember it: an httpx transport has no contexts to drop."""
        self.discarded.append(tls)

    async def aclose(self) -> None:
        """Close the httpx transport."""
        await self._wire.aclose()


class _Response:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code

    def header(self, name: str) -> str | None:
        found: str | None = self._response.headers.get(name)
        return found

    async def chunks(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        try:
            async for chunk in self._response.stream:
                yield chunk
        except httpx.HTTPError as error:
            raise _translated(error) from error

    async def aclose(self) -> None:
        await self._response.aclose()


def _translated(error: httpx.HTTPError) -> HttpTransportError:
    kind: type[HttpTransportError] = InvalidHttpError
    if isinstance(error, httpx.ConnectTimeout):
        kind = ConnectTimeoutError
    elif isinstance(error, httpx.ConnectError):
        kind = ConnectionFailedError
    elif isinstance(error, httpx.TimeoutException):
        kind = ResponseTimeoutError
    elif isinstance(error, httpx.NetworkError) or "disconnected" in str(error):
        kind = ConnectionLostError
    return kind(str(error))
