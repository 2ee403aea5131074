"""Control planes without HTTP: a store, its journal feed, the mirror, and records that change."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.journal.mirror import Mirror
from lcm.control_plane.records.kinds import (
    ALL_KINDS,
    AUDIT,
    WORKER_CHANGED,
    WORKER_HISTORY,
    WORKERS,
    worker_fields,
    worker_unique_keys,
)
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.control_plane.store.port import NewJournalEntry, Put, RevisionConflictError
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.coordination import NO_LEASE, EventKind
from lcm.model.worker.record import Worker
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from lcm.control_plane.journal.mirror import MirrorSettings
    from lcm.core.coordination import Coordination

PREFIX = "/workers/"
SOON = 0.01  # seconds in which everything runs that needs no time
_MIRRORED = ("id", "status", "desired_status", "generation", "version")


class Plane:
    """The parts of one control plane, on a disk that others may share."""

    def __init__(
        self, disk: MemoryDisk, coordination: Coordination, settings: MirrorSettings | None = None, *, poll: float = 1.0
    ) -> None:
        self.store = MemoryStore(disk)
        self.feed = JournalFeed(self.store, poll=poll)
        self.mirror = Mirror(self.store, coordination, self.feed, settings=settings)

    async def start(self) -> Plane:
        await self.store.open(ALL_KINDS)
        await self.feed.start()
        await self.mirror.start()
        return self

    async def stop(self) -> None:
        await self.mirror.stop()
        await self.feed.stop()

    async def add(self, *workers: Worker) -> None:
        """Create workers, in one commit."""
        await self._commit([(worker, None) for worker in workers])

    async def edit(self, worker_id: str = "w-1", *, moves: bool = True, **fields: Any) -> None:
        """Change a worker, with its version or without."""
        while True:
            stored = await self.store.get(WORKERS, worker_id)
            assert stored is not None
            worker = Worker.model_validate_json(stored.body)
            changed = Worker(**{**dict(worker), **fields, "version": worker.version + moves})
            try:
                return await self._commit([(changed, stored.revision)])
            except RevisionConflictError:
                continue

    async def _commit(self, workers: list[tuple[Worker, int | None]]) -> None:
        puts: list[Put] = []
        entries: list[NewJournalEntry] = []
        for worker, revision in workers:
            body = worker.model_dump_json().encode()
            puts.append(Put(WORKERS, worker.id, body, revision, worker_fields(worker), worker_unique_keys(worker)))
            about = json.dumps({"worker_id": worker.id, "version": worker.version}).encode()
            for topic, text in ((WORKER_HISTORY, about), (AUDIT, about), (WORKER_CHANGED, body)):
                entries.append(NewJournalEntry(topic, worker.id, text, clock.now()))
        await self.store.commit(puts, entries=entries)
        self.feed.wake()


async def expected_keys(disk: MemoryDisk) -> dict[str, Any]:
    """The values that the keys must have, by worker id."""
    store = MemoryStore(disk)
    await store.open([WORKERS])
    workers = [json.loads(item.body) for item in (await store.find(WORKERS, limit=1000)).items]
    return {each["id"]: {name: each[name] for name in _MIRRORED} for each in workers if each["status"] != "TERMINATED"}


def read_value(value: bytes) -> Any:
    """A key's value, or its bytes if they are not JSON."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


class FaultyPlane(Plane):
    """A control plane behind an unreliable network."""

    def __init__(self, disk: MemoryDisk, coordination: FaultyCoordination) -> None:
        super().__init__(disk, coordination)
        self.coordination = coordination


class World:
    """One disk, one etcd, any number of control planes."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.server = MemoryServer()
        self.planes: list[FaultyPlane] = []

    async def plane(self, coordination: FaultyCoordination | None = None) -> FaultyPlane:
        coordination = coordination or FaultyCoordination(MemoryCoordination(self.server))
        plane = FaultyPlane(self.disk, coordination)
        self.planes.append(plane)
        await plane.start()
        await asyncio.sleep(SOON)
        return plane

    @property
    def keys(self) -> dict[str, Any]:
        return {item.key.removeprefix(PREFIX): read_value(item.value) for item in self.server.items(PREFIX)}

    async def in_sync(self) -> bool:
        return self.keys == await expected_keys(self.disk)

    def by_hand(self, worker_id: str, value: bytes) -> None:
        self.server.put(PREFIX + worker_id, value, NO_LEASE)

    def versions_seen(self, worker_id: str = "w-1") -> list[int | None]:
        """What a watcher of the key has seen: versions, None for a deletion."""
        events = self.server.events_since(1, PREFIX + worker_id).events
        return [json.loads(event.value)["version"] if event.kind is EventKind.PUT else None for event in events]

    async def stop(self) -> None:
        for plane in self.planes:
            await plane.stop()


def fleet(count: int) -> list[Worker]:
    return [a_worker(id=f"w-{number}", name=f"n{number}", status="RUNNING") for number in range(count)]
