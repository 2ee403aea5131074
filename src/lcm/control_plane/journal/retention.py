"""Journal retention: deletes old entries, and records how far. Also the service that runs such tasks periodically.

The marker is stored before the first entry is deleted, so a reader can tell that it missed entries. An entry is
deleted only if no younger one comes before it, so a wrong clock does not cause other entries to be deleted.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import structlog

from lcm.control_plane.records.kinds import (
    ALERT,
    AUDIT,
    BOOKING_CHANGED,
    LABLET_CHANGED,
    LABLET_HISTORY,
    RETENTION_MARKERS,
    WORKER_CHANGED,
    WORKER_HISTORY,
)
from lcm.control_plane.store.port import Put, RevisionConflictError
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from lcm.control_plane.store.port import JournalEntry, Store

    MaintenanceTask: TypeAlias = Callable[[], Awaitable[int]]


log = structlog.get_logger(__name__)

MAINTENANCE_INTERVAL = 600.0
RETAINED_TOPICS = (AUDIT, WORKER_HISTORY, WORKER_CHANGED, LABLET_HISTORY, LABLET_CHANGED, ALERT, BOOKING_CHANGED)
_EVENT_TOPICS = (WORKER_CHANGED, LABLET_CHANGED, BOOKING_CHANGED)
_BATCH_SIZE = 500
_MIN_ALERT_RETENTION = timedelta(hours=48)  # notifications are retried for 24 hours


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long entries are kept. Change events are large, and only serve clients that resume the stream."""

    journal: timedelta | None = timedelta(days=90)  # None: forever
    events: timedelta = timedelta(hours=24)

    def for_topic(self, topic: str) -> timedelta | None:
        """How long entries of a topic are kept; None: forever. Alerts are kept until they are no longer retried."""
        if topic == ALERT and self.journal is not None:
            return max(self.journal, _MIN_ALERT_RETENTION)
        return self.events if topic in _EVENT_TOPICS else self.journal


async def delete_expired_entries(store: Store, retention: RetentionPolicy) -> int:
    """Delete expired entries in small batches; returns the number."""
    deleted = 0
    for topic in RETAINED_TOPICS:
        kept_for = retention.for_topic(topic)
        while kept_for is not None and (batch := await _delete_batch(store, topic, clock.earliest_now() - kept_for)):
            deleted += batch
    return deleted


async def deleted_through(store: Store, topics: Collection[str] = ()) -> str | None:
    """The cursor of the last entry of these topics, or of any, that may be deleted; None if none ever was."""
    selected = [topic for topic in RETAINED_TOPICS if not topics or topic in topics]
    markers = await store.get_many(RETENTION_MARKERS, selected)
    return max((json.loads(stored.body)["through"] for stored in markers.values()), default=None)


async def _delete_batch(store: Store, topic: str, before: datetime) -> int:
    """Delete one batch. Another control plane may do the same at once: the marker only moves forward."""
    stored = await store.get(RETENTION_MARKERS, topic)
    marked = None if stored is None else str(json.loads(stored.body)["through"])
    last = _last_expired(await store.read_journal(topics=[topic], limit=_BATCH_SIZE), before, clock.now())
    if last is None:
        return 0
    if marked is None or last.cursor > marked:
        body = json.dumps({"through": last.cursor}).encode()
        try:
            await store.commit([Put(RETENTION_MARKERS, topic, body, None if stored is None else stored.revision)])
        except RevisionConflictError:
            return 0  # another control plane deletes these; the rest follows next time
    return await store.trim_journal(topic, through=last.cursor, limit=_BATCH_SIZE)


def _last_expired(entries: Iterable[JournalEntry], before: datetime, now: datetime) -> JournalEntry | None:
    """The last entry before which all are expired. An entry dated in the future is skipped."""
    last: JournalEntry | None = None
    for entry in entries:
        if before <= entry.at <= now:
            break
        if entry.at < before:
            last = entry
    return last


class MaintenanceService(HostedService):
    """Runs all tasks in turn at a fixed interval. A task that failed runs again at the next interval."""

    def __init__(self, tasks: Mapping[str, MaintenanceTask], *, every: float = MAINTENANCE_INTERVAL) -> None:
        """A task returns the number of items it has removed."""
        super().__init__("maintenance")
        self._tasks = tasks
        self._every = every

    async def start(self) -> None:
        """The first run is one interval after the start, so that it does not slow the start down."""
        self._spawn(self._run(), "tasks")

    async def stop(self) -> None:
        """Cancel a running task: each can be interrupted at any point."""
        await cancel_and_wait(list(self._background))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            for name, task in self._tasks.items():
                try:
                    removed = await task()
                except Exception:
                    log.exception("maintenance task failed; will retry", task=name, retry_in_seconds=self._every)
                else:
                    log.debug("maintenance task done", task=name, removed=removed)
