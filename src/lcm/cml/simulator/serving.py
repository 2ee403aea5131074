"""A web server on a port of its own that can be switched off and on again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_STOP_SECONDS = 1
_LOOK_SECONDS = 0.005


class CannotListen(Exception):
    """The port is taken or the host is not one of this machine; the text says which."""


class Port:
    """A port that stays ours while nobody listens on it: whoever dials it then is refused."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        # Sharing would let two simulators have one port, and each a part of its connections: ask for it alone first.
        _bound(host, port, socket.SO_REUSEADDR).close()
        self._kept = _bound(host, port, socket.SO_REUSEPORT)
        self.number: int = self._kept.getsockname()[1]

    def open(self) -> socket.socket:
        """A socket to listen on, beside the one that keeps the port."""
        return _bound(self.host, self.number, socket.SO_REUSEPORT, socket.SO_REUSEADDR)

    def close(self) -> None:
        """Give the port up."""
        self._kept.close()


class Serving:
    """One application on one port while it is switched on."""

    def __init__(self, app: ASGIApp, port: Port, tls: ssl.SSLContext | None = None) -> None:
        self._app = app
        self._port = port
        self._tls = tls
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen; returns when connections are accepted."""
        if self._task is not None:
            return
        config = uvicorn.Config(
            self._app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="websockets-sansio",
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        config.load()
        config.ssl = self._tls
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._port.open()]), name="cml-simulator")
        while not self._server.started and not self._task.done():
            await asyncio.wait([self._task], timeout=_LOOK_SECONDS)

    async def stop(self) -> None:
        """Stop listening and end what is under way."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await asyncio.wait([self._task])
        self._server = self._task = None


class _Server(uvicorn.Server):
    """uvicorn without handlers of its own for signals, and which ends like a machine whose plug is pulled."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A polite end of TLS waits half a minute for clients that keep their connections for later.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bound(host: str, port: int, *options: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}: {error.strerror}") from None
    try:
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from None
    made.setblocking(False)
    return made
