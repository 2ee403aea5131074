"""Records on a store of their own, to test changes with."""

from __future__ import annotations

import json
from typing import Any

from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.model.audit import Actor, ActorKind
from lcm.model.worker.record import Worker

ANNA = Actor(kind=ActorKind.PERSON, name="anna")
CONTROLLER = Actor(kind=ActorKind.CONTROLLER, name="worker-controller")


class Desk:
    """Records on a store of their own."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.commits = 0
        self.records = UnitOfWork(self.store, self._count)

    def _count(self) -> None:
        self.commits += 1

    async def add(self, worker: Worker) -> None:
        async def attempt(change: Transaction) -> None:
            change.save(worker, "created")

        await self.records.change(ANNA, attempt)

    async def worker(self, worker_id: str = "w-1") -> Worker:
        stored = await self.store.get(WORKERS, worker_id)
        assert stored is not None
        return Worker.model_validate_json(stored.body)

    async def told(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(entry.body) for entry in await self.store.journal(topics=[topic], limit=1000)]
