"""What happens in the fleet, as it happens: the event stream, followed across lost connections."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from lcm.client.base import Group, asked, path_to
from lcm.client.errors import ClientError, ProtocolError, TooManyAttempts, Unavailable, Unreachable
from lcm.client.events import Message, Parser, TooLong
from lcm.client.responses import Call
from lcm.core.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from lcm.client.transport import Transport

log = structlog.get_logger(__name__)

RESET = "reset"
_SIGN_OF_LIFE = "heartbeat"
_ENDINGS = frozenset({"overflow", "shutdown", "unavailable"})
"""The server's last words on a connection. Nothing is missed by them: the next one goes on from the same place."""

_SILENCE = 45.0  # three heartbeats
_PAUSE = Backoff(1.0, longest=30.0)
_SHORTEST_RETRY, _LONGEST_RETRY = 0.1, 60.0


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
class _Place:
    """How far the stream was read, and how the server wants to be asked again."""

    last_id: str | None
    retry: float | None = None
    failures: int = 0  # connections in a row that brought nothing
    connected: bool = False
    loss_told: bool = False

    def moved(self, message: Message, retry: float | None) -> None:
        """Note that something came."""
        self.last_id, self.retry, self.failures, self.loss_told = message.id, retry, 0, False

    def pause(self) -> float:
        """How long to stay away: as long as the server said, and longer the more often it did not answer."""
        asked_for = self.retry if self.retry is not None else _PAUSE.base
        base = min(max(asked_for, _SHORTEST_RETRY), _LONGEST_RETRY)
        self.failures += 1
        return Backoff(base, longest=max(base, _PAUSE.longest)).delay(self.failures - 1)


class Events(Group):
    """The event stream."""

    def __init__(self, transport: Transport, *, silence: float = _SILENCE) -> None:
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
        place = _Place(last_event_id)
        query = asked(worker_id=worker_id, topic=topic, aws_region=aws_region)
        while True:
            try:
                async with aclosing(self._connection(place, query)) as events:
                    async for event in events:
                        yield event
            except (Unreachable, Unavailable, TooManyAttempts) as error:
                if not place.connected:
                    raise
                self._note_loss(place, error)
            await asyncio.sleep(place.pause())

    async def _connection(self, place: _Place, query: dict[str, list[str]]) -> AsyncGenerator[Event, None]:
        headers = {} if place.last_id is None else {"Last-Event-ID": place.last_id}
        call = Call("events.stream", "GET", path_to("events", "stream"), query, headers=headers)
        parser = Parser(last_id=place.last_id)
        async with self._transport.listen(call, self._silence) as chunks:
            place.connected = True
            async for chunk in chunks:
                for message in _parsed(parser, chunk):
                    place.moved(message, parser.retry)
                    if message.event == RESET and not message.placed:
                        # The server has no place to go on from: asked with the old one it would only reset again.
                        place.last_id = None
                        parser.forget()
                    if message.data is None or message.event == _SIGN_OF_LIFE:
                        continue
                    if message.event in _ENDINGS:
                        log.info("the event stream ends for now", reason=message.event)
                        return
                    yield _event(message)

    def _note_loss(self, place: _Place, error: ClientError) -> None:
        if not place.loss_told:
            place.loss_told = True
            log.warning("the event stream was lost; it is tried again", error=str(error))


def _parsed(parser: Parser, chunk: bytes) -> list[Message]:
    try:
        return parser.feed(chunk)
    except TooLong as error:
        raise ProtocolError(f"events.stream: {error}") from None


def _event(message: Message) -> Event:
    try:
        data = json.loads(message.data or "null")
    except ValueError:
        raise ProtocolError(f"events.stream: the data of a {message.event!r} is not JSON") from None
    return Event(message.id, message.event, data)
