"""The coordination port: what the machinery needs of etcd, or of whatever stands in for it.

It stands here, beside its user, so that `core` imports nothing else of the platform; the adapters are in
`lcm.coordination`.

Every call ends in bounded time. A failure says what is known of the effect:

- `CoordinationUnavailableError`: nothing was changed (or it was a read). Try again.
- `CoordinationOutcomeUnknownError`: a write was sent and no answer came. It may have happened: read back before deciding anything.
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
    """Coordination could not do what was asked."""


class CoordinationUnavailableError(CoordinationError):
    """No answer, and certainly nothing changed. The text names the endpoints tried and why each failed."""


class CoordinationOutcomeUnknownError(CoordinationError):
    """A write was sent and its answer was lost: it may or may not have happened."""


class WatchLostError(CoordinationUnavailableError):
    """A watch's stream ended or went silent; whoever follows it resumes from the next revision."""


class CoordinationDeniedError(CoordinationError):
    """Credentials, certificate or permission were refused: trying again alone will not help."""


class CompactedError(CoordinationError):
    """The revision asked for is gone from history: list again and watch from there."""

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
class SwapResult:
    """How a conditional write ended. `current` is the key afterwards: ours, or what stood in the way."""

    succeeded: bool
    current: KeyValue | None


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """A lease as the server granted it; `ttl` in seconds may differ from what was asked."""

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
    """Everything that happened up to and including `revision`; without events it is a sign of progress."""

    events: tuple[WatchEvent, ...]
    revision: int


class Coordination(Protocol):
    """Keys, leases and watches. Keys are text, values are bytes, revisions only grow."""

    @property
    def description(self) -> str:
        """Which servers this is, for people: `etcd at a:2379, b:2379`."""

    async def get(self, key: str) -> KeyValue | None:
        """The key, or None if there is none."""

    async def list_prefix(self, prefix: str) -> Listing:
        """All keys that start with `prefix`, sorted, at one revision however many pages that takes."""

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        """Write the key; returns the revision of the write."""

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        """Write the key only if it does not exist."""

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        """Write the key only if it was last changed at `mod_revision`."""

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        """Delete the key, with `mod_revision` only if it was last changed then; says whether it did."""

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        """A new lease; keys written with its id vanish with it."""

    async def keep_alive(self, lease_id: int) -> float:
        """Renew the lease once; returns its TTL from the server's receipt on. `LeaseNotFoundError` if it is gone."""

    async def revoke_lease(self, lease_id: int) -> None:
        """End the lease and delete its keys; one that is gone already is no error."""

    def watch(self, prefix: str, *, from_revision: int) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """Changes under `prefix` from `from_revision` on, in order, none twice.

        One stream: it ends with `WatchLostError`, `CompactedError` or `CoordinationDeniedError`, never silently, and leaves nothing behind on the
        server. `lcm.core.controller.watch.follow` is the one that resumes.
        """

    async def check(self) -> None:
        """Returns if a quorum answers now, else raises `CoordinationUnavailableError` or `CoordinationDeniedError`."""

    async def close(self) -> None:
        """Let go of connections. Open watches end."""
