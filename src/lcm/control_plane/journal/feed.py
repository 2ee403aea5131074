"""The journal feed: what any process commits reaches all subscribers of this process in order.

The feed keeps a position in the journal and no entries of its own, so a slow subscriber costs time, not memory. A
commit of this process wakes it; it also polls, for the commits of other processes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from lcm.control_plane.journal.retention import deleted_through
from lcm.control_plane.store.cursors import parse_journal_cursor
from lcm.control_plane.store.port import InvalidCursorError, StoreError
from lcm.core.backoff import Backoff
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.store.port import JournalEntry, Store

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
ENTRIES_PER_BATCH = 64
_SUBSCRIBER_TIMEOUT = 5.0
_RETRY_BACKOFF = Backoff(base=0.25, max_delay=15.0)


class JournalSubscriber(Protocol):
    """Receives what was committed."""

    name: str

    def on_gap(self) -> None:
        """Entries may have been missed and will not be delivered: read the current state.

        Called first of all, and again after a failed delivery or a lost position in the journal.
        """

    async def on_entries(self, batch: Sequence[JournalEntry]) -> None:
        """The next entries, in order, none twice. Other subscribers wait meanwhile, so a slow call is cancelled."""


class JournalFeed(HostedService):
    """Delivers the journal from now on to its subscribers, in batches."""

    def __init__(self, store: Store, *, poll: float = POLL_SECONDS, batch: int = ENTRIES_PER_BATCH) -> None:
        super().__init__("journal")
        self._store = store
        self._poll = poll
        self._batch = batch
        self._woken = asyncio.Event()
        self._subscribers: list[JournalSubscriber] = []
        self._need_gap: list[JournalSubscriber] = []  # must be notified of a gap first
        self._failing: set[str] = set()
        self._failures = 0
        self._error: str | None = None
        self._following = False
        self._stopping = False
        self.position: str | None = None
        """The cursor of the last delivered entry; None if the journal was empty or is not followed yet."""

    def wake(self) -> None:
        """Read the journal now: this process has committed something."""
        self._woken.set()

    def subscribe(self, subscriber: JournalSubscriber) -> Callable[[], None]:
        """Deliver what is committed from now on; returns a function that ends the subscription."""
        self._subscribers.append(subscriber)
        if self._following:
            self._need_gap.append(subscriber)
            self.wake()

        def unsubscribe() -> None:
            for group in (self._subscribers, self._need_gap):
                if subscriber in group:
                    group.remove(subscriber)

        return unsubscribe

    async def start(self) -> None:
        """Follow the journal in the background: a store that is down does not block the start."""
        self._spawn(keep_running(self.name, self._run, _RETRY_BACKOFF), "follow")

    async def stop(self) -> None:
        # A flag besides the cancellation: MongoDB's driver swallows one that arrives together with a response.
        self._stopping = True
        self.wake()
        await cancel_and_wait(list(self._background))

    def readiness(self) -> list[str]:
        """Not ready while the journal cannot be read."""
        return [f"store: the journal cannot be read: {self._error}"] if self._error else []

    async def _run(self) -> None:
        while not self._stopping:
            try:
                delay = await self._deliver_batch()
            except StoreError as error:
                if isinstance(error, InvalidCursorError):
                    self._following = False  # the store was replaced
                delay = self._record_failure(str(error))
            if delay:
                await self._pause(delay)

    async def _deliver_batch(self) -> float:
        """Deliver one batch; returns the seconds to wait before the next."""
        if not self._following:
            await self._seek_end()
        # Cleared before reading: a commit during the read wakes us once more.
        self._woken.clear()
        if self._stopping:
            return 0.0
        batch = await self._store.read_journal(after=self.position, limit=self._batch)
        self._record_success()
        if batch and await self._has_gap_before(batch[0]):
            log.warning("journal entries expired before they were read here")
            await self._seek_end()
            return 0.0
        for subscriber in list(self._need_gap):
            self._notify_gap(subscriber)
        if not batch:
            return self._poll
        self.position = batch[-1].cursor
        for subscriber in [each for each in self._subscribers if each not in self._need_gap]:
            await self._deliver(subscriber, batch)
        return 0.0

    async def _has_gap_before(self, entry: JournalEntry) -> bool:
        """Whether undelivered entries were deleted: only after a pause longer than the retention period."""
        if self.position is None or parse_journal_cursor(entry.cursor) == parse_journal_cursor(self.position) + 1:
            return False
        through = await deleted_through(self._store)
        return through is not None and through > self.position

    async def _seek_end(self) -> None:
        newest = await self._store.read_journal(newest_first=True, limit=1)
        self.position = newest[0].cursor if newest else None
        self._following = True
        self._need_gap = list(self._subscribers)

    async def _deliver(self, subscriber: JournalSubscriber, batch: Sequence[JournalEntry]) -> None:
        try:
            async with asyncio.timeout(_SUBSCRIBER_TIMEOUT):
                await subscriber.on_entries(batch)
        except Exception as error:  # noqa: BLE001 - a failing subscriber must not block the others
            self._log_failing(subscriber, error)
            if subscriber in self._subscribers:
                self._need_gap.append(subscriber)
        else:
            self._failing.discard(subscriber.name)

    def _notify_gap(self, subscriber: JournalSubscriber) -> None:
        try:
            subscriber.on_gap()
        except Exception as error:  # noqa: BLE001 - as above
            self._log_failing(subscriber, error)
        else:
            self._need_gap.remove(subscriber)

    def _log_failing(self, subscriber: JournalSubscriber, error: Exception) -> None:
        if subscriber.name not in self._failing:
            self._failing.add(subscriber.name)
            log.error(
                "journal subscriber failed; it will be notified of a gap",
                subscriber=subscriber.name,
                exc_info=error,
            )

    async def _pause(self, delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._woken.wait()
        except TimeoutError:
            return

    def _record_failure(self, error: str) -> float:
        if self._error is None:
            log.warning("journal cannot be read; retrying", error=error)
        self._error = error
        self._failures += 1
        return _RETRY_BACKOFF.delay(self._failures - 1)

    def _record_success(self) -> None:
        if self._error is not None:
            log.info("journal can be read again", after_attempts=self._failures)
        self._error, self._failures = None, 0
