"""The journal as server-sent events, for any number of clients.

An event is encoded once and the same bytes go to every client whose filter matches. Each client has a small buffer: one
that does not read its events is disconnected and can resume, and the others never wait for it. The id of an event is
its cursor in the journal, so a client that resumes with `Last-Event-ID` gets what it has missed from the store.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.bookings.access import shown_booking
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.journal.retention import deleted_through
from lcm.control_plane.journal.sse_client import EventFilter, StreamClient, format_event, format_notice
from lcm.control_plane.records.kinds import BOOKING_CHANGED, LABLET_CHANGED, WORKER_CHANGED, WORKERS
from lcm.control_plane.store.cursors import parse_journal_cursor
from lcm.control_plane.store.port import InvalidCursorError, StoreError
from lcm.control_plane.teams.visibility import shown_lablet
from lcm.core.hosting import HostedService, cancel_and_wait
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from lcm.control_plane.journal.feed import JournalFeed
    from lcm.control_plane.journal.sse_client import StreamAccess
    from lcm.control_plane.store.port import JournalEntry, Store

log = structlog.get_logger(__name__)

_PAGE = 100
_BURST_PAUSE = 0.02
_MAX_CACHED_REGIONS = 20_000
_OPENING_SECONDS = 5.0
_SHOWN = {BOOKING_CHANGED: shown_booking, LABLET_CHANGED: shown_lablet}
"""What is left out for people with roles in teams only."""
_EXPIRED_REASON = "events since the Last-Event-ID have expired; read again"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Limits of the stream; times in seconds."""

    buffer: int = 256  # events buffered for one client
    heartbeat: float = 15.0
    max_replayed: int = 10_000  # journal entries that a client may be behind
    retry: float = 2.0  # after which a client reconnects
    max_clients: int = 2_000
    max_per_caller: int = 50
    access_check: float = 5.0  # after which a stream ends whose token or session has ended


@dataclass(slots=True)
class StreamCounters:
    """Counters of the stream since the start."""

    opened: int = 0
    cut_off: int = 0
    resets: int = 0
    events: int = 0  # sent to at least one client
    refused: int = 0  # because there were too many
    signed_out: int = 0  # whose token or session had ended


@dataclass(slots=True)
class _WorkerRegions:
    """A cache of workers' regions. A worker never changes its region, so it is read once."""

    store: Store
    cached: dict[str, str | None] = field(default_factory=dict)

    async def region_of(self, entry: JournalEntry) -> str | None:
        """The region of the worker that an entry is about; None if it is not about a worker."""
        if entry.subject not in self.cached:
            body = entry.body if entry.topic == WORKER_CHANGED else await self._worker(entry.subject)
            if len(self.cached) >= _MAX_CACHED_REGIONS:
                del self.cached[next(iter(self.cached))]
            self.cached[entry.subject] = json.loads(body)["aws_region"] if body is not None else None
        return self.cached[entry.subject]

    async def _worker(self, subject: str) -> bytes | None:
        try:
            stored = await self.store.get(WORKERS, subject)
        except ValueError:
            return None  # not a valid worker id
        return stored.body if stored else None


@dataclass(frozen=True, slots=True)
class _PendingStream:
    """A stream that was admitted and is not read yet: of many at once, each counts for the next."""

    caller: str
    until: float  # from then on it does not count: its client has gone


