"""An HTTP proxy for CONNECT that connects the addresses of a test to servers on loopback."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_CHUNK = 65536


class ConnectProxy:
    """`routes` maps `host:port` to the real (host, port); other targets are rejected."""

    def __init__(self, routes: dict[str, tuple[str, int]], *, port: int = 0, credentials: str = "") -> None:
        self.routes = routes
        self.targets: list[str] = []
        self.talk_nonsense = False
        self._port = port
        self._credentials = credentials
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split(" ")[1]
        self.targets.append(target)
        if self.talk_nonsense:
            writer.write(b"hello\r\n\r\n")
        elif self._credentials and f"Basic {self._credentials}" not in head:
            writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        elif target not in self.routes:
            writer.write(b"HTTP/1.1 502 No way\r\nContent-Length: 0\r\n\r\n")
        else:
            await self._connect(reader, writer, self.routes[target])

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: tuple[str, int]
    ) -> None:
        there_reader, there_writer = await asyncio.open_connection(*place)
        writer.write(b"HTTP/1.1 200 Go on\r\n\r\n")
        try:
            ways = [asyncio.create_task(_pump(reader, there_writer)), asyncio.create_task(_pump(there_reader, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            there_writer.close()
            with suppress(OSError):
                await there_writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
