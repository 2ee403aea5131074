"""Following the store's journal: what was committed, by whatever process, reaches everybody here in order.

The feed holds a place in the journal and no lines of its own, so a slow subscriber costs time, not memory. It is woken
after a commit of this process and looks by itself now and then for those of others.
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
_RETRY_BACKOFF = Backoff(base=0.25, longest=15.0)


class JournalSubscriber(Protocol):
    """Whoever wants to know what was committed."""

    name: str

    def gap(self) -> None:
        """Something may have been committed that was not and will not be told: look for yourself.

        This comes first of all, and again after a turn that failed or a place in the journal that was lost.
        """

    async def lines(self, batch: Sequence[JournalEntry]) -> None:
        """The next lines, in order, none twice. Others wait meanwhile, so a turn that takes too long is ended."""


class JournalFeed(HostedService):
    """Hands the journal from now on to its subscribers, batch by batch."""

    def __init__(self, store: Store, *, poll: float = POLL_SECONDS, batch: int = ENTRIES_PER_BATCH) -> None:
        super().__init__("journal")
        self._store = store
        self._poll = poll
        self._batch = batch
        self._woken = asyncio.Event()
        self._subscribers: list[JournalSubscriber] = []
        self._missed: list[JournalSubscriber] = []  # who must be told of a gap before anything else
        self._failing: set[str] = set()
        self._failures = 0
        self._trouble: str | None = None
        self._following = False
        self.position: str | None = None
        """The last line that was handed out; None: none was and the journal was empty, or is not yet followed."""

    def wake(self) -> None:
        """Look now: something was committed in this process."""
        self._woken.set()

    def subscribe(self, subscriber: JournalSubscriber) -> Callable[[], None]:
        """Tell it what is committed from now on; returns what ends that."""
        self._subscribers.append(subscriber)
        if self._following:
            self._missed.append(subscriber)
            self.wake()

        def leave() -> None:
            for those in (self._subscribers, self._missed):
                if subscriber in those:
                    those.remove(subscriber)

        return leave

    async def start(self) -> None:
        """Begin to follow, in the background: a store that is down does not hold up the process."""
        self._spawn(keep_running(self.name, self._run, _RETRY_BACKOFF), "follow")

    async def stop(self) -> None:
        """Follow no further."""
        await cancel_and_wait(list(self._background))

    def readiness(self) -> list[str]:
        """Says when the journal cannot be read."""
        return [f"store: the journal cannot be read: {self._trouble}"] if self._trouble else []

    async def _run(self) -> None:
        while True:
            try:
                delay = await self._round()
            except StoreError as error:
                if isinstance(error, InvalidCursorError):
                    self._following = False  # another store answers than before
                delay = self._note_failure(str(error))
            if delay:
                await self._pause(delay)

    async def _round(self) -> float:
        """Hand out one batch; returns how long there is nothing else to do."""
        if not self._following:
            await self._find_the_end()
        # Forgotten before reading: a commit that lands while we read wakes us once more.
        self._woken.clear()
        batch = await self._store.journal(after=self.position, limit=self._batch)
        self._note_success()
        if batch and await self._has_a_hole_before(batch[0]):
            log.warning("old lines of the journal were forgotten before they were read here")
            await self._find_the_end()
            return 0.0
        for subscriber in list(self._missed):
            self._tell_gap(subscriber)
        if not batch:
            return self._poll
        self.position = batch[-1].cursor
        for subscriber in [each for each in self._subscribers if each not in self._missed]:
            await self._tell(subscriber, batch)
        return 0.0

    async def _has_a_hole_before(self, line: JournalEntry) -> bool:
        """Whether lines that were not handed out are gone: only after a stop for longer than they are kept."""
        if self.position is None or parse_journal_cursor(line.cursor) == parse_journal_cursor(self.position) + 1:
            return False
        through = await deleted_through(self._store)
        return through is not None and through > self.position

    async def _find_the_end(self) -> None:
        newest = await self._store.journal(newest_first=True, limit=1)
        self.position = newest[0].cursor if newest else None
        self._following = True
        self._missed = list(self._subscribers)

    async def _tell(self, subscriber: JournalSubscriber, batch: Sequence[JournalEntry]) -> None:
        try:
            async with asyncio.timeout(_SUBSCRIBER_TIMEOUT):
                await subscriber.lines(batch)
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the lines from the others
            self._note_failing(subscriber, error)
            if subscriber in self._subscribers:
                self._missed.append(subscriber)
        else:
            self._failing.discard(subscriber.name)

    def _tell_gap(self, subscriber: JournalSubscriber) -> None:
        try:
            subscriber.gap()
        except Exception as error:  # noqa: BLE001 - as above
            self._note_failing(subscriber, error)
        else:
            self._missed.remove(subscriber)

    def _note_failing(self, subscriber: JournalSubscriber, error: Exception) -> None:
        if subscriber.name not in self._failing:
            self._failing.add(subscriber.name)
            log.error(
                "subscriber of the journal failed and will be told to look for itself",
                subscriber=subscriber.name,
                exc_info=error,
            )

    async def _pause(self, delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._woken.wait()
        except TimeoutError:
            return

    def _note_failure(self, error: str) -> float:
        if self._trouble is None:
            log.warning("the journal cannot be read; trying again", error=error)
        self._trouble = error
        self._failures += 1
        return _RETRY_BACKOFF.delay(self._failures - 1)

    def _note_success(self) -> None:
        if self._trouble is not None:
            log.info("the journal is read again", after_attempts=self._failures)
        self._trouble, self._failures = None, 0
