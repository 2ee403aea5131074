"""A TCP or TLS server that records requests and responds with given bytes, valid HTTP or not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lcm.http.transport import HttpRequest

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from lcm.http.transport import HttpTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def call(http: HttpTransport, url: str, method: str = "GET", **options: Any) -> tuple[int, bytes]:
    """Send a request and read its whole response."""
    response = await http.send(HttpRequest(method, url, {"Accept": "x/y"}, **options))
    try:
        return response.status, b"".join([chunk async for chunk in response.chunks()])
    finally:
        await response.aclose()


class ScriptedServer:
    """Each request gets the next response; the last one repeats. `None` closes the connection without a response.

    With `together`, responses wait until so many requests have arrived.
    """

    def __init__(
        self,
        responses: Sequence[bytes | None] = (OK,),
        *,
        tls: ssl.SSLContext | None = None,
        together: int = 1,
    ) -> None:
        self._responses = list(responses)
        self._tls = tls
        self._everyone = asyncio.Event()
        self._together = together
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def wait_until_open(self, count: int) -> None:
        """Wait until so many connections are open."""
        async with asyncio.timeout(60):
            while self.open != count:
                self.changed.clear()
                await self.changed.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._count(1)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), b":0"
                )
                body = await reader.readexactly(int(length.split(b":")[1]))
                self.requests.append(head + body)
                response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
                if len(self.requests) >= self._together:
                    self._everyone.set()
                await self._everyone.wait()
                if response is None:
                    break
                writer.write(response)
                await writer.drain()
                if b"connection: close" in response.lower():
                    break
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            writer.transport.abort()
            self._count(-1)

    def _count(self, change: int) -> None:
        self.open += change
        self.changed.set()
