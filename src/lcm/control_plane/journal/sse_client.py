"""One listener of the event stream: what it wants to hear of, what waits for it, and how it looks on the wire."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.control_plane.store.port import JournalEntry


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a client wants to hear of: all conditions hold, an empty one always does.

    With regions only lines about workers are wanted, as nothing else is in one.
    """

    worker_ids: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()


def format_event(event: str, data: bytes, cursor: str | None = None) -> bytes:
    """One event as it goes over the wire."""
    if b"\n" in data or b"\r" in data:  # between the tokens of JSON only, where a space does as well
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    place = f"id: {cursor}\n" if cursor is not None else ""
    return f"{place}event: {event}\ndata: ".encode() + data + b"\n\n"


def format_notice(event: str, reason: str, cursor: str | None = None, **facts: object) -> bytes:
    return format_event(event, json.dumps({"reason": reason, **facts}, separators=(",", ":")).encode(), cursor)


class StreamClient:
    """One listener: what waits for it, and whether it is over."""

    def __init__(self, wanted: EventFilter, limit: int) -> None:
        self.wanted = wanted
        self.place: str | None = None  # everything up to here it has been told, or did not want
        self.final: bytes | None = None
        self._limit = limit
        self._waiting: list[tuple[str | None, bytes]] = []
        self._pulse = False
        self._wake = asyncio.Event()

    @property
    def half_full(self) -> bool:
        """Whether it had better take something soon."""
        return 2 * len(self._waiting) > self._limit

    def wants(self, line: JournalEntry, region: str | None) -> bool:
        """Whether to tell it of a line, which is about a worker in this region."""
        wanted = self.wanted
        return (
            (self.place is None or line.cursor > self.place)
            and (not wanted.topics or line.topic in wanted.topics)
            and (not wanted.worker_ids or line.subject in wanted.worker_ids)
            and (not wanted.regions or region in wanted.regions)
        )

    def offer(self, cursor: str | None, event: bytes) -> bool:
        """Have the event told; False: there is no room for it."""
        if len(self._waiting) >= self._limit:
            return False
        self._waiting.append((cursor, event))
        self._wake.set()
        return True

    def caught_up(self) -> None:
        """Forget what waits but was told already from the journal."""
        self._waiting = [each for each in self._waiting if not (each[0] and self.place and each[0] <= self.place)]

    def pulse(self) -> None:
        """Have a sign of life sent if there is nothing else to send."""
        self._pulse = True
        self._wake.set()

    def end(self, last: bytes) -> None:
        """Let it go with a last word. What still waits it is told when it comes back."""
        self._waiting.clear()
        self.final = self.final or last
        self._wake.set()

    async def chunk(self, heartbeat: Callable[[], bytes]) -> bytes:
        """What there is to send, as soon as there is something."""
        await self._wake.wait()
        self._wake.clear()
        waiting, self._waiting = self._waiting, []
        pulse, self._pulse = self._pulse, False
        if pulse and not waiting and self.final is None:
            return heartbeat()
        return b"".join([event for _, event in waiting])
