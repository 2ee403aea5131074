"""Clients of the event stream that read it like a browser."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.control_plane.journal.sse import EventStream, StreamSettings
from lcm.control_plane.records.kinds import WORKER_CHANGED
from lcm.control_plane.store.memory.store import MemoryDisk
from lcm.coordination.memory.client import MemoryCoordination
from tests.support.records.workers import a_worker
from tests.support.virtual.mirror_world import Plane

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from lcm.control_plane.journal.sse_client import EventFilter, StreamClient
    from lcm.control_plane.store.port import JournalEntry

SOON = 0.05  # seconds; everything that needs no time has happened by then


@dataclass(frozen=True)
class Event:
    """One event as a browser reads it."""

    name: str
    id: str | None
    data: Any


class Reader:
    """Reads a stream as a browser does: events, and the last id, also of blocks without an event."""

    def __init__(self, source: AsyncGenerator[bytes, None]) -> None:
        self._source = source
        self.text = b""
        self.events: list[Event] = []
        self.last_id: str | None = None
        self.heartbeats = 0
        self.ended = False
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._source:
            assert chunk.endswith(b"\n\n"), "whole events only"
            self.text += chunk
            for block in chunk.decode().removesuffix("\n\n").split("\n\n"):
                self._take(block.split("\n"))
        self.ended = True

    def _take(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        self.last_id = fields.get("id", self.last_id)
        if fields.get("event") == "heartbeat":
            self.heartbeats += 1
        elif "data" in fields:
            self.events.append(Event(fields["event"], fields.get("id"), json.loads(fields["data"])))

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    @property
    def versions(self) -> list[int]:
        return [event.data["version"] for event in self.events if event.name == WORKER_CHANGED]

    async def leave(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._source.aclose()


class _CountingStream(EventStream):
    encoded = 0

    def _encode(self, entry: JournalEntry, client: StreamClient) -> bytes:
        self.encoded += 1
        return super()._encode(entry, client)


class Studio:
    """A store that changes, and its stream."""

    def __init__(self, plane: Plane, settings: StreamSettings) -> None:
        self.plane = plane
        self.stream = _CountingStream(plane.store, plane.feed, settings)
        self.readers: list[Reader] = []

    async def reader(self, event_filter: EventFilter | None = None, last_event_id: str | None = None) -> Reader:
        reader = Reader(self.stream.subscribe(event_filter, last_event_id))
        self.readers.append(reader)
        await asyncio.sleep(SOON)
        return reader

    async def changes(self, count: int) -> None:
        for _ in range(count):
            await self.plane.edit(desired_status="STOPPED")
        await asyncio.sleep(SOON)

    async def cursors(self) -> list[str]:
        return [entry.cursor for entry in await self.plane.store.read_journal(limit=1000)]


@asynccontextmanager
async def a_studio() -> AsyncIterator[Studio]:
    """One worker, and a stream with small bounds."""
    plane = Plane(MemoryDisk(), MemoryCoordination())
    studio = Studio(plane, StreamSettings(buffer=30, max_replayed=500))
    await plane.start()
    await plane.add(a_worker())
    await studio.stream.start()
    await asyncio.sleep(SOON)
    try:
        yield studio
    finally:
        for reader in studio.readers:
            await reader.leave()
        await studio.stream.stop()
        await plane.stop()
