"""A TCP proxy with injected faults."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK = 65536


class Mode(Enum):
    """What the proxy does with bytes and connections."""

    FORWARD = "forward"
    BLACK_HOLE = "swallow what comes from either side, keep connections open"
    DROP_REPLIES = "forward requests, drop responses"
    REFUSE = "accept and close at once"


class TcpProxy:
    """A proxy between a client and `target`; the mode also applies to open connections."""

    def __init__(self, target: str, *, port: int = 0) -> None:
        host, _, target_port = target.rpartition(":")
        self._target = (host, int(target_port))
        self._port = port
        self._mode = Mode.FORWARD
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.accepted: list[float] = []
        self.swallowed = 0
        # Bytes of responses after which all connections are cut once.
        self.cut_after: int | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._connections)
        self.cut()
        if tasks:
            await asyncio.wait(tasks)
        await self._server.wait_closed()

    def set_mode(self, mode: Mode) -> None:
        """Set the mode."""
        self._mode = mode

    def cut(self) -> None:
        """Close every connection now."""
        for task in list(self._connections):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(asyncio.get_running_loop().time())
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            if self._mode is not Mode.REFUSE:
                await self._pump_both(reader, writer)
        except (OSError, asyncio.CancelledError):
            # A connection that breaks or is cut ends here; no other task waits for this one.
            pass
        finally:
            del self._connections[task]
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _pump_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Shielded: cancelled halfway, it would leave a connection that is never closed.
        connecting = asyncio.ensure_future(asyncio.open_connection(*self._target))
        try:
            far_reader, far_writer = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            (await connecting)[1].close()
            raise
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer, responses=False)),
            asyncio.ensure_future(self._pump(far_reader, writer, responses=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            # Before anything is awaited: a cut may cancel this clean-up.
            far_writer.close()
            await asyncio.gather(*pumps, return_exceptions=True)
            with suppress(OSError):
                await far_writer.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, responses: bool) -> None:
        while data := await reader.read(_CHUNK):
            if self._mode is Mode.BLACK_HOLE or (responses and self._mode is Mode.DROP_REPLIES):
                self.swallowed += len(data)
                continue
            writer.write(data)
            await writer.drain()
            if responses and self.cut_after is not None:
                self.cut_after -= len(data)
                if self.cut_after <= 0:
                    self.cut_after = None
                    self.cut()
