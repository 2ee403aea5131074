"""Which control plane sends: a lease in the store, so that it needs no etcd.

A lease is a document that its holder writes again and again. Another control plane takes it over after it has seen no
write for the duration of the lease, by its own clock: clocks of different hosts are never compared. The holder counts
from the moment it began to write, so it stops before another may start, as long as clocks run at the same rate.

Not promised: that only one sends when a process was suspended. It checks the lease right before the bytes of a message
are sent; a message that leaves later is a repetition with the same id, and its cursor is not saved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.records.kinds import NOTIFICATION_SENDER
from lcm.control_plane.store.port import Put, RevisionConflictError
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store, StoredDocument

LEASE_SECONDS = 10.0
_SAFETY = 0.8


class SenderLease(Protocol):
    """Decides which control plane sends."""

    interval: float
    """Seconds between two calls of `acquire`."""

    async def acquire(self) -> bool:
        """Take or renew the lease; returns whether this process sends. Raises `StoreError`."""

    def is_held(self) -> bool:
        """Whether this process may send now."""

    async def release(self) -> None:
        """Let another control plane send at once."""


class AlwaysHeld:
    """For a store that a single process owns."""

    interval = LEASE_SECONDS

    async def acquire(self) -> bool:
        return True

    def is_held(self) -> bool:
        return True

    async def release(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Seen:
    revision: int
    since: float


class StoreLease:
    """A lease in the store that several control planes share."""

    def __init__(self, store: Store, owner: str, *, seconds: float = LEASE_SECONDS) -> None:
        self.interval = seconds / 4
        self._store = store
        self._owner = owner
        self._seconds = seconds
        self._held_until = 0.0
        self._seen: _Seen | None = None

    def is_held(self) -> bool:
        return clock.boottime() < self._held_until

    async def acquire(self) -> bool:
        began = clock.boottime()
        stored = await self._store.get(NOTIFICATION_SENDER, NOTIFICATION_SENDER.name)
        if not self._may_write(stored, began):
            self._held_until = 0.0
            return False
        body = json.dumps({"owner": self._owner}).encode()
        expected = None if stored is None else stored.revision
        try:
            await self._store.commit([Put(NOTIFICATION_SENDER, NOTIFICATION_SENDER.name, body, expected)])
        except RevisionConflictError:
            self._held_until = 0.0
            return False
        self._held_until = began + self._seconds * _SAFETY
        return True

    def _may_write(self, stored: StoredDocument | None, now: float) -> bool:
        owner = "" if stored is None else json.loads(stored.body)["owner"]
        if stored is None or owner in ("", self._owner):
            return True
        if self._seen is None or self._seen.revision != stored.revision:
            self._seen = _Seen(stored.revision, now)
        return now - self._seen.since >= self._seconds

    async def release(self) -> None:
        stored = await self._store.get(NOTIFICATION_SENDER, NOTIFICATION_SENDER.name)
        self._held_until = 0.0
        if stored is None or json.loads(stored.body)["owner"] != self._owner:
            return
        body = json.dumps({"owner": ""}).encode()
        try:
            await self._store.commit([Put(NOTIFICATION_SENDER, NOTIFICATION_SENDER.name, body, stored.revision)])
        except RevisionConflictError:
            return
