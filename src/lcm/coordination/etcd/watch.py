"""Where a watch stands: turns the server's messages into batches in order, without gaps or repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.coordination.etcd.keys import to_text
from lcm.coordination.etcd.messages import EVENT_DELETE
from lcm.core.coordination import Compacted, Denied, EventKind, WatchBatch, WatchEvent, WatchLost

if TYPE_CHECKING:
    from collections.abc import Callable

_REFUSED = ("permission denied", "PermissionDenied", "Unauthenticated", "invalid auth token", "user name is empty")


def raise_if_cancelled(message: Any, says: Callable[[str], str]) -> None:
    """A cancelled watch ends with the reason the server gives."""
    if not message.canceled:
        return
    if message.compact_revision:
        raise Compacted(message.compact_revision)
    reason = message.cancel_reason or "no reason given"
    if any(words in reason for words in _REFUSED):
        raise Denied(says(f"watch refused: {reason}"))
    raise WatchLost(says(f"the server cancelled the watch: {reason}"))


class Cursor:
    """The next revision to deliver. It never goes back, and only the watch's own messages move it."""

    def __init__(self, next_revision: int) -> None:
        self._next = next_revision
        self._watch_id: int | None = None
        self._fragments: list[WatchEvent] = []

    def created(self, watch_id: int) -> None:
        """The server has given the watch this id."""
        self._watch_id = watch_id

    def take(self, message: Any) -> WatchBatch | None:
        """The batch that this message completes, if it does."""
        # Answers to a request for progress carry no id of a watch, and old servers send them ahead of older events.
        if message.watch_id != self._watch_id:
            return None
        if not message.events and not self._fragments and not message.fragment:
            return self._progress(message.header.revision)
        self._fragments.extend(_event(event) for event in message.events if event.kv.mod_revision >= self._next)
        if message.fragment:
            return None
        events, self._fragments = tuple(self._fragments), []
        if not events:
            return None
        # The header may be ahead of the events in the message, so it does not count here.
        self._next = events[-1].revision + 1
        return WatchBatch(events, events[-1].revision)

    def _progress(self, revision: int) -> WatchBatch | None:
        if revision + 1 < self._next:
            return None
        self._next = revision + 1
        return WatchBatch((), revision)


def _event(event: Any) -> WatchEvent:
    kind = EventKind.DELETE if event.type == EVENT_DELETE else EventKind.PUT
    return WatchEvent(kind, to_text(event.kv.key), event.kv.value, event.kv.mod_revision)
