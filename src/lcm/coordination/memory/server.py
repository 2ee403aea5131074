"""The in-memory replacement of etcd: keys, leases and history.

It uses timers of the event loop and every operation is atomic, so that a simulation can control its time.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left
from contextvars import copy_context
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from lcm.core import clock
from lcm.core.coordination import (
    NO_LEASE,
    CompactedError,
    EventKind,
    KeyValue,
    LeaseGrant,
    LeaseNotFoundError,
    PrefixState,
    WatchBatch,
    WatchEvent,
)

_revision_of = attrgetter("revision")
_cluster_ids = itertools.count(1)

# Seconds within which a lease counts as expired: rounding may fire its timer slightly before its end.
_EXPIRY_TOLERANCE = 1e-6

_MAX_EVENTS_PER_BATCH = 1000


class ChangeListener(Protocol):
    """Is notified of every change."""

    changed: asyncio.Event


@dataclass(slots=True)
class _Lease:
    ttl: int
    expires_at: float = 0.0
    keys: dict[str, None] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class MemoryServer:
    """Keys, leases and the history that watches read.

    At least the last `history_limit` events are kept; older ones are compacted, as in etcd.
    """

    def __init__(self, *, revision: int = 1, history_limit: int = 10_000) -> None:
        if revision < 1 or history_limit < 1:
            raise ValueError("revision and history_limit start at 1")
        self.revision = revision
        self.cluster_id = next(_cluster_ids)
        self._history: list[WatchEvent] = []
        self._history_limit = history_limit
        self._compacted = 0
        self._keys: dict[str, KeyValue] = {}
        self._leases: dict[int, _Lease] = {}
        self._next_lease = 1
        self._watches: dict[ChangeListener, None] = {}
        # Leases are measured by the server's own clock, not by that of the calling client.
        self._context = copy_context()

    def skip_to(self, revision: int) -> None:
        """Continue from a later revision, so that all new writes are newer than those of an earlier process."""
        self.revision = max(self.revision, revision)

    def get(self, key: str) -> KeyValue | None:
        """The key as it is now."""
        self._expire()
        return self._keys.get(key)

    def items(self, prefix: str) -> list[KeyValue]:
        """All keys under `prefix`, sorted."""
        self._expire()
        return [self._keys[key] for key in sorted(self._keys) if key.startswith(prefix)]

    def state_of(self, prefix: str) -> PrefixState:
        """How many keys there are under `prefix`."""
        self._expire()
        return PrefixState(self.cluster_id, self.revision, sum(key.startswith(prefix) for key in self._keys))

    def put(self, key: str, value: bytes, lease_id: int) -> KeyValue:
        """Write the key at a new revision."""
        self._expire()
        if lease_id != NO_LEASE and lease_id not in self._leases:
            raise LeaseNotFoundError(lease_id)
        old = self._keys.get(key)
        self._detach(old)
        revision = self.revision + 1
        new = KeyValue(key, value, old.create_revision if old else revision, revision, lease_id)
        self._keys[key] = new
        if lease_id != NO_LEASE:
            self._leases[lease_id].keys[key] = None
        self._commit([WatchEvent(EventKind.PUT, key, value, revision)])
        return new

    def delete(self, *keys: str) -> None:
        """Delete the keys, all at one new revision."""
        revision = self.revision + 1
        for key in keys:
            self._detach(self._keys.pop(key))
        self._commit([WatchEvent(EventKind.DELETE, key, b"", revision) for key in keys])

    def compact(self, revision: int) -> None:
        """Drop the history before `revision`; keys are unaffected."""
        if not self._compacted < revision <= self.revision:
            raise ValueError(f"can compact revisions {self._compacted + 1} to {self.revision}, not {revision}")
        self._compacted = revision
        del self._history[: bisect_left(self._history, revision, key=_revision_of)]

    def grant(self, ttl: int) -> LeaseGrant:
        """A new lease that starts now."""
        lease_id, self._next_lease = self._next_lease, self._next_lease + 1
        self._leases[lease_id] = _Lease(ttl)
        self._renew(lease_id)
        return LeaseGrant(lease_id, float(ttl))

    def keep_alive(self, lease_id: int) -> float:
        """Renew the lease from now."""
        self._expire()
        if lease_id not in self._leases:
            raise LeaseNotFoundError(lease_id)
        self._renew(lease_id)
        return float(self._leases[lease_id].ttl)

    def revoke(self, lease_id: int) -> None:
        """End the lease, if it exists, and delete its keys."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        if lease.timer:
            lease.timer.cancel()
        if lease.keys:
            self.delete(*sorted(lease.keys))

    def events_since(self, revision: int, prefix: str) -> WatchBatch:
        """Changes under `prefix` from `revision` on; a long batch is split between two revisions."""
        if revision < self._compacted:
            raise CompactedError(self._compacted)
        events: list[WatchEvent] = []
        for position in range(bisect_left(self._history, revision, key=_revision_of), len(self._history)):
            event = self._history[position]
            if len(events) >= _MAX_EVENTS_PER_BATCH and event.revision != events[-1].revision:
                return WatchBatch(tuple(events), events[-1].revision)
            if event.key.startswith(prefix):
                events.append(event)
        return WatchBatch(tuple(events), self.revision)

    def attach(self, watch: ChangeListener) -> None:
        """Notify the watch of every change."""
        self._watches[watch] = None

    def detach(self, watch: ChangeListener) -> None:
        """Stop notifying the watch."""
        self._watches.pop(watch, None)

    def _commit(self, events: list[WatchEvent]) -> None:
        self.revision += 1
        self._history.extend(events)
        # Trimmed by half, so that the cost of moving the list is spread over many writes.
        if len(self._history) > 2 * self._history_limit:
            self.compact(self._history[-self._history_limit].revision)
        for watch in self._watches:
            watch.changed.set()

    def _detach(self, item: KeyValue | None) -> None:
        lease = self._leases.get(item.lease_id) if item else None
        if item and lease:
            lease.keys.pop(item.key, None)

    def _now(self) -> float:
        # A copy, because a timer already runs inside a context and a context cannot be entered twice.
        return self._context.copy().run(clock.boottime)

    def _renew(self, lease_id: int) -> None:
        self._leases[lease_id].expires_at = self._now() + self._leases[lease_id].ttl
        self._arm(lease_id)

    def _arm(self, lease_id: int) -> None:
        lease = self._leases[lease_id]
        if lease.timer:
            lease.timer.cancel()
        left = max(0.0, lease.expires_at - self._now())
        lease.timer = asyncio.get_running_loop().call_later(left, self._timer_fired, lease_id)

    def _timer_fired(self, lease_id: int) -> None:
        self._expire()
        # The server's clock may run slower than the loop's timers: then the lease has time left.
        if lease_id in self._leases:
            self._arm(lease_id)

    def _expire(self) -> None:
        """End expired leases: after a suspend the clock may be past a lease's end before its timer has fired."""
        now = self._now()
        for lease_id in [i for i, lease in self._leases.items() if lease.expires_at - now <= _EXPIRY_TOLERANCE]:
            self.revoke(lease_id)
