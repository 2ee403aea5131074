"""The coordination port: what the controller machinery needs from etcd or its in-memory replacement.

The port is part of `core`, so that `core` imports nothing else of the platform; the adapters are in
`lcm.coordination`.

Every call ends in bounded time. An error says what is known about the effect:

- `CoordinationUnavailableError`: nothing was changed (or it was a read). Retry.
- `CoordinationOutcomeUnknownError`: a write was sent and no response came. It may have happened: read back before
  deciding anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

NO_LEASE = 0


class CoordinationError(Exception):
    """A coordination request failed."""


class CoordinationUnavailableError(CoordinationError):
    """No response, and certainly no change. The text names the endpoints tried and why each failed."""


class CoordinationOutcomeUnknownError(CoordinationError):
    """A write was sent and its response was lost: it may or may not have happened."""


class WatchLostError(CoordinationUnavailableError):
    """A watch stream ended or went silent; the watcher resumes from the next revision."""


class CoordinationDeniedError(CoordinationError):
    """Credentials, certificate or permission were rejected: a retry alone will not help."""


class CompactedError(CoordinationError):
    """The requested revision was compacted: list again and watch from there."""

    def __init__(self, compact_revision: int) -> None:
        super().__init__(f"revisions before {compact_revision} have been compacted")
        self.compact_revision = compact_revision


class LeaseNotFoundError(CoordinationError):
    """The lease has expired or was revoked."""

    def __init__(self, lease_id: int) -> None:
        super().__init__(f"lease {lease_id:x} has expired or was revoked")
        self.lease_id = lease_id


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as it was at a revision."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease_id: int = NO_LEASE


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys under a prefix, at one revision."""

    items: tuple[KeyValue, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class PrefixState:
    """The number of keys under a prefix, and the cluster that has them. A new id or a lower revision: another cluster.

    A cluster that lost its data and was set up again as before may also have the same id and a higher revision. Then
    only the number of keys differs.
    """

    cluster_id: int
    revision: int
    keys: int


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The result of a conditional write. `current` is the key afterwards: as written, or what conflicted."""

    succeeded: bool
    current: KeyValue | None


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """A lease as the server granted it; `ttl` in seconds may differ from the request."""

    id: int
    ttl: float


class EventKind(Enum):
    """What happened to a key."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of one key; a DELETE carries an empty value and the revision of the deletion."""

    kind: EventKind
    key: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """All changes up to and including `revision`; a batch without events reports progress."""

    events: tuple[WatchEvent, ...]
    revision: int


class Coordination(Protocol):
    """Keys, leases and watches. Keys are text, values are bytes, revisions only grow."""

    @property
    def description(self) -> str:
        """The servers, for display: `etcd at a:2379, b:2379`."""

    async def get(self, key: str) -> KeyValue | None:
        """The key, or None if it does not exist."""

    async def list_prefix(self, prefix: str) -> Listing:
        """All keys that start with `prefix`, sorted, at one revision, however many pages are read."""

    async def probe(self, prefix: str) -> PrefixState:
        """Count the keys that start with `prefix`, as a quorum sees them now."""

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        """Write the key; returns the revision of the write."""

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        """Write the key only if it does not exist."""

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        """Write the key only if it was last changed at `mod_revision`."""

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        """Delete the key, with `mod_revision` only if it was last changed then; returns whether it was deleted."""

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        """Create a lease; keys written with its id are deleted when it ends."""

    async def keep_alive(self, lease_id: int) -> float:
        """Renew the lease once; returns its TTL from the server's receipt on. `LeaseNotFoundError` if it is gone."""

    async def revoke_lease(self, lease_id: int) -> None:
        """End the lease and delete its keys; it is no error if the lease is gone already."""

    def watch(self, prefix: str, *, from_revision: int) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """Changes under `prefix` from `from_revision` on, in order, each once.

        It is one stream: it ends with `WatchLostError`, `CompactedError` or `CoordinationDeniedError`, never silently,
        and leaves nothing behind on the server. `lcm.core.controller.follower.Follower` resumes it.
        """

    async def check(self) -> None:
        """Return if a quorum responds now, else raise `CoordinationUnavailableError` or `CoordinationDeniedError`."""

    async def close(self) -> None:
        """Close all connections. Open watches end."""
