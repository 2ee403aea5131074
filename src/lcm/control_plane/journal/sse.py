"""The journal as server-sent events, for any number of listeners.

An event is encoded once and the same bytes go to everybody who wants it. Each client has a small buffer of its own: one
that does not take its events is cut off and told where to go on, and the rest never waits for it. The id of an event is
its place in the journal, so whoever comes back with `Last-Event-ID` is told from the store what it has missed.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.journal.retention import deleted_through
from lcm.control_plane.journal.sse_client import EventFilter, StreamClient, format_event, format_notice
from lcm.control_plane.records.kinds import WORKER_CHANGED, WORKERS
from lcm.control_plane.store.cursors import parse_journal_cursor
from lcm.control_plane.store.port import InvalidCursorError, StoreError
from lcm.core.hosting import HostedService, cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from lcm.control_plane.journal.feed import JournalFeed
    from lcm.control_plane.store.port import JournalEntry, Store

log = structlog.get_logger(__name__)

_PAGE = 100
_BURST_PAUSE = 0.02
_MAX_CACHED_REGIONS = 20_000
_EXPIRED_REASON = "what happened since the Last-Event-ID is not kept that long; read again"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Bounds of the stream; times in seconds."""

    buffer: int = 256  # events that wait for one client
    heartbeat: float = 15.0
    max_replayed: int = 10_000  # lines of the journal that a client may be behind
    retry: float = 2.0  # after which a client comes back


@dataclass(slots=True)
class StreamCounters:
    """What the stream has done so far."""

    opened: int = 0
    cut_off: int = 0
    resets: int = 0
    events: int = 0  # told to at least one client


@dataclass(slots=True)
class _WorkerRegions:
    """Which region a worker is in: it never moves, so it is looked up once."""

    store: Store
    known: dict[str, str | None] = field(default_factory=dict)

    async def of(self, line: JournalEntry) -> str | None:
        """The region of the worker that a line is about; None: it is not about a worker."""
        if line.subject not in self.known:
            body = line.body if line.topic == WORKER_CHANGED else await self._worker(line.subject)
            if len(self.known) >= _MAX_CACHED_REGIONS:
                del self.known[next(iter(self.known))]
            self.known[line.subject] = json.loads(body)["aws_region"] if body is not None else None
        return self.known[line.subject]

    async def _worker(self, subject: str) -> bytes | None:
        try:
            stored = await self.store.get(WORKERS, subject)
        except ValueError:
            return None  # it can be no worker's id
        return stored.body if stored else None


