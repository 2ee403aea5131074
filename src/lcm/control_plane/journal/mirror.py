"""Mirrors records to coordination, so that controllers can watch them.

A key contains what a controller must react to and nothing else. It is written when one of these facts changes, which
also changes the record's version, and never because metrics, activity or a decision were stored beside the record.

The mirror is level-triggered. A journal entry only says which record to check. The key is read first, the record after
it, and the key is written only if it has not changed since: a newer key is never overwritten, however many control
planes mirror at once. What was missed, because of an outage, a lost response or a manual edit, is found by comparing
all keys with all records: at the start, after every gap, as soon as another cluster responds, and periodically.

The mirror never makes the control plane unready: without etcd people still read, hold and command. Controllers carry
out their commands when etcd is back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.journal.mirror_keys import WORKER_MIRROR, MirrorKeys, mirrored_version
from lcm.control_plane.records.kinds import find_all
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
    from lcm.core.coordination import Coordination, KeyValue, PrefixState

log = structlog.get_logger(__name__)

_MAX_ATTEMPTS = 5
_RETRY_BACKOFF = Backoff(base=0.5, max_delay=30.0)
_PROBE_BACKOFF = Backoff(base=0.5, max_delay=10.0)
_MISSING_EVERY = 10.0  # seconds between comparisons because of missing keys


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Intervals and limits, in seconds."""

    compare_every: float = 300.0
    check_every: float = 2.0
    max_lag: float = 30.0  # above this the control plane is degraded
    patience: float = 60.0  # before a key that is newer than its record is overwritten
    concurrency: int = 8


@dataclass(slots=True)
class MirrorCounters:
    """Counters of the mirror since the start."""

    written: int = 0
    deleted: int = 0
    mended: int = 0  # writes and deletions that only a comparison found
    failed: int = 0  # attempts that will be retried
    comparisons: int = 0
    replacements: int = 0  # of the cluster by another one, or of its data


