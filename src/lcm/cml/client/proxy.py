"""Connections to CML servers through an HTTP proxy, for a controller outside their network.

The proxy only forwards bytes: TLS is end to end, so the server proves its identity as on a direct connection.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httpx

from lcm.cml.client.transport import POOL_LIMITS

if TYPE_CHECKING:
    import ssl

_HTTP_PORT = 80
_MAX_HEADER_BYTES = 16 * 1024


class HttpProxy:
    """An HTTP proxy with CONNECT. `make_http_transport` and `open_tls` are arguments of `CMLTransport`."""

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)

    def make_http_transport(self, context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """The HTTP transport through the proxy."""
        return httpx.AsyncHTTPTransport(
            verify=context, limits=POOL_LIMITS, trust_env=False, proxy=httpx.Proxy(url=str(self._url))
        )

    async def open_tls(self, host: str, port: int, context: ssl.SSLContext) -> asyncio.StreamWriter:
        """Open a TLS connection through the proxy; raises OSError if that fails."""
        reader, writer = await asyncio.open_connection(
            self._url.host, self._url.port or _HTTP_PORT, limit=_MAX_HEADER_BYTES
        )
        try:
            writer.write(self._request(host, port))
            await _read_connect_response(reader)
            await writer.start_tls(context)
        except BaseException:
            writer.transport.abort()
            raise
        return writer

    def _request(self, host: str, port: int) -> bytes:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self._url.userinfo:
            account = unquote(self._url.userinfo.decode()).encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(account).decode()}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read_connect_response(reader: asyncio.StreamReader) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise ConnectionError("the response is not that of an HTTP proxy") from None
    status = head.split(b"\r\n", 1)[0].decode(errors="replace").split(" ", 2)
    if len(status) < 2 or not status[0].startswith("HTTP/1.") or not status[1].startswith("2"):
        raise ConnectionError(f"the proxy rejected the request: {' '.join(status)[:100]!r}")
