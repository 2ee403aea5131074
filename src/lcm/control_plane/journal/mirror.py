"""Records mirrored into coordination, so that controllers can watch them.

A key holds what a controller must react to and nothing else: it is written when one of these facts changes, which a
record's version tells, and never because metrics, activity or a decision were kept beside the record.

The mirror is level-triggered. A line of the journal only says which record to look at. The key is seen first, the
record read after it, and the key written only if it still is as it was seen: a newer one is never overwritten, however
many control planes mirror at once. What was missed, by an outage, a lost answer or a hand, is found by comparing
all keys with all records: at the start, after every gap, and now and then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.journal.mirror_keys import WORKER_MIRROR, MirrorKeys, mirrored_version
from lcm.control_plane.store.port import StoreError
from lcm.core.backoff import Backoff
from lcm.core.coordination import CoordinationError, CoordinationOutcomeUnknownError, CoordinationUnavailableError
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running
from lcm.core.workqueue import Priority, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.journal.feed import JournalFeed
    from lcm.control_plane.journal.mirror_keys import MirrorSpec
    from lcm.control_plane.store.port import JournalEntry, Store, StoredDocument
    from lcm.core.coordination import Coordination, KeyValue

log = structlog.get_logger(__name__)

_PAGE = 100
_MAX_ATTEMPTS = 5
_RETRY_BACKOFF = Backoff(base=0.5, longest=30.0)
_PROBE_BACKOFF = Backoff(base=0.5, longest=10.0)


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """How often is looked and how long is waited, in seconds."""

    compare_every: float = 300.0
    check_every: float = 10.0
    max_lag: float = 30.0  # beyond it the control plane is not ready
    patience: float = 60.0  # with a key that is newer than its record
    concurrency: int = 8


@dataclass(slots=True)
class MirrorCounters:
    """What the mirror has done so far."""

    written: int = 0
    deleted: int = 0
    mended: int = 0  # writes and deletions that only a comparison found necessary
    failed: int = 0  # attempts that were put off
    comparisons: int = 0


class Mirror(HostedService):
    """Keeps the keys of one kind equal to its records."""

    def __init__(
        self,
        store: Store,
        coordination: Coordination,
        feed: JournalFeed,
        mirrored: MirrorSpec = WORKER_MIRROR,
        settings: MirrorSettings | None = None,
    ) -> None:
        super().__init__(f"mirror of {mirrored.kind.name}")
        self._store = store
        self._coordination = coordination
        self._feed = feed
        self._mirrored = mirrored
        self._settings = settings or MirrorSettings()
        self._queue: WorkQueue[str] = WorkQueue()
        self._keys = MirrorKeys(coordination, mirrored.prefix)
        self._waiting: dict[str, float] = {}  # ids not yet in step, and since when
        self._under_way: dict[str, float] = {}
        self._retries: dict[str, int] = {}
        self._mending: set[str] = set()
        self._ahead: dict[str, tuple[int, float]] = {}  # keys newer than their record: revision, since when
        self._comparison = asyncio.Event()
        self._comparison_asked: float | None = None  # since when
        self._gaps = 0
        self._unreachable: str | None = None
        self._refused: str | None = None  # what was last said of a record that cannot be mirrored
        self._stopping = False
        self._leave: Callable[[], None] = lambda: None
        self.figures = MirrorCounters()

    async def start(self) -> None:
        """Begin to mirror, in the background: whatever is down does not hold up the process."""
        self._leave = self._feed.subscribe(self)
        for number in range(self._settings.concurrency):
            self._spawn(self._run_lane(), f"lane {number}")
        self._spawn(keep_running(self.name, self._compare_and_probe, _PROBE_BACKOFF), "comparison")

    async def stop(self) -> None:
        """Leave the keys as they are: whoever starts next compares them."""
        # Told besides being cancelled: gRPC swallows a cancellation that meets an answer.
        self._stopping = True
        self._comparison.set()
        self._leave()
        await cancel_and_wait(list(self._background))

    @property
    def lag(self) -> float:
        """Seconds for which something has been waiting to be mirrored or compared."""
        asked = () if self._comparison_asked is None else (self._comparison_asked,)
        since = (*self._waiting.values(), *self._under_way.values(), *asked)
        return asyncio.get_running_loop().time() - min(since) if since else 0.0

    @property
    def pending(self) -> int:
        """How many records are known to be not yet in step."""
        return len(self._waiting.keys() | self._under_way.keys())

    def readiness(self) -> list[str]:
        """Says when coordination cannot be reached and when controllers would learn of changes too late."""
        reasons = [f"coordination: {self._unreachable}"] if self._unreachable is not None else []
        if self.lag > self._settings.max_lag:
            reasons.append(f"{self.name}: {self.pending} wait, the longest for {self.lag:.0f} s")
        return reasons

    def gap(self) -> None:
        """Compare everything: some change may not have been told."""
        self._gaps += 1
        if self._comparison_asked is None:
            self._comparison_asked = asyncio.get_running_loop().time()
        self._comparison.set()

    async def lines(self, batch: Sequence[JournalEntry]) -> None:
        """Have those records looked at whose facts may have changed."""
        for line in batch:
            if line.topic != self._mirrored.topic:
                continue
            value = self._mirrored.value(line.body)
            if value is None or self._keys.value(line.subject) != value:
                self._wish(line.subject, Priority.HIGH)

    def _wish(self, record_id: str, priority: Priority) -> None:
        self._waiting.setdefault(record_id, asyncio.get_running_loop().time())
        self._queue.add(record_id, priority)

    async def _run_lane(self) -> None:
        while not self._stopping:
            record_id = await self._queue.get()
            since = self._waiting.pop(record_id, asyncio.get_running_loop().time())
            self._under_way[record_id] = since
            try:
                await self._settle(record_id)
            except Exception as error:  # noqa: BLE001 - one record that fails must not keep the others waiting
                self._waiting[record_id] = since
                self._queue.done_retry_after(record_id, self._retry_delay(record_id, error))
            else:
                if self._retries.pop(record_id, 0):
                    self._refused = None
                self._mending.discard(record_id)
                self._queue.done(record_id)
            finally:
                del self._under_way[record_id]

    def _retry_delay(self, record_id: str, error: Exception) -> float:
        self.figures.failed += 1
        retries = self._retries.get(record_id, 0)
        self._retries[record_id] = retries + 1
        if isinstance(error, (CoordinationUnavailableError, CoordinationOutcomeUnknownError)):
            self._comparison.set()  # have the probe find out whether this is an outage
        elif not isinstance(error, StoreError) and str(error) != self._refused:
            self._refused = str(error)
            log.error("a record cannot be mirrored; trying again", record=record_id, error=str(error))
        return _RETRY_BACKOFF.delay(retries)

    async def _settle(self, record_id: str) -> None:
        """Bring one key in step with its record."""
        seen = await self._keys.seen(record_id)
        for _ in range(_MAX_ATTEMPTS):
            # Read after the key was seen: a record older than its key has then gone back, it is not merely late.
            stored = await self._stored(record_id)
            value = self._mirrored.value(stored.body) if stored else None
            if (seen.value if seen else None) == value:
                break
            if seen and _is_ahead(seen, stored, value) and not self._has_waited_long_enough(record_id, seen):
                return
            if await self._keys.change(record_id, seen, value):
                self._count(record_id, value)
                break
            seen = await self._keys.seen(record_id)
        else:
            raise CoordinationUnavailableError(f"{self._mirrored.prefix}{record_id} changes all the time")
        self._ahead.pop(record_id, None)

    def _count(self, record_id: str, value: bytes | None) -> None:
        self.figures.written += value is not None
        self.figures.deleted += value is None
        self.figures.mended += record_id in self._mending

    def _has_waited_long_enough(self, record_id: str, seen: KeyValue) -> bool:
        """A key newer than its record is another control plane's, unless the store was put back to an older state.

        The first must never be overwritten, the second must not stay: a key that is still the same after a while, while
        the store still does not know its version, is of the second sort.
        """
        now = asyncio.get_running_loop().time()
        revision, since = self._ahead.get(record_id, (None, now))
        if revision != seen.mod_revision:
            since = now
            self._ahead[record_id] = (seen.mod_revision, since)
        left = since + self._settings.patience - now
        if left > 0:
            self._queue.add_after(record_id, left)
            return False
        log.warning("a key was newer than its record and is put back", key=seen.key, had=mirrored_version(seen.value))
        self._mending.add(record_id)
        return True

    async def _stored(self, record_id: str) -> StoredDocument | None:
        try:
            return await self._store.get(self._mirrored.kind, record_id)
        except ValueError:
            return None  # a key somebody made whose name can be no record's id

    async def _compare_and_probe(self) -> None:
        """Compare when it is time or was asked for; in between see whether coordination answers."""
        loop = asyncio.get_running_loop()
        due, failures = loop.time() + self._settings.compare_every, 0
        while not self._stopping:
            self._comparison.clear()
            try:
                if self._comparison_asked is not None or loop.time() >= due:
                    await self._compare()
                    due = loop.time() + self._settings.compare_every
                else:
                    await self._coordination.check()
                self._note_reachable()
                await self._pause(min(self._settings.check_every, max(0.0, due - loop.time())))
                failures = 0
            except (CoordinationError, StoreError) as error:
                self._note_failure(error)
                await asyncio.sleep(_PROBE_BACKOFF.delay(failures))
                failures += 1

    async def _compare(self) -> None:
        gaps = self._gaps
        await self._keys.refresh_all()
        superfluous = self._keys.ids()
        after: str | None = None
        while True:
            page = await self._store.find(self._mirrored.kind, self._mirrored.where, after=after, limit=_PAGE)
            for stored in page.items:
                superfluous.discard(stored.id)
                if self._keys.value(stored.id) != self._mirrored.value(stored.body):
                    self._repair(stored.id)
            after = page.next_cursor
            if after is None:
                break
        for record_id in sorted(superfluous & self._keys.ids()):
            self._repair(record_id)
        self.figures.comparisons += 1
        if self._gaps == gaps:  # else one came while we compared, and may be about what we had passed already
            self._comparison_asked = None

    def _repair(self, record_id: str) -> None:
        if record_id not in self._waiting and record_id not in self._under_way:
            self._mending.add(record_id)
        self._wish(record_id, Priority.LOW)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._comparison.wait()
        except TimeoutError:
            return

    def _note_failure(self, error: CoordinationError | StoreError) -> None:
        self.gap()
        if isinstance(error, StoreError):
            return  # the feed says so
        if self._unreachable is None:
            log.warning("coordination cannot be reached; records wait", mirror=self.name, error=str(error))
        self._unreachable = str(error)

    def _note_reachable(self) -> None:
        if self._unreachable is not None:
            log.info("coordination is reached again", mirror=self.name)
        self._unreachable = None


def _is_ahead(seen: KeyValue, stored: StoredDocument | None, value: bytes | None) -> bool:
    there = mirrored_version(seen.value)
    return there is not None and (stored is None or (value is not None and there > (mirrored_version(value) or 0)))
