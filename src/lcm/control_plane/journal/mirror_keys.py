"""Which fields of a record are mirrored to coordination, and compare-and-swap writes of those keys."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic_core import from_json

from lcm.control_plane.records.kinds import LABLET_CHANGED, LABLETS, WORKER_CHANGED, WORKERS
from lcm.control_plane.store.port import Where
from lcm.core.coordination import CoordinationOutcomeUnknownError
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lcm.control_plane.store.port import Kind
    from lcm.core.coordination import Coordination, KeyValue

_WORKER_FIELDS = ("id", "status", "desired_status", "generation", "version")
_LABLET_FIELDS = ("id", "status", "wanted", "worker_id", "generation", "version")


@dataclass(frozen=True, slots=True)
class MirrorSpec:
    """How a kind is mirrored: its prefix, and the facts of a document; None for a document without a key."""

    kind: Kind
    topic: str  # of the journal entries that carry a changed document
    prefix: str
    facts: Callable[[bytes], Mapping[str, object] | None]  # with a `version` that changes whenever another fact does
    where: Where = field(default_factory=Where)  # excludes most documents that have no key

    def value(self, body: bytes) -> bytes | None:
        """The value that the key of a document must have; None if there must be no key."""
        facts = self.facts(body)
        return None if facts is None else json.dumps(facts, separators=(",", ":")).encode()


def _spec_of(kind: Kind, topic: str, prefix: str, names: Sequence[str], final_statuses: Collection[str]) -> MirrorSpec:
    """Mirror these fields of each document that is not in a final status."""
    final = sorted(str(status) for status in final_statuses)

    def facts(body: bytes) -> dict[str, object] | None:
        document = from_json(body)  # runs twice per changed record; takes half the time of the standard library
        return None if document["status"] in final else {name: document[name] for name in names}

    return MirrorSpec(kind, topic, prefix, facts, Where(none_of={"status": final}))


WORKER_MIRROR = _spec_of(WORKERS, WORKER_CHANGED, "/workers/", _WORKER_FIELDS, (WorkerStatus.TERMINATED,))
# Lablets are mirrored under /instances/, not /lablets/: the prefix is part of the contract with controllers.
LABLET_MIRROR = _spec_of(LABLETS, LABLET_CHANGED, "/instances/", _LABLET_FIELDS, FINAL_LABLET_STATUSES)


def mirrored_version(value: bytes) -> int | None:
    """The version in a key's value; None if a mirror did not write it."""
    try:
        version = json.loads(value)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return version if isinstance(version, int) else None


class MirrorKeys:
    """A cache of the keys under a prefix, as last seen, with compare-and-swap writes."""

    def __init__(self, coordination: Coordination, prefix: str) -> None:
        self._coordination = coordination
        self._prefix = prefix
        self._seen: dict[str, KeyValue] = {}

    def ids(self) -> set[str]:
        """The ids of records whose keys are cached."""
        return set(self._seen)

    def value(self, record_id: str) -> bytes | None:
        """The value of the key when last seen; None if there was none or it was never read."""
        seen = self._seen.get(record_id)
        return seen.value if seen else None

    async def last_seen(self, record_id: str) -> KeyValue | None:
        """The key as last seen, read if it was never seen. A write finds out whether it has changed since."""
        return self._seen.get(record_id) or await self.refresh(record_id)

    async def refresh(self, record_id: str) -> KeyValue | None:
        """Read the key."""
        item = await self._coordination.get(self._prefix + record_id)
        self._remember(record_id, item)
        return item

    async def write(self, record_id: str, seen: KeyValue | None, value: bytes | None) -> bool:
        """Write the key if it has not changed since it was seen, and cache the result; returns whether it did."""
        key = self._prefix + record_id
        try:
            if value is None:
                assert seen is not None
                if await self._coordination.delete(key, mod_revision=seen.mod_revision):
                    self._remember(record_id, None)
                    return True
            else:
                revision = seen.mod_revision if seen else 0
                swap = await self._coordination.compare_and_swap(key, value, mod_revision=revision)
                self._remember(record_id, swap.current)
                return swap.succeeded
        except CoordinationOutcomeUnknownError:
            pass  # the write may have happened: read the key
        await self.refresh(record_id)
        return False

    async def refresh_all(self) -> None:
        """Read all keys at one revision."""
        before = dict(self._seen)
        listing = await self._coordination.list_prefix(self._prefix)
        listed = {item.key.removeprefix(self._prefix): item for item in listing.items}
        for record_id in before.keys() | listed.keys():
            # The cache is newer than the list for a key that was written while the list was read. Revisions cannot be
            # compared, because an etcd that was replaced counts from the beginning.
            if self._seen.get(record_id) is before.get(record_id):
                self._remember(record_id, listed.get(record_id))

    def _remember(self, record_id: str, item: KeyValue | None) -> None:
        if item is None:
            self._seen.pop(record_id, None)
        else:
            self._seen[record_id] = item
