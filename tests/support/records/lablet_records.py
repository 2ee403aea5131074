"""Lablets and workers on their own store, for tests that change both."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.lablets.controller_writes import LabletControllerWrites
from lcm.control_plane.lablets.definitions import add_definition
from lcm.control_plane.lablets.service import LabletService
from lcm.control_plane.records.kinds import ALL_KINDS, LABLETS, WORKERS
from lcm.control_plane.records.unit_of_work import Leader, UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.workers.controller_writes import WorkerControllerWrites
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.lablet.record import (
    CreateDefinitionRequest,
    CreateLabletRequest,
    Lablet,
    LabletRequirements,
    LabletStatusUpdate,
    Placement,
    PlacementBatch,
    PlacementRequest,
    PlacementResult,
    ReleaseLabletRequest,
)
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import LeadershipAnnouncement
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Delete, Guard, Kind, NewJournalEntry, Put, StoredDocument

ANNA = Caller("anna", CallerKind.TOKEN, Role.OPERATOR)
WORKER_CONTROLLER = Leader("worker-controller", 5)
SCHEDULER = Leader("resource-scheduler", 3)
STALE = Leader("resource-scheduler", 2)
LABLET_CONTROLLER = Leader("lablet-controller", 4)
TOPOLOGY = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n"
READY = ({"type": "CmlReady", "status": "True", "reason": "Seen", "since": NOW},)


def a_ready_worker(**changes: Any) -> Worker:
    """A worker that accepts lablets: 2 CPU, 4 GB, 100 GB, 15 nodes."""
    capacity = {"cpu_cores": 2, "memory_gb": 4.0, "storage_gb": 100.0, "max_nodes": 15}
    facts = {"status": "RUNNING", "instance_id": "i-1", "conditions": READY, "capacity": capacity}
    return a_worker(**{**facts, **changes})


def a_lablet(**changes: Any) -> Lablet:
    """A new lablet."""
    facts: dict[str, Any] = {
        "id": "l-1",
        "name": "exercise",
        "owner_name": "anna",
        "definition": "ospf@1",
        "requirements": LabletRequirements(license=False),
        "status_since": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Lablet(**{**facts, **changes})


class LaggingStore(MemoryStore):
    """A store in which reads and commits take random times, so that transactions interleave."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        await self._lag()
        return await super().get(kind, document_id)

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        await self._lag()
        return await super().get_many(kind, document_ids)

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        await self._lag()
        return await super().commit(writes, entries=entries, guards=guards)

    async def _lag(self) -> None:
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.001, 0.002)))


class LabletDesk:
    """People, the scheduler and the lablet controller at one control plane."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.commits = 0
        self.unit_of_work = UnitOfWork(self.store, self._count)
        box = SecretBox([parse_key(generate_key(), "test")])
        self.plane = ControlPlaneContext(self.store, self.unit_of_work, box, ("eu-west-1", "us-east-1"))
        self.directory = TeamDirectory(self.store)
        self.people = LabletService(self.plane, self.directory)
        self.reports = LabletControllerWrites(self.plane)
        self.workers = WorkerControllerWrites(self.plane)

    def _count(self) -> None:
        self.commits += 1

    async def open(self, *workers: Worker, swept: bool = True) -> LabletDesk:
        """Open the store with these workers; by default the startup sweep of the worker controller is done."""
        await self.store.open(ALL_KINDS)

        async def attempt(tx: Transaction) -> None:
            for worker in workers:
                tx.save_worker(worker, "created")

        await self.unit_of_work.run(WORKER_CONTROLLER.actor, attempt)
        if swept:
            await self.sweep()
        self.commits = 0
        return self

    async def sweep(self, leader: Leader = WORKER_CONTROLLER, *, done: bool = True) -> None:
        """The worker controller announces its term, or that its startup sweep is done."""
        await self.workers.leadership(leader, LeadershipAnnouncement(term=leader.term, startup_sweep_done=done))

    async def define(self, name: str = "ospf", version: str = "1", topology: str = TOPOLOGY, **needs: Any) -> str:
        """A definition."""
        needed = LabletRequirements(**{"license": False, **needs})
        request = CreateDefinitionRequest(name=name, version=version, topology=topology, requirements=needed)
        made, _ = await self.unit_of_work.run(ANNA.actor, lambda tx: add_definition(tx, request, "anna"))
        return made.id

    async def make(self, definition: str = "ospf", **facts: Any) -> Lablet:
        """A lablet that a person creates."""
        return Lablet.model_validate_json(
            await self.people.create(ANNA, CreateLabletRequest(definition=definition, **facts))
        )

    async def end(self, lablet: Lablet, **how: Any) -> Lablet:
        """A person terminates it."""
        return Lablet.model_validate_json(await self.people.terminate(ANNA, lablet.id, **how))

    async def schedule(self, *pairs: tuple[Lablet, str], leader: Leader = SCHEDULER) -> tuple[PlacementResult, ...]:
        """The scheduler places these lablets on these workers."""
        items = tuple(
            PlacementRequest(
                lablet_id=lablet.id,
                version=lablet.version,
                worker_id=worker_id,
                placement=Placement(at=clock.now(), worker_id=worker_id, score=0.5, reason="the best"),
            )
            for lablet, worker_id in pairs
        )
        return (await self.reports.schedule(leader, PlacementBatch(items=items))).items

    async def placed(self, worker_id: str = "w-1", **facts: Any) -> Lablet:
        """A lablet that has a worker."""
        (result,) = await self.schedule((await self.make(**facts), worker_id))
        assert result.placed, result.detail
        return await self.lablet(result.lablet_id)

    async def report(self, lablet: Lablet, status: str, *, leader: Leader = LABLET_CONTROLLER, **facts: Any) -> Lablet:
        """A controller writes a status."""
        write = LabletStatusUpdate(status=LabletStatus(status), version=lablet.version, reason="seen", **facts)
        return await self.reports.status(leader, lablet.id, write)

    async def release(self, lablet: Lablet, status: str) -> Lablet:
        """A controller releases the reservation."""
        write = ReleaseLabletRequest(status=LabletStatus(status), version=lablet.version, reason="lost")
        return await self.reports.release(LABLET_CONTROLLER, lablet.id, write)

    async def lablet(self, lablet_id: str) -> Lablet:
        """As it is stored."""
        stored = await self.store.get(LABLETS, lablet_id)
        assert stored is not None
        return Lablet.model_validate_json(stored.body)

    async def worker(self, worker_id: str = "w-1") -> Worker:
        """As it is stored."""
        stored = await self.store.get(WORKERS, worker_id)
        assert stored is not None
        return Worker.model_validate_json(stored.body)

    async def entries(self, topic: str, subject: str) -> list[dict[str, Any]]:
        """Journal entries about one subject."""
        entries = await self.store.read_journal(topics=[topic], subjects=[subject], limit=1000)
        return [json.loads(entry.body) for entry in entries]
