"""Forgetting old lines of the journal, and knowing afterwards how far they were forgotten.

How far is stored before a single line goes: whoever finds lines missing finds out that they are. Of a topic only what
stands before all younger lines is forgotten, so that a line with the time of a wrong clock takes no other along.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import (
    AUDIT,
    LABLET_CHANGED,
    LABLET_HISTORY,
    RETENTION_MARKERS,
    WORKER_CHANGED,
    WORKER_HISTORY,
)
from lcm.control_plane.store.port import Put, RevisionConflictError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from lcm.control_plane.store.port import JournalEntry, Store

RETAINED_TOPICS = (AUDIT, WORKER_HISTORY, WORKER_CHANGED, LABLET_HISTORY, LABLET_CHANGED)
_EVENT_TOPICS = (WORKER_CHANGED, LABLET_CHANGED)
_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long lines are kept. Changes of records are large and serve only those who come back to the stream."""

    journal: timedelta | None = timedelta(days=90)  # None: for ever
    events: timedelta = timedelta(hours=24)

    def of(self, topic: str) -> timedelta | None:
        """How long lines of a topic are kept; None: for ever."""
        return self.events if topic in _EVENT_TOPICS else self.journal


async def delete_expired_entries(store: Store, retention: RetentionPolicy) -> int:
    """Forget what is too old, in small portions; says how many lines went."""
    gone = 0
    for topic in RETAINED_TOPICS:
        kept_for = retention.of(topic)
        while kept_for is not None and (portion := await _delete_batch(store, topic, clock.now() - kept_for)):
            gone += portion
    return gone


async def deleted_through(store: Store, topics: Collection[str] = ()) -> str | None:
    """The last line of these topics, or of any, that may be gone; None: all that was ever told is there."""
    asked = [topic for topic in RETAINED_TOPICS if not topics or topic in topics]
    found = await store.get_many(RETENTION_MARKERS, asked)
    return max((json.loads(stored.body)["through"] for stored in found.values()), default=None)


async def _delete_batch(store: Store, topic: str, before: datetime) -> int:
    """One portion. Another control plane that is at it too does no harm: the mark only moves forward."""
    stored = await store.get(RETENTION_MARKERS, topic)
    marked = None if stored is None else str(json.loads(stored.body)["through"])
    last = _last_expired(await store.journal(topics=[topic], limit=_BATCH_SIZE), before, clock.now())
    if last is None:
        return 0
    if marked is None or last.cursor > marked:
        body = json.dumps({"through": last.cursor}).encode()
        try:
            await store.commit([Put(RETENTION_MARKERS, topic, body, None if stored is None else stored.revision)])
        except RevisionConflictError:
            return 0  # somebody else forgets these; what is left comes next time
    return await store.forget(topic, through=last.cursor, limit=_BATCH_SIZE)


def _last_expired(lines: Iterable[JournalEntry], before: datetime, now: datetime) -> JournalEntry | None:
    """The last line before which all are old. One that claims to come from the future tells nothing, and is passed."""
    last: JournalEntry | None = None
    for line in lines:
        if before <= line.at <= now:
            break
        if line.at < before:
            last = line
    return last
