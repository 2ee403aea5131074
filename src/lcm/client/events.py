"""The event stream of the control plane: a parser for server-sent events, and a follower that reconnects."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from lcm.client.base import Resource, api_path, query_params
from lcm.client.errors import (
    ClientError,
    ProtocolError,
    ServiceUnavailableError,
    TooManyAttemptsError,
    UnreachableError,
)
from lcm.client.responses import ApiRequest
from lcm.core.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from lcm.client.transport import Transport


_BOM = b"\xef\xbb\xbf"


class SseTooLongError(Exception):
    """An event exceeds the size limit."""


@dataclass(frozen=True, slots=True)
class SseMessage:
    """One block of the stream: an event, or only a new position.

    `id` is the last id received, in this block or an earlier one; `placed` tells whether it was in this block.
    """

    id: str | None
    event: str
    data: str | None
    placed: bool = False


class SseParser:
    """Parses one connection. `retry` is the reconnection delay in seconds, once the server has sent one."""

    def __init__(self, largest: int = 1024 * 1024, last_id: str | None = None) -> None:
        self.retry: float | None = None
        self._largest = largest
        self._rest = bytearray()
        self._began = False
        self._after_cr = False
        self._id = last_id
        self._placed = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseMessage]:
        """The messages completed by this chunk. A block that the connection cuts off is dropped."""
        found = []
        for line in self._lines(chunk):
            if line:
                self._field(line)
            else:
                found.append(self._dispatch())
        return found

    def forget(self) -> None:
        """Drop the last id."""
        self._id = None

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The complete lines. They end with CR, LF or both, and a chunk may end between the two."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._rest += chunk
        if not self._began:
            if len(self._rest) < len(_BOM) and _BOM.startswith(self._rest):
                return []
            self._began = True
            self._rest[:] = self._rest.removeprefix(_BOM)
        if b"\n" not in chunk and b"\r" not in chunk and len(self._rest) <= self._largest:
            return []
        self._after_cr = self._rest.endswith(b"\r")
        *lines, rest = bytes(self._rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(rest) > self._largest:
            raise SseTooLongError(f"a line is longer than {self._largest} bytes")
        self._rest = bytearray(rest)
        return lines

    def _field(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > self._largest:
            raise SseTooLongError(f"an event is longer than {self._largest} bytes")
        name, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id, self._placed = value or None, True
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value) / 1000

    def _dispatch(self) -> SseMessage:
        data = "\n".join(self._data) if self._data else None
        message = SseMessage(self._id, self._event or "message", data, self._placed)
        self._placed, self._event, self._data, self._size = False, "", [], 0
        return message


log = structlog.get_logger(__name__)

RESET = "reset"
_HEARTBEAT = "heartbeat"
_CLOSING_EVENTS = frozenset({"overflow", "shutdown", "unavailable", "signed_out"})
"""The last event on a connection that the server closes. The next connection continues from the same position."""

_SILENCE_TIMEOUT = 45.0  # three heartbeats
_RECONNECT_BACKOFF = Backoff(1.0, max_delay=30.0)
_MIN_RETRY, _MAX_RETRY = 0.1, 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the fleet. A `reset` means that events were missed: read the current state again."""

    id: str | None
    name: str
    data: Any

    @property
    def is_reset(self) -> bool:
        """Whether events were missed."""
        return self.name == RESET


@dataclass(slots=True)
class _StreamPosition:
    """How far the stream was read, and when to reconnect."""

    last_id: str | None
    retry: float | None = None
    failures: int = 0  # connections in a row without an event
    connected: bool = False
    loss_logged: bool = False
    on_connection: Callable[[bool], None] = lambda _: None

    def advance(self, message: SseMessage, retry: float | None) -> None:
        """Record that a message was received."""
        self.last_id, self.retry, self.failures, self.loss_logged = message.id, retry, 0, False

    def pause(self) -> float:
        """Seconds until the next connection: what the server sent, growing with each failure."""
        retry = self.retry if self.retry is not None else _RECONNECT_BACKOFF.base
        base = min(max(retry, _MIN_RETRY), _MAX_RETRY)
        self.failures += 1
        return Backoff(base, max_delay=max(base, _RECONNECT_BACKOFF.max_delay)).delay(self.failures - 1)


class Events(Resource):
    """The event stream."""

    def __init__(self, transport: Transport, *, silence: float = _SILENCE_TIMEOUT) -> None:
        super().__init__(transport)
        self._silence = silence

    async def follow(
        self,
        *,
        last_event_id: str | None = None,
        worker_id: Iterable[str] = (),
        topic: Iterable[str] = (),
        aws_region: Iterable[str] = (),
        on_connection: Callable[[bool], None] = lambda _: None,
    ) -> AsyncGenerator[Event, None]:
        """Events until the caller stops. Use it with `contextlib.aclosing`.

        The first connection must succeed. After that, a lost connection is retried without a limit and continues from
        the last event; only a rejection, such as of a revoked token, ends the stream. `on_connection` is called with
        True after each connection, and with False when it is lost.
        """
        position = _StreamPosition(last_event_id, on_connection=on_connection)
        query = query_params(worker_id=worker_id, topic=topic, aws_region=aws_region)
        while True:
            try:
                async with aclosing(self._connection(position, query)) as events:
                    async for event in events:
                        yield event
            except (UnreachableError, ServiceUnavailableError, TooManyAttemptsError) as error:
                if not position.connected:
                    raise
                self._note_loss(position, error)
            on_connection(False)
            await asyncio.sleep(position.pause())

    async def _connection(self, position: _StreamPosition, query: dict[str, list[str]]) -> AsyncGenerator[Event, None]:
        headers = {} if position.last_id is None else {"Last-Event-ID": position.last_id}
        call = ApiRequest("events.stream", "GET", api_path("events", "stream"), query, headers=headers)
        parser = SseParser(last_id=position.last_id)
        async with self._transport.stream(call, self._silence) as chunks:
            position.connected = True
            position.on_connection(True)
            async for chunk in chunks:
                for message in _feed(parser, chunk):
                    position.advance(message, parser.retry)
                    if message.event == RESET and not message.placed:
                        # The server has no position to continue from: with the old one it would only reset again.
                        position.last_id = None
                        parser.forget()
                    if message.data is None or message.event == _HEARTBEAT:
                        continue
                    if message.event in _CLOSING_EVENTS:
                        log.info("event stream closed by the server; reconnecting", reason=message.event)
                        return
                    yield _to_event(message)

    def _note_loss(self, position: _StreamPosition, error: ClientError) -> None:
        if not position.loss_logged:
            position.loss_logged = True
            log.warning("event stream lost; reconnecting", error=str(error))


def _feed(parser: SseParser, chunk: bytes) -> list[SseMessage]:
    try:
        return parser.feed(chunk)
    except SseTooLongError as error:
        raise ProtocolError(f"events.stream: {error}") from None


def _to_event(message: SseMessage) -> Event:
    try:
        data = json.loads(message.data or "null")
    except ValueError:
        raise ProtocolError(f"events.stream: the data of a {message.event!r} is not JSON") from None
    return Event(message.id, message.event, data)
