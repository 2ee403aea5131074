"""How requests are received: uvicorn's protocol on httptools, with limits on size, time and number that both lack."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

MAX_HEADER_BYTES: Final = 64 * 1024
HEADER_SECONDS: Final = 30.0
MAX_CONNECTIONS: Final = 4_000
_FILES_FOR_OTHERS: Final = 200
"""File descriptors that are left for the store, for outgoing calls and for new connections."""

_TOO_LARGE_TEXT: Final = b"The headers of the request are too large."
_TOO_LARGE_RESPONSE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\n"
    b"connection: close\r\n\r\n%s" % (len(_TOO_LARGE_TEXT), _TOO_LARGE_TEXT)
)


_TOO_SLOW_TEXT: Final = b"The headers of the request must arrive within 30 s."
_TOO_SLOW_RESPONSE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\n"
    b"connection: close\r\n\r\n%s" % (len(_TOO_SLOW_TEXT), _TOO_SLOW_TEXT)
)


def max_connections() -> int:
    """How many connections a server keeps: fewer where the process may open few files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(100, min(MAX_CONNECTIONS, soft - _FILES_FOR_OTHERS))


class HttpProtocol(HttpToolsProtocol):
    """One connection. It is closed if headers do not end within `MAX_HEADER_BYTES` or `HEADER_SECONDS`.

    httptools collects any amount, and uvicorn waits any time. Beyond `max_connections`, the connection that has waited
    longest for a request makes room; if all have one, the new connection is closed.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_headers = False
        self._header_bytes = 0
        self.waits_since: float | None = None  # for the headers of a request
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= max_connections():
            self._make_room(transport)
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_headers:
            return
        self._header_bytes += len(data)
        if self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._reject_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        if self._header_timer is None:
            self._await_headers()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_waiting()
        super().on_headers_complete()

    def _await_headers(self) -> None:
        self.waits_since = self.loop.time()
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._reject_slow_headers)

    def _stop_waiting(self) -> None:
        self.waits_since = None
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _make_room(self, transport: asyncio.Transport) -> None:
        others = [each for each in self.connections if isinstance(each, HttpProtocol)]
        waiting = [each for each in others if each.waits_since is not None and not each.transport.is_closing()]
        oldest = min(waiting, key=lambda each: each.waits_since or 0.0, default=None)
        if oldest is None:
            transport.close()
        else:
            oldest.transport.abort()

    def _reject_slow_headers(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if self._in_headers and (cycle is None or cycle.response_complete):
            self.transport.write(_TOO_SLOW_RESPONSE)
        self.transport.close()

    def _reject_headers(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:  # else this would end up inside another response
            self.transport.write(_TOO_LARGE_RESPONSE)
        self.transport.close()