class EventStream(HostedService):
    """Tells clients what is committed. It stops before whatever serves HTTP, so that clients hear of the end."""

    def __init__(
        self,
        store: Store,
        feed: JournalFeed,
        settings: StreamSettings | None = None,
        *,
        shown: Callable[[JournalEntry], bytes] = lambda line: line.body,
    ) -> None:
        """`shown` says what of a line clients may see, as JSON."""
        super().__init__("events")
        self._store = store
        self._feed = feed
        self._settings = settings or StreamSettings()
        self._shown = shown
        self._regions = _WorkerRegions(store)
        self._clients: dict[StreamClient, None] = {}  # who listens
        self._present: dict[StreamClient, None] = {}  # and who is still being told what it has missed
        self._place: str | None = None
        self._stopping = False
        self._leave: Callable[[], None] = lambda: None
        self.figures = StreamCounters()

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._present)

    async def start(self) -> None:
        """Begin to listen to the journal."""
        self._leave = self._feed.subscribe(self)
        self._spawn(self._pulse(), "heartbeat")

    async def stop(self) -> None:
        """Tell every client that this is the end; each has ended when it has taken that."""
        self._stopping = True
        self._leave()
        for client in self._present:
            client.end(self._farewell())
        self._clients.clear()
        await cancel_and_wait(list(self._background))

    def gap(self) -> None:
        """Tell all clients to look for themselves."""
        self._place = self._feed.position
        self.figures.resets += len(self._clients)
        reset = format_notice("reset", "some events were missed; read again", self._place)
        for client in list(self._clients):
            self._offer(client, self._place, reset)

    async def lines(self, batch: Sequence[JournalEntry]) -> None:
        """Tell those who want to know."""
        piece = max(1, self._settings.buffer // 4)
        for number, line in enumerate(batch, 1):
            region = await self._region(line)
            self._tell(line, region)
            self._place = line.cursor
            # In a burst whoever takes its events must not pass for one who does not: there is always time to take what
            # fills half the buffer before the next quarter comes.
            if (number % piece == 0 or number == len(batch)) and any(client.half_full for client in self._clients):
                await asyncio.sleep(_BURST_PAUSE)

    async def subscribe(
        self, wanted: EventFilter | None = None, last_event_id: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes for one client, until it goes, is cut off, or the stream stops."""
        client = StreamClient(wanted or EventFilter(), self._settings.buffer)
        self._present[client] = None
        self.figures.opened += 1
        try:
            if self._stopping:
                yield self._farewell()
                return
            if last_event_id is None:
                self._listen(client)
            yield self._greeting(client)
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
            self._present.pop(client, None)
            self._clients.pop(client, None)

    # What a client has missed

    async def _catch_up(self, client: StreamClient, last_event_id: str) -> AsyncGenerator[bytes, None]:
        """Tell what the journal has since then, and listen from there on."""
        try:
            lost = await self._lost(last_event_id)
            if lost is not None:
                yield self._begin_anew(client, lost)
                return
            client.place = last_event_id
            while client.final is None:
                page = await self._store.journal(after=client.place, limit=_PAGE)
                # Looked up after the page was read: how far lines are forgotten is stored before the first one goes.
                if await self._forgotten(client, client.place):
                    yield self._begin_anew(client, _EXPIRED_REASON)
                    return
                chunk = b"".join([self._frame(line) for line in page if await self._wants(client, line)])
                client.place = page[-1].cursor if page else client.place
                if chunk:
                    yield chunk
                if len(page) == _PAGE or client.final is not None:
                    continue
                if client in self._clients:
                    client.caught_up()
                    return
                # What is committed from now on is told live; what was before is on the next page. Lines that come
                # both ways are told once, because each has its place.
                self._clients[client] = None
        except StoreError as error:
            log.info("a client could not be told what it has missed", error=str(error))
            reason = "the store cannot be read; come back with Last-Event-ID"
            client.end(format_notice("unavailable", reason, last_event_id=client.place or last_event_id))

    def _begin_anew(self, client: StreamClient, why: str) -> bytes:
        """Let it listen from now on, and tell it to read again: what it has missed cannot be told."""
        self.figures.resets += 1
        self._listen(client)
        return format_notice("reset", why, client.place)

    async def _forgotten(self, client: StreamClient, place: str) -> bool:
        """Whether lines after this place that it wants may be gone."""
        through = await deleted_through(self._store, client.wanted.topics)
        return through is not None and through > place

    async def _lost(self, last_event_id: str) -> str | None:
        """Why it cannot be told what it has missed, if so."""
        try:
            number = parse_journal_cursor(last_event_id)
        except InvalidCursorError:
            return "the Last-Event-ID is not one of ours; read again"
        newest = await self._store.journal(newest_first=True, limit=1)
        if not newest or not number or last_event_id > newest[0].cursor:
            return "the Last-Event-ID is not known; read again"
        if parse_journal_cursor(newest[0].cursor) - number > self._settings.max_replayed:
            return "the Last-Event-ID is too old; read again"
        return None

    # What happens now

    def _listen(self, client: StreamClient) -> None:
        client.place = self._place
        self._clients[client] = None

    def _tell(self, line: JournalEntry, region: str | None) -> None:
        event: bytes | None = None
        for client in list(self._clients):
            if not client.wants(line, region):
                continue
            event = event or self._frame(line)
            self._offer(client, line.cursor, event)
        self.figures.events += event is not None

    def _offer(self, client: StreamClient, cursor: str | None, event: bytes) -> None:
        if client.offer(cursor, event):
            return
        self.figures.cut_off += 1
        self._clients.pop(client)
        reason = "events were not taken fast enough; come back with Last-Event-ID"
        client.end(format_notice("overflow", reason))

    async def _wants(self, client: StreamClient, line: JournalEntry) -> bool:
        region = await self._regions.of(line) if client.wanted.regions else None
        return client.wants(line, region)

    async def _region(self, line: JournalEntry) -> str | None:
        if not any(client.wanted.regions for client in self._clients):
            return None
        return await self._regions.of(line)

    def _frame(self, line: JournalEntry) -> bytes:
        return format_event(line.topic, self._shown(line), line.cursor)

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat)
            for client in self._clients:
                client.pulse()

    def _greeting(self, client: StreamClient) -> bytes:
        """When to come back, and from where: also one who goes before the first event misses nothing."""
        place = f"id: {client.place}\n" if client.place is not None else ""
        return f"retry: {self._settings.retry * 1000:.0f}\n{place}\n".encode()

    def _heartbeat(self, client: StreamClient) -> bytes:
        """Whoever wants little keeps a fresh place, so that it is not too old one day.

        It is an event and not a comment: scripts in a browser do not hear of comments, and could not tell a dead line.
        """
        places = [place for place in (client.place, self._place) if place is not None]
        return format_event("heartbeat", b"{}", max(places) if places else None)

    def _farewell(self) -> bytes:
        return format_notice("shutdown", "the server stops; come back with Last-Event-ID")
