"""An identity provider's JWKS endpoint on loopback, which can also misbehave."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.auth.issuer import document


def http_response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A complete HTTP response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class JwksServer:
    """Sends `reply` to every client, then `endless` repeatedly with a `pause` until the client disconnects."""

    def __init__(self) -> None:
        self.reply = b""
        self.endless = b""
        self.pause = 0.0
        self.sent = 0
        self.asked: list[str] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/keys"

    def publish(self, *entries: dict[str, Any]) -> None:
        self.reply = http_response(document(*entries))

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(request.decode())
            writer.write(self.reply)
            while self.endless:
                writer.write(self.endless)
                await writer.drain()
                self.sent += len(self.endless)
                await asyncio.sleep(self.pause)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
