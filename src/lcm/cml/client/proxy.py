"""Connections to CML servers through an HTTP proxy, for a controller outside their network.

The proxy only forwards bytes: TLS is end to end, so the server proves its identity as on a direct connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.http.proxy import MAX_PROXY_HEADER_BYTES, ProxyAddress, check_connect_response

if TYPE_CHECKING:
    import ssl


class HttpProxy:
    """An HTTP proxy with CONNECT. `address` is for the HTTP transport, `open_tls` an argument of `CMLTransport`."""

    def __init__(self, url: str) -> None:
        self.address = ProxyAddress(url)

    async def open_tls(self, host: str, port: int, context: ssl.SSLContext) -> asyncio.StreamWriter:
        """Open a TLS connection through the proxy; raises OSError if that fails."""
        reader, writer = await asyncio.open_connection(
            self.address.host, self.address.port, limit=MAX_PROXY_HEADER_BYTES
        )
        try:
            writer.write(self.address.connect_request(host, port))
            check_connect_response(await _read_head(reader))
            await writer.start_tls(context, server_hostname=host)
        except BaseException:
            writer.transport.abort()
            raise
        return writer


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise ConnectionError("the response is not that of an HTTP proxy") from None
