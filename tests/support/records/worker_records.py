"""A unit of work on its own store, for tests of transactions."""

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
    """A unit of work on its own store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.commits = 0
        self.unit_of_work = UnitOfWork(self.store, self._count)

    def _count(self) -> None:
        self.commits += 1

    async def add(self, worker: Worker) -> None:
        async def attempt(tx: Transaction) -> None:
            tx.save_worker(worker, "created")

        await self.unit_of_work.run(ANNA, attempt)

    async def worker(self, worker_id: str = "w-1") -> Worker:
        stored = await self.store.get(WORKERS, worker_id)
        assert stored is not None
        return Worker.model_validate_json(stored.body)

    async def entries(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(entry.body) for entry in await self.store.read_journal(topics=[topic], limit=1000)]
