"""What of a record stands in coordination, and changing such a key only while it is as it was last seen."""

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
    """What of a kind is mirrored: under which prefix, and which facts of a document; None for one that has no key."""

    kind: Kind
    topic: str  # of the journal's lines that carry a changed document
    prefix: str
    facts: Callable[[bytes], Mapping[str, object] | None]  # with a `version` that moves whenever another one does
    where: Where = field(default_factory=Where)  # leaves out documents that have no key, as many as can be told

    def value(self, body: bytes) -> bytes | None:
        """What the key of a document must hold; None: there must be none."""
        facts = self.facts(body)
        return None if facts is None else json.dumps(facts, separators=(",", ":")).encode()


def _spec_of(kind: Kind, topic: str, prefix: str, names: Sequence[str], over: Collection[str]) -> MirrorSpec:
    """Mirror these facts of each document whose status is none in which all is over."""
    ended = sorted(str(status) for status in over)

    def facts(body: bytes) -> dict[str, object] | None:
        document = from_json(body)  # each changed record is read here twice: half the time of the standard library
        return None if document["status"] in ended else {name: document[name] for name in names}

    return MirrorSpec(kind, topic, prefix, facts, Where(none_of={"status": ended}))


WORKER_MIRROR = _spec_of(WORKERS, WORKER_CHANGED, "/workers/", _WORKER_FIELDS, (WorkerStatus.TERMINATED,))
LABLET_MIRROR = _spec_of(LABLETS, LABLET_CHANGED, "/instances/", _LABLET_FIELDS, FINAL_LABLET_STATUSES)


def mirrored_version(value: bytes) -> int | None:
    """The version that a key's value carries; None: whoever wrote this, it was no mirror."""
    try:
        version = json.loads(value)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return version if isinstance(version, int) else None


class MirrorKeys:
    """The keys under a prefix as they were last seen."""

    def __init__(self, coordination: Coordination, prefix: str) -> None:
        self._coordination = coordination
        self._prefix = prefix
        self._seen: dict[str, KeyValue] = {}

    def ids(self) -> set[str]:
        """Whose keys are known."""
        return set(self._seen)

    def value(self, record_id: str) -> bytes | None:
        """What the key held when it was last seen; None: there was none, or it was never looked at."""
        seen = self._seen.get(record_id)
        return seen.value if seen else None

    async def seen(self, record_id: str) -> KeyValue | None:
        """The key as it was last seen, or as it is; whoever writes it finds out whether it still is so."""
        return self._seen.get(record_id) or await self.look(record_id)

    async def look(self, record_id: str) -> KeyValue | None:
        """The key as it is."""
        found = await self._coordination.get(self._prefix + record_id)
        self._remember(record_id, found)
        return found

    async def change(self, record_id: str, seen: KeyValue | None, value: bytes | None) -> bool:
        """Change the key if it still is as it was seen, and see what is there then; says whether this did it."""
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
            pass  # it may have happened: look
        await self.look(record_id)
        return False

    async def refresh_all(self) -> None:
        """See all keys as they are at one moment."""
        before = dict(self._seen)
        listing = await self._coordination.list_prefix(self._prefix)
        listed = {item.key.removeprefix(self._prefix): item for item in listing.items}
        for record_id in before.keys() | listed.keys():
            # A key that was written while the list was on its way is known better than the list knows it. Revisions
            # cannot tell, because an etcd that was replaced counts from the beginning.
            if self._seen.get(record_id) is before.get(record_id):
                self._remember(record_id, listed.get(record_id))

    def _remember(self, record_id: str, item: KeyValue | None) -> None:
        if item is None:
            self._seen.pop(record_id, None)
        else:
            self._seen[record_id] = item
