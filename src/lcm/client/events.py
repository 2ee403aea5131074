"""The text format of server-sent events: bytes in, however they are cut, and events out."""

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
    from collections.abc import AsyncGenerator, Iterable

    from lcm.client.transport import Transport


_BOM = b"\xef\xbb\xbf"


class SseTooLongError(Exception):
    """An event is longer than anybody would send."""


@dataclass(frozen=True, slots=True)
class SseMessage:
    """One block of the stream: an event, or only a new place in it.

    `id` is the last one given, by this block or one before it; `placed` says whether it was this block.
    """

    id: str | None
    event: str
    data: str | None
    placed: bool = False


class SseParser:
    """Reads one connection. `retry` is after how many seconds the server wants to be asked again, once it said so."""

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
        """What is complete with this chunk. A block that the connection ends in the middle of never happened."""
        found = []
        for line in self._lines(chunk):
            if line:
                self._field(line)
            else:
                found.append(self._dispatch())
        return found

    def forget(self) -> None:
        """The last id means nothing any more."""
        self._id = None

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Complete lines; they end with CR, LF or both, and a chunk may end between the two."""
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
_CLOSING_EVENTS = frozenset({"overflow", "shutdown", "unavailable"})
"""The server's last words on a connection. Nothing is missed by them: the next one goes on from the same place."""

_SILENCE_TIMEOUT = 45.0  # three heartbeats
_RECONNECT_BACKOFF = Backoff(1.0, longest=30.0)
_MIN_RETRY, _MAX_RETRY = 0.1, 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. After a `reset` some events were missed: whoever keeps a picture reads it again."""

    id: str | None
    name: str
    data: Any

    @property
    def is_reset(self) -> bool:
        """Whether events were missed."""
        return self.name == RESET


@dataclass(slots=True)
class _StreamPosition:
    """How far the stream was read, and how the server wants to be asked again."""

    last_id: str | None
    retry: float | None = None
    failures: int = 0  # connections in a row that brought nothing
    connected: bool = False
    loss_logged: bool = False

    def moved(self, message: SseMessage, retry: float | None) -> None:
        """Note that something came."""
        self.last_id, self.retry, self.failures, self.loss_logged = message.id, retry, 0, False

    def pause(self) -> float:
        """How long to stay away: as long as the server said, and longer the more often it did not answer."""
        asked_for = self.retry if self.retry is not None else _RECONNECT_BACKOFF.base
        base = min(max(asked_for, _MIN_RETRY), _MAX_RETRY)
        self.failures += 1
        return Backoff(base, longest=max(base, _RECONNECT_BACKOFF.longest)).delay(self.failures - 1)


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
    ) -> AsyncGenerator[Event, None]:
        """Events until the caller has enough. Use it within `contextlib.aclosing`.

        The first connection must succeed. After it, a lost one is made again for as long as it takes, and goes on
        from the last event; only a refusal, such as of a token that was revoked, ends it.
        """
        place = _StreamPosition(last_event_id)
        query = query_params(worker_id=worker_id, topic=topic, aws_region=aws_region)
        while True:
            try:
                async with aclosing(self._connection(place, query)) as events:
                    async for event in events:
                        yield event
            except (UnreachableError, ServiceUnavailableError, TooManyAttemptsError) as error:
                if not place.connected:
                    raise
                self._note_loss(place, error)
            await asyncio.sleep(place.pause())

    async def _connection(self, place: _StreamPosition, query: dict[str, list[str]]) -> AsyncGenerator[Event, None]:
        headers = {} if place.last_id is None else {"Last-Event-ID": place.last_id}
        call = ApiRequest("events.stream", "GET", api_path("events", "stream"), query, headers=headers)
        parser = SseParser(last_id=place.last_id)
        async with self._transport.listen(call, self._silence) as chunks:
            place.connected = True
            async for chunk in chunks:
                for message in _feed(parser, chunk):
                    place.moved(message, parser.retry)
                    if message.event == RESET and not message.placed:
                        # The server has no place to go on from: asked with the old one it would only reset again.
                        place.last_id = None
                        parser.forget()
                    if message.data is None or message.event == _HEARTBEAT:
                        continue
                    if message.event in _CLOSING_EVENTS:
                        log.info("the event stream ends for now", reason=message.event)
                        return
                    yield _to_event(message)

    def _note_loss(self, place: _StreamPosition, error: ClientError) -> None:
        if not place.loss_logged:
            place.loss_logged = True
            log.warning("the event stream was lost; it is tried again", error=str(error))


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
