"""One client of the event stream: its filter, its buffer, and the format of events on the wire."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import Scope
from lcm.control_plane.records.kinds import ALERT, BOOKING_CHANGED, LABLET_CHANGED, LABLET_HISTORY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.store.port import JournalEntry


_TEAM_TOPICS = (BOOKING_CHANGED, LABLET_CHANGED, LABLET_HISTORY)
"""What instructors and learners see of their teams: the audit names people of the whole fleet."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a client receives: all conditions must match, an empty one always does.

    With regions, only entries about workers match, because nothing else is in a region.
    """

    worker_ids: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()


def format_event(event: str, data: bytes, cursor: str | None = None) -> bytes:
    """One event in the wire format."""
    if b"\n" in data or b"\r" in data:  # only between JSON tokens, where a space is equivalent
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    event_id = f"id: {cursor}\n" if cursor is not None else ""
    return f"{event_id}event: {event}\ndata: ".encode() + data + b"\n\n"


def format_notice(event: str, reason: str, cursor: str | None = None, **details: object) -> bytes:
    """An event of the stream itself, with a reason."""
    return format_event(event, json.dumps({"reason": reason, **details}, separators=(",", ":")).encode(), cursor)


@dataclass(frozen=True, slots=True)
class StreamAccess:
    """Whose stream it is, whether they may still read, and what of teams they may see."""

    caller: str
    still_valid: Callable[[], Awaitable[bool]]
    scope: Scope = Scope(everything=True)  # noqa: RUF009 - it never changes


class StreamClient:
    """One connected client: its buffered events, and whether it is finished."""

    def __init__(self, event_filter: EventFilter, limit: int, access: StreamAccess | None = None) -> None:
        self.filter = event_filter
        self.access = access
        self.cursor: str | None = None  # everything up to here was sent or filtered out
        self.final: bytes | None = None
        self._limit = limit
        self._buffer: list[tuple[str | None, bytes]] = []
        self._heartbeat_due = False
        self._wake = asyncio.Event()

    @property
    def scope(self) -> Scope:
        """What of teams it may see."""
        return Scope(everything=True) if self.access is None else self.access.scope

    @property
    def in_teams_only(self) -> bool:
        """Whether its caller has roles in teams, and none for the whole fleet."""
        return not self.scope.everything

    @property
    def half_full(self) -> bool:
        """Whether its buffer is more than half full."""
        return 2 * len(self._buffer) > self._limit

    def matches(self, entry: JournalEntry, region: str | None) -> bool:
        """Whether to send it this entry, which is about a worker in this region."""
        return (
            entry.topic != ALERT  # alerts are delivered to subscriptions
            and self._may_see(entry)
            and (self.cursor is None or entry.cursor > self.cursor)
            and (not self.filter.topics or entry.topic in self.filter.topics)
            and (not self.filter.worker_ids or entry.subject in self.filter.worker_ids)
            and (not self.filter.regions or region in self.filter.regions)
        )

    def _may_see(self, entry: JournalEntry) -> bool:
        """Whether the caller may see what it is about. Entries without a team are for roles of the whole fleet."""
        if not self.in_teams_only:
            return True
        return bool(entry.team) and entry.topic in _TEAM_TOPICS and self.scope.sees(entry.team, entry.owner)

    def offer(self, cursor: str | None, event: bytes) -> bool:
        """Buffer an event; returns False if the buffer is full."""
        if len(self._buffer) >= self._limit:
            return False
        self._buffer.append((cursor, event))
        self._wake.set()
        return True

    def caught_up(self) -> None:
        """Drop buffered events that were already sent from the journal."""
        self._buffer = [each for each in self._buffer if not (each[0] and self.cursor and each[0] <= self.cursor)]

    def request_heartbeat(self) -> None:
        """Send a heartbeat if there is nothing else to send."""
        self._heartbeat_due = True
        self._wake.set()

    def end(self, last: bytes) -> None:
        """Disconnect it with a final event. Buffered events are sent when it resumes."""
        self._buffer.clear()
        self.final = self.final or last
        self._wake.set()

    async def chunk(self, heartbeat: Callable[[], bytes]) -> bytes:
        """Wait until there is something to send, and return it."""
        await self._wake.wait()
        self._wake.clear()
        buffer, self._buffer = self._buffer, []
        heartbeat_due, self._heartbeat_due = self._heartbeat_due, False
        if heartbeat_due and not buffer and self.final is None:
            return heartbeat()
        return b"".join([event for _, event in buffer])