class Mirror(HostedService):
    """Keeps the keys of one kind in sync with its records."""

    def __init__(
        self,
        store: Store,
        coordination: Coordination,
        feed: JournalFeed,
        spec: MirrorSpec = WORKER_MIRROR,
        settings: MirrorSettings | None = None,
    ) -> None:
        super().__init__(f"mirror of {spec.kind.name}")
        self._store = store
        self._coordination = coordination
        self._feed = feed
        self._spec = spec
        self._settings = settings or MirrorSettings()
        self._queue: WorkQueue[str] = WorkQueue()
        self._keys = MirrorKeys(coordination, spec.prefix)
        self._queued_since: dict[str, float] = {}  # ids that are not in sync, and since when
        self._running_since: dict[str, float] = {}
        self._retries: dict[str, int] = {}
        self._repairing: set[str] = set()
        self._ahead: dict[str, tuple[int, float]] = {}  # keys newer than their record: revision, since when
        self._comparison = asyncio.Event()
        self._comparison_requested: float | None = None  # since when
        self._gaps = 0
        self._cluster: PrefixState | None = None  # as last probed
        self._lacked_keys = False  # in the last probe
        self._unreachable: str | None = None
        self._last_error: str | None = None  # the last error of a record that cannot be mirrored
        self._stopping = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self.counters = MirrorCounters()

    async def start(self) -> None:
        """Mirror in the background: a store or etcd that is down does not block the start."""
        self._unsubscribe = self._feed.subscribe(self)
        for number in range(self._settings.concurrency):
            self._spawn(self._sync_queued(), f"sync {number}")
        self._spawn(keep_running(self.name, self._compare_and_probe, _PROBE_BACKOFF), "comparison")

    async def stop(self) -> None:
        """Stop mirroring. Keys stay as they are; the next start compares them."""
        # A flag besides the cancellation: gRPC swallows a cancellation that arrives together with a response.
        self._stopping = True
        self._comparison.set()
        self._unsubscribe()
        await cancel_and_wait(list(self._background))

    @property
    def lag(self) -> float:
        """Seconds for which the oldest pending record or comparison has been waiting."""
        requested = () if self._comparison_requested is None else (self._comparison_requested,)
        since = (*self._queued_since.values(), *self._running_since.values(), *requested)
        return asyncio.get_running_loop().time() - min(since) if since else 0.0

    @property
    def pending(self) -> int:
        """The number of records known to be out of sync."""
        return len(self._queued_since.keys() | self._running_since.keys())

    def degradation(self) -> list[str]:
        """Degraded while coordination is unreachable, or while changes reach controllers too late."""
        reasons = [f"coordination: {self._unreachable}"] if self._unreachable is not None else []
        if self.lag > self._settings.max_lag:
            reasons.append(f"{self.name}: {self.pending} pending, the oldest for {self.lag:.0f} s")
        return reasons

    def on_gap(self) -> None:
        """Compare everything: changes may have been missed."""
        self._gaps += 1
        if self._comparison_requested is None:
            self._comparison_requested = asyncio.get_running_loop().time()
        self._comparison.set()

    async def on_entries(self, batch: Sequence[JournalEntry]) -> None:
        """Queue the records whose facts may have changed."""
        for entry in batch:
            if entry.topic != self._spec.topic:
                continue
            if self._is_news(entry):
                self._enqueue(entry.subject, Priority.HIGH)

    def _is_news(self, entry: JournalEntry) -> bool:
        """Whether the facts of a record may have changed. One that cannot be read is queued, and reported there."""
        try:
            value = self._spec.value(entry.body)
        except (ValueError, TypeError, KeyError):
            return True
        return value is None or self._keys.value(entry.subject) != value

    def _enqueue(self, record_id: str, priority: Priority) -> None:
        self._queued_since.setdefault(record_id, asyncio.get_running_loop().time())
        self._queue.add(record_id, priority)

    async def _sync_queued(self) -> None:
        while not self._stopping:
            record_id = await self._queue.get()
            since = self._queued_since.pop(record_id, asyncio.get_running_loop().time())
            self._running_since[record_id] = since
            try:
                await self._sync(record_id)
            except Exception as error:  # noqa: BLE001 - a failing record must not block the others
                self._queued_since[record_id] = since
                self._queue.done_retry_after(record_id, self._retry_delay(record_id, error))
            else:
                if self._retries.pop(record_id, 0):
                    self._last_error = None
                self._repairing.discard(record_id)
                self._queue.done(record_id)
            finally:
                del self._running_since[record_id]

    def _retry_delay(self, record_id: str, error: Exception) -> float:
        self.counters.failed += 1
        retries = self._retries.get(record_id, 0)
        self._retries[record_id] = retries + 1
        if isinstance(error, (CoordinationUnavailableError, CoordinationOutcomeUnknownError)):
            self._comparison.set()  # let the probe find out whether this is an outage
        elif not isinstance(error, StoreError) and str(error) != self._last_error:
            self._last_error = str(error)
            log.error("record cannot be mirrored; retrying", record=record_id, error=str(error))
        return _RETRY_BACKOFF.delay(retries)

    async def _sync(self, record_id: str) -> None:
        """Bring one key in sync with its record."""
        key = await self._keys.last_seen(record_id)
        for _ in range(_MAX_ATTEMPTS):
            # Read after the key: a record that is older than its key was then rolled back, and is not just late.
            stored = await self._read_record(record_id)
            value = self._spec.value(stored.body) if stored else None
            if (key.value if key else None) == value:
                break
            if key and _is_ahead(key, stored, value) and not self._has_waited_long_enough(record_id, key):
                return
            if await self._keys.write(record_id, key, value):
                self._count(record_id, value)
                break
            key = await self._keys.last_seen(record_id)
        else:
            raise CoordinationUnavailableError(f"{self._spec.prefix}{record_id} changes too often")
        self._ahead.pop(record_id, None)

    def _count(self, record_id: str, value: bytes | None) -> None:
        self.counters.written += value is not None
        self.counters.deleted += value is None
        self.counters.mended += record_id in self._repairing

    def _has_waited_long_enough(self, record_id: str, key: KeyValue) -> bool:
        """A key newer than its record is from another control plane, unless the store was restored to an older state.

        The first must never be overwritten, the second must not stay. A key that has not changed for `patience`
        seconds, while the store still does not have its version, is of the second kind.
        """
        now = asyncio.get_running_loop().time()
        revision, since = self._ahead.get(record_id, (None, now))
        if revision != key.mod_revision:
            since = now
            self._ahead[record_id] = (key.mod_revision, since)
        left = since + self._settings.patience - now
        if left > 0:
            self._queue.add_after(record_id, left)
            return False
        log.warning("key is newer than its record; overwriting it", key=key.key, version=mirrored_version(key.value))
        self._repairing.add(record_id)
        return True

    async def _read_record(self, record_id: str) -> StoredDocument | None:
        try:
            return await self._store.get(self._spec.kind, record_id)
        except ValueError:
            return None  # a foreign key whose name is not a valid record id

    async def _compare_and_probe(self) -> None:
        """Compare when due or requested; probe coordination all the time."""
        loop = asyncio.get_running_loop()
        compared_at, failures, replacements = loop.time(), 0, 0
        while not self._stopping:
            self._comparison.clear()
            try:
                if self._comparison_requested is not None or self._left(compared_at) <= 0:
                    await self._compare()
                    compared_at = loop.time()
                state = await self._coordination.probe(self._spec.prefix)
                if self._is_replaced(state):
                    log.warning("coordination was replaced; comparing all keys", mirror=self.name)
                    self.counters.replacements += 1
                    self.on_gap()
                    # Two clusters that respond in turn, by a wrong configuration, must not cause a busy loop.
                    await asyncio.sleep(_PROBE_BACKOFF.delay(replacements) if replacements else 0.0)
                    replacements += 1
                    continue
                if self._lacks_keys(state) and loop.time() >= compared_at + _MISSING_EVERY:
                    log.warning("coordination lacks keys; comparing all", mirror=self.name, keys=state.keys)
                    self.on_gap()
                self._record_reachable()
                await self._pause(min(self._settings.check_every, max(0.0, self._left(compared_at))))
                failures = replacements = 0
            except (CoordinationError, StoreError) as error:
                self._record_failure(error)
                await asyncio.sleep(_PROBE_BACKOFF.delay(failures))
                failures += 1

    def _left(self, compared_at: float) -> float:
        """Seconds until the next periodic comparison."""
        return compared_at + self._settings.compare_every - asyncio.get_running_loop().time()

    def _is_replaced(self, state: PrefixState) -> bool:
        """Whether another cluster responds than before, or one whose data is older."""
        previous, self._cluster = self._cluster, state
        return previous is not None and (state.cluster_id != previous.cluster_id or state.revision < previous.revision)

    def _lacks_keys(self, state: PrefixState) -> bool:
        """Whether there are fewer keys than were written, in two probes in a row.

        A cluster that was set up again as before has the same id, and its revision may be higher by the next probe.
        Usually, though, another control plane has deleted keys, and its journal entries are on their way.
        """
        lacked_before = self._lacked_keys
        self._lacked_keys = not self.pending and state.keys < len(self._keys.ids())
        return self._lacked_keys and lacked_before

    async def _compare(self) -> None:
        gaps = self._gaps
        await self._keys.refresh_all()
        superfluous = self._keys.ids()
        async for stored in find_all(self._store, self._spec.kind, self._spec.where):
            superfluous.discard(stored.id)
            if self._differs(stored):
                self._repair(stored.id)
        for record_id in sorted(superfluous & self._keys.ids()):
            self._repair(record_id)
        self.counters.comparisons += 1
        if self._gaps == gaps:  # otherwise one came during the comparison, perhaps for records already compared
            self._comparison_requested = None

    def _differs(self, stored: StoredDocument) -> bool:
        """Whether a key is not as its record says. One that cannot be read is queued, and reported there."""
        try:
            return self._keys.value(stored.id) != self._spec.value(stored.body)
        except (ValueError, TypeError, KeyError):
            return True

    def _repair(self, record_id: str) -> None:
        if record_id not in self._queued_since and record_id not in self._running_since:
            self._repairing.add(record_id)
        self._enqueue(record_id, Priority.LOW)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._comparison.wait()
        except TimeoutError:
            return

    def _record_failure(self, error: CoordinationError | StoreError) -> None:
        self.on_gap()
        if isinstance(error, StoreError):
            return  # the feed reports it
        if self._unreachable is None:
            log.warning("coordination is unreachable; records wait", mirror=self.name, error=str(error))
        self._unreachable = str(error)

    def _record_reachable(self) -> None:
        if self._unreachable is not None:
            log.info("coordination is reachable again", mirror=self.name)
        self._unreachable = None


def _is_ahead(key: KeyValue, stored: StoredDocument | None, value: bytes | None) -> bool:
    key_version = mirrored_version(key.value)
    return key_version is not None and (
        stored is None or (value is not None and key_version > (mirrored_version(value) or 0))
    )