class EventStream(HostedService):
    """Sends commits to clients. It stops before the HTTP server does, so that clients are notified of the end."""

    def __init__(
        self,
        store: Store,
        feed: JournalFeed,
        settings: StreamSettings | None = None,
    ) -> None:
        super().__init__("events")
        self._store = store
        self._feed = feed
        self._settings = settings or StreamSettings()
        self._regions = _WorkerRegions(store)
        self._live: dict[StreamClient, None] = {}  # clients that receive live events
        self._connected: dict[StreamClient, None] = {}  # all connected clients, including those that catch up
        self._pending: list[_PendingStream] = []
        self._cursor: str | None = None
        self._stopping = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self.counters = StreamCounters()

    @property
    def clients(self) -> int:
        """The number of connected clients."""
        return len(self._connected)

    async def start(self) -> None:
        """Subscribe to the journal feed."""
        self._unsubscribe = self._feed.subscribe(self)
        self._spawn(self._send_heartbeats(), "heartbeat")
        self._spawn(self._check_access(), "access")

    async def stop(self) -> None:
        """Send every client a final event; a client is finished when it has read it."""
        self._stopping = True
        self._unsubscribe()
        for client in self._connected:
            client.end(self._shutdown_notice())
        self._live.clear()
        await cancel_and_wait(list(self._background))

    def on_gap(self) -> None:
        """Send all clients a reset, so that they read the current state."""
        self._cursor = self._feed.position
        self.counters.resets += len(self._live)
        reset = format_notice("reset", "some events were missed; read again", self._cursor)
        for client in list(self._live):
            self._offer(client, self._cursor, reset)

    async def on_entries(self, batch: Sequence[JournalEntry]) -> None:
        """Send the entries to the clients whose filters match."""
        piece = max(1, self._settings.buffer // 4)
        for number, entry in enumerate(batch, 1):
            region = await self._region(entry)
            self._send(entry, region)
            self._cursor = entry.cursor
            # In a burst, a client that reads its events must not be mistaken for one that does not: it always has time
            # to read half a buffer before the next quarter arrives.
            if (number % piece == 0 or number == len(batch)) and any(client.half_full for client in self._live):
                await asyncio.sleep(_BURST_PAUSE)

    def check_room(self, caller: str) -> None:
        """Keep room for a stream of this caller; raises `ProblemError` if they, or all together, have too many open."""
        settings, now = self._settings, asyncio.get_running_loop().time()
        self._pending = [each for each in self._pending if now < each.until]
        own = sum(client.access is not None and client.access.caller == caller for client in self._connected)
        own += sum(each.caller == caller for each in self._pending)
        if own >= settings.max_per_caller:
            self.counters.refused += 1
            detail = f"you have {own} event streams open, which is the limit; close some of them"
            raise ProblemError(ProblemCode.TOO_MANY_STREAMS, detail)
        if (total := self.clients + len(self._pending)) >= settings.max_clients:
            self.counters.refused += 1
            detail = f"{total} event streams are open, which is the limit; try again later"
            raise ProblemError(ProblemCode.TOO_MANY_STREAMS, detail)
        self._pending.append(_PendingStream(caller, now + _OPENING_SECONDS))

    async def subscribe(
        self,
        event_filter: EventFilter | None = None,
        last_event_id: str | None = None,
        access: StreamAccess | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes for one client, until it disconnects, is cut off, its access ends, or the stream stops."""
        client = StreamClient(event_filter or EventFilter(), self._settings.buffer, access)
        self._connected[client] = None
        self.counters.opened += 1
        pending = next((each for each in self._pending if access is not None and each.caller == access.caller), None)
        if pending is not None:
            self._pending.remove(pending)
        try:
            if self._stopping:
                yield self._shutdown_notice()
                return
            if last_event_id is None:
                self._go_live(client)
            yield self._preamble(client)
            if last_event_id is not None:
                async with aclosing(self._catch_up(client, last_event_id)) as missed:
                    async for chunk in missed:
                        yield chunk
            while client.final is None:
                chunk = await client.chunk(lambda: self._heartbeat(client))
                if chunk:
                    yield chunk
            yield client.final
        finally:
            self._connected.pop(client, None)
            self._live.pop(client, None)

    # Catching up

    async def _catch_up(self, client: StreamClient, last_event_id: str) -> AsyncGenerator[bytes, None]:
        """Send what the journal has since then, and continue live."""
        try:
            reason = await self._why_not_resumable(last_event_id)
            if reason is not None:
                yield self._reset(client, reason)
                return
            client.cursor = last_event_id
            while client.final is None:
                page = await self._store.read_journal(after=client.cursor, limit=_PAGE)
                # Checked after the page was read: the retention marker is stored before the first entry is deleted.
                if await self._has_expired(client, client.cursor):
                    yield self._reset(client, _EXPIRED_REASON)
                    return
                chunk = b"".join([self._encode(entry, client) for entry in page if await self._matches(client, entry)])
                client.cursor = page[-1].cursor if page else client.cursor
                if chunk:
                    yield chunk
                if len(page) == _PAGE or client.final is not None:
                    continue
                if client in self._live:
                    client.caught_up()
                    return
                # Later commits are sent live; earlier ones are on the next page. An entry that comes both ways is sent
                # once, because of its cursor.
                self._live[client] = None
        except StoreError as error:
            log.info("client could not catch up", error=str(error))
            reason = "the store cannot be read; reconnect with Last-Event-ID"
            client.end(format_notice("unavailable", reason, last_event_id=client.cursor or last_event_id))

    def _reset(self, client: StreamClient, reason: str) -> bytes:
        """Continue live and send a reset: what the client has missed cannot be sent."""
        self.counters.resets += 1
        self._go_live(client)
        return format_notice("reset", reason, client.cursor)

    async def _has_expired(self, client: StreamClient, cursor: str) -> bool:
        """Whether matching entries after this cursor may have been deleted."""
        through = await deleted_through(self._store, client.filter.topics)
        return through is not None and through > cursor

    async def _why_not_resumable(self, last_event_id: str) -> str | None:
        """Why the client cannot catch up; None if it can."""
        try:
            number = parse_journal_cursor(last_event_id)
        except InvalidCursorError:
            return "the Last-Event-ID is not valid; read again"
        newest = await self._store.read_journal(newest_first=True, limit=1)
        if not newest or not number or last_event_id > newest[0].cursor:
            return "the Last-Event-ID is not known; read again"
        if parse_journal_cursor(newest[0].cursor) - number > self._settings.max_replayed:
            return "the Last-Event-ID is too old; read again"
        return None

    # Live events

    def _go_live(self, client: StreamClient) -> None:
        client.cursor = self._cursor
        self._live[client] = None

    def _send(self, entry: JournalEntry, region: str | None) -> None:
        events: dict[bool, bytes] = {}  # as roles of the fleet see it, and as members of its team do
        for client in list(self._live):
            if not client.matches(entry, region):
                continue
            if client.in_teams_only not in events:
                events[client.in_teams_only] = self._encode(entry, client)
            self._offer(client, entry.cursor, events[client.in_teams_only])
        self.counters.events += bool(events)

    def _offer(self, client: StreamClient, cursor: str | None, event: bytes) -> None:
        if client.offer(cursor, event):
            return
        self.counters.cut_off += 1
        self._live.pop(client)
        reason = "events were not read fast enough; reconnect with Last-Event-ID"
        client.end(format_notice("overflow", reason))

    async def _matches(self, client: StreamClient, entry: JournalEntry) -> bool:
        region = await self._regions.region_of(entry) if client.filter.regions else None
        return client.matches(entry, region)

    async def _region(self, entry: JournalEntry) -> str | None:
        if not any(client.filter.regions for client in self._live):
            return None
        return await self._regions.region_of(entry)

    def _encode(self, entry: JournalEntry, client: StreamClient) -> bytes:
        body = entry.body
        shown = _SHOWN.get(entry.topic)
        if client.in_teams_only and shown is not None:
            body = shown(client.scope, body)
        return format_event(entry.topic, body, entry.cursor)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat)
            for client in self._live:
                client.request_heartbeat()

    async def _check_access(self) -> None:
        """End the streams whose token or session has ended. While the store cannot be read, nothing is known of it."""
        while True:
            await asyncio.sleep(self._settings.access_check)
            for client in list(self._connected):
                if client.access is None or client.final is not None or await self._has_access(client.access):
                    continue
                self.counters.signed_out += 1
                self._live.pop(client, None)
                client.end(format_notice("signed_out", "your access has ended; sign in again"))

    async def _has_access(self, access: StreamAccess) -> bool:
        """Whether the caller may still read. A fault while this is found out ends their stream and no other."""
        try:
            return await access.still_valid()
        except StoreError:
            return True
        except Exception:
            log.exception("access of a stream cannot be checked; it ends", caller=access.caller)
            return False

    def _preamble(self, client: StreamClient) -> bytes:
        """The retry interval and the current cursor: a client that leaves before the first event misses nothing."""
        event_id = f"id: {client.cursor}\n" if client.cursor is not None else ""
        return f"retry: {self._settings.retry * 1000:.0f}\n{event_id}\n".encode()

    def _heartbeat(self, client: StreamClient) -> bytes:
        """Carries the current cursor, so that a client with a narrow filter does not fall too far behind.

        It is an event and not a comment: browser scripts do not see comments, and could not detect a dead connection.
        """
        cursors = [cursor for cursor in (client.cursor, self._cursor) if cursor is not None]
        return format_event("heartbeat", b"{}", max(cursors) if cursors else None)

    def _shutdown_notice(self) -> bytes:
        return format_notice("shutdown", "the server is shutting down; reconnect with Last-Event-ID")
