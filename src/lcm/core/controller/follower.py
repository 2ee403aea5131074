"""List and watch a prefix: list, watch from that revision, resume, and list again after compaction.

The callbacks see every key's latest state and no change twice, across broken streams, server restarts and compaction.
Changes missed because of compaction are found by comparing the new list with the previous state.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.core.coordination import (
    CompactedError,
    Coordination,
    CoordinationError,
    EventKind,
    Listing,
    WatchBatch,
    WatchEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)


class Follower:
    """Follows one prefix. `on_list` gets the first list, `on_change` each change after it."""

    def __init__(
        self,
        coordination: Coordination,
        prefix: str,
        *,
        on_list: Callable[[Listing], None],
        on_change: Callable[[WatchEvent], None],
        reconnect_delay: float = 1.0,
        max_reconnect_attempts: int = 10,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._coordination = coordination
        self._prefix = prefix
        self._on_list = on_list
        self._on_change = on_change
        self._on_lost = on_lost
        self._reconnect_delay = reconnect_delay
        self._max_attempts = max_reconnect_attempts
        self._revisions: dict[str, int] | None = None  # every key and the revision of its last change
        self._next_revision: int | None = None  # None: must list first
        self._attempts = 0
        self.connected = False

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if self._next_revision is None:
                    self._apply_listing(await self._coordination.list_prefix(self._prefix))
                await self._watch_once()
            except CompactedError as error:
                log.info("history was compacted; listing again", prefix=self._prefix, reason=str(error))
                self._next_revision = None
            except CoordinationError as error:
                self._log_lost(str(error))
                await asyncio.sleep(self._reconnect_delay * min(self._attempts, self._max_attempts))

    async def _watch_once(self) -> None:
        assert self._next_revision is not None
        try:
            async with self._coordination.watch(self._prefix, from_revision=self._next_revision) as batches:
                self._log_connected()
                async for batch in batches:
                    self._apply_batch(batch)
        finally:
            self.connected = False

    def _apply_listing(self, listing: Listing) -> None:
        current = {item.key: item.mod_revision for item in listing.items}
        previous, self._revisions = self._revisions, current
        self._next_revision = listing.revision + 1
        if previous is None:
            self._on_list(listing)
            return
        for item in listing.items:
            if previous.get(item.key) != item.mod_revision:
                self._on_change(WatchEvent(EventKind.PUT, item.key, item.value, item.mod_revision))
        for key in sorted(previous.keys() - current.keys()):
            self._on_change(WatchEvent(EventKind.DELETE, key, b"", listing.revision))

    def _apply_batch(self, batch: WatchBatch) -> None:
        assert self._revisions is not None
        assert self._next_revision is not None
        for event in batch.events:
            if event.revision < self._next_revision:
                continue  # a server may repeat what it sent before the stream broke
            if event.kind is EventKind.PUT:
                self._revisions[event.key] = event.revision
            else:
                self._revisions.pop(event.key, None)
            self._on_change(event)
        self._next_revision = max(self._next_revision, batch.revision + 1)

    def _log_connected(self) -> None:
        if self._attempts:
            log.info("watch resumed", prefix=self._prefix, after_attempts=self._attempts)
        self._attempts = 0
        self.connected = True

    def _log_lost(self, error: str) -> None:
        self._attempts += 1
        self._on_lost()
        if self._attempts == 1:
            log.warning("watch lost; reconnecting", prefix=self._prefix, error=error)
        elif self._attempts == self._max_attempts:
            delay = self._reconnect_delay * self._max_attempts
            log.error(
                "watch cannot be resumed; polling continues and so do the retries",
                prefix=self._prefix,
                attempts=self._attempts,
                every_seconds=delay,
                error=error,
            )
