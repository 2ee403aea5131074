"""One HTTP/1.1 connection of a client. It serves one request at a time; httptools parses the responses."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import httptools

from lcm.http.transport import ConnectionLostError, HttpTransportError, InvalidHttpError, ResponseTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX_HEADER_BYTES: Final = 64 * 1024
_READ_AHEAD_BYTES: Final = 256 * 1024
_FIRST_FINAL_STATUS: Final = 200


class Connection(asyncio.Protocol):
    """A connection, and what its parser says about the response in progress.

    Nothing of it refers to itself once it has ended. Otherwise its TLS state, dozens of KiB, would stay until the
    garbage collector looks at old objects, which it does after thousands of connections.
    """

    __slots__ = ("__weakref__", "_loop", "_response", "closed", "longest_response", "on_closed", "on_idle", "transport")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.longest_response = 0
        self.on_idle: Callable[[Connection], None] | None = None
        self.on_closed: Callable[[Connection], None] | None = None
        self._response: ConnectionResponse | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self.transport is not None and self._response is None and not self.transport.is_closing()

    def send(self, data: bytes, read_seconds: float, *, expects_body: bool = True) -> ConnectionResponse:
        """Hand a request to the kernel; returns its response, of which nothing has arrived yet."""
        assert self.transport is not None
        assert self._response is None
        self._response = ConnectionResponse(self, read_seconds, expects_body=expects_body)
        self.transport.write(data)
        return self._response

    def finish(self, *, reusable: bool) -> None:
        """The response is complete, or nobody reads it any more."""
        if self._response is not None:
            self.longest_response = max(self.longest_response, self._response.received)
        self._response = None
        # A request that the server did not read to its end would be taken for the beginning of the next one.
        if not reusable or self.transport is None or self.transport.get_write_buffer_size():
            self.abort()
        elif self.on_idle is not None:
            self.on_idle(self)

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def pause_reading(self) -> None:
        """Let the kernel hold back what the reader cannot take yet."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.abort()  # nothing was requested: whatever this is, it must not become the next response
        else:
            self._response.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None:
            self._response.feed_end(exc)
        if not self.closed.done():
            self.closed.set_result(None)
        if self.on_closed is not None:
            self.on_closed(self)
        self.transport = self.on_closed = self.on_idle = None


class ConnectionResponse:
    """The response to one request. Methods named `on_…` are called by the parser."""

    def __init__(self, connection: Connection, read_seconds: float, *, expects_body: bool) -> None:
        self.status = 0
        self._connection = connection
        self._read_seconds = read_seconds
        self._expects_body = expects_body
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._has_headers = False
        self._has_length = False
        self._complete = False
        self._keep_alive = False
        self._error: HttpTransportError | None = None
        self._chunks: deque[bytes] = deque()
        self.received = 0  # bytes, with headers
        self._buffered = 0
        self._overhead = 0  # bytes since the last piece of the body: headers, trailers and the like
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return self._headers.get(name.lower())

    @property
    def buffered(self) -> int:
        """How many bytes of the body have arrived and were not read."""
        return self._buffered

    async def wait_for_headers(self) -> None:
        """Wait until the status and headers are there."""
        while not self._has_headers:
            await self._wait()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered -= len(chunk)
                yield chunk
            if self._complete:
                return
            if self._paused:
                self._paused = False
                self._connection.resume_reading()
            await self._wait()

    async def aclose(self) -> None:
        """Give the connection back if everything has arrived, else close it."""
        if not self._complete:
            self._fail(ConnectionLostError("the response was closed"))

    def abandon(self) -> None:
        """Close the connection: nobody waits for this response any more."""
        self._fail(ConnectionLostError("the request was given up"))

    async def _wait(self) -> None:
        """Wait for the next event; raises the error that ended the response."""
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._read_seconds):
                await self._waiter
        except TimeoutError:
            error = ResponseTimeoutError(f"nothing arrived for {self._read_seconds:g} s")
            self._fail(error)
            raise error from None
        finally:
            self._waiter = None
        if self._error is not None and not self._chunks:
            raise self._error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def feed(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self._parser is None:
            self._connection.abort()
            return
        self.received += len(data)
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._keep_alive = False
            self._fail(InvalidHttpError("it changes to another protocol, which was not requested"))
        except httptools.HttpParserError as error:
            self._keep_alive = False
            self._fail(InvalidHttpError(str(error) or type(error).__name__))
        if self._overhead > MAX_HEADER_BYTES and not self._has_ended():
            self._fail(InvalidHttpError(f"headers or trailers are longer than {MAX_HEADER_BYTES // 1024} KiB"))
        if self._complete:
            if self._paused:
                self._connection.resume_reading()  # the next response comes over the same connection
            self._parser = None
            self._connection.finish(reusable=self._keep_alive)
        elif self._buffered > _READ_AHEAD_BYTES and not self._paused and not self._has_ended():
            self._paused = True
            self._connection.pause_reading()
        self._wake()

    def feed_end(self, error: Exception | None) -> None:
        """The connection has ended. Without a length, that is the end of the body."""
        if self._has_ended():
            return
        if error is None and self._has_headers and not self._has_length:
            self._complete, self._parser = True, None
            self._connection.finish(reusable=False)
        else:
            self._fail(ConnectionLostError(str(error) if error else "the server closed the connection"))
        self._wake()

    def _fail(self, error: HttpTransportError) -> None:
        if not self._has_ended():
            self._error = error
            self._parser = None  # it refers to this response
            self._connection.finish(reusable=False)
        self._wake()

    def _has_ended(self) -> bool:
        return self._complete or self._error is not None

    def on_message_begin(self) -> None:
        """A response begins. A second one was not requested: it is dropped, and the connection closed."""
        if self._complete:
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or after the body a trailer."""
        if not self._has_headers:
            self._headers.setdefault(name.lower().decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Status and headers are there; those of an interim response are dropped."""
        if self._complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL_STATUS:
            self._headers.clear()
            return
        self.status = status
        self._has_headers = True
        self._has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._keep_alive = self._parser.should_keep_alive()
        self._complete = not self._expects_body

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._complete:
            self._keep_alive = False  # the response to HEAD has none
            return
        self._overhead = 0
        self._buffered += len(body)
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """The end of a response, if it is not an interim one."""
        self._complete = self._has_headers
