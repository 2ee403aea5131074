"""A control plane, workers that stand there ready, and resource schedulers, in one process and in virtual time."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client import CollectorRegistry

from lcm.client import Client
from lcm.client.base import Leader
from lcm.control_plane.journal.mirror import Mirror
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.controllers.scheduler.plan import SchedulerConfig
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.controller.leader_election import LeaderElectionConfig
from lcm.core.controller.reconciliation import ReconciliationConfig
from lcm.core.controller.watch import WatchConfig
from lcm.model.access import Role
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, Lablet, LabletRequirements
from lcm.model.worker.record import Worker
from tests.support.records.placement import a_ready_worker, needs
from tests.support.virtual.control_plane import SYSTEM, TestPlane, serving_plane
from tests.support.virtual.fleet import MortalWire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from lcm.control_plane.records.unit_of_work import Transaction

TOPOLOGY = "lab: {title: t}\nnodes: [{id: n0, label: a, node_definition: alpine}]\n"
WATCH = WatchConfig(prefix="/instances/")


@dataclass
class Scene:
    """The control plane, and the strings behind it."""

    plane: TestPlane
    server: MemoryServer
    people: Client
    controller: Client
    rules: SchedulerConfig = field(default_factory=SchedulerConfig)
    config: ReconciliationConfig = field(default_factory=ReconciliationConfig)
    schedulers: dict[str, SchedulerHostedService] = field(default_factory=dict)
    registries: dict[str, CollectorRegistry] = field(default_factory=dict)
    wires: dict[str, MortalWire] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)

    async def verified(self, *, term: int = 5, done: bool = True) -> None:
        """A worker controller has begun to lead, and has verified all workers."""
        leader = Leader("worker-controller", term)
        await self.controller.internal.announce_leadership(leader, startup_sweep_done=done)

    async def stand(self, workers: Sequence[Worker]) -> None:
        """These workers are on record."""

        async def save(change: Transaction) -> None:
            for worker in workers:
                change.save(worker.model_copy(update={"created_at": clock.now()}), "created")

        await self.plane.parts.plane.records.change(SYSTEM, save)

    async def stand_ready(self, count: int, **changes: Any) -> None:
        """So many ready workers are on record."""
        await self.stand([a_ready_worker(number, **changes) for number in range(1, count + 1)])

    async def alter(self, worker_id: str, change_it: Callable[[Worker], Worker]) -> None:
        """A worker is changed behind everybody's back, as its own controller would."""

        async def save(change: Transaction) -> None:
            worker = await change.worker(worker_id)
            change.save(change_it(worker).model_copy(update={"version": worker.version + 1}), "changed")

        await self.plane.parts.plane.records.change(SYSTEM, save)

    async def define(self, name: str = "lab", requirements: LabletRequirements | None = None) -> None:
        """What lablets can be made from."""
        body = CreateDefinitionRequest(name=name, version="1", topology=TOPOLOGY, requirements=requirements or needs())
        await self.people.definitions.create(body)

    async def make(self, count: int = 1, definition: str = "lab", **body: Any) -> list[Lablet]:
        """People want lablets."""
        return [
            await self.people.lablets.create(CreateLabletRequest(definition=definition, **body)) for _ in range(count)
        ]

    async def start(self, name: str = "one") -> SchedulerHostedService:
        """A scheduler, leading or standing by."""
        wire = self.wires[name] = MortalWire(httpx.ASGITransport(self.plane.app, raise_app_exceptions=False))
        registry = self.registries[name] = CollectorRegistry()
        election = LeaderElectionConfig(election_key_prefix="/lcm", service_name="resource-scheduler", instance_id=name)
        scheduler = SchedulerHostedService(
            MemoryCoordination(self.server),
            election,
            WATCH,
            self.config,
            self.connect(Role.CONTROLLER, wire),
            self.rules,
            registry=registry,
        )
        self.schedulers[name] = scheduler
        await scheduler.start()
        return scheduler

    def connect(self, role: Role, wire: httpx.AsyncBaseTransport | None = None) -> Client:
        """A client of the control plane."""
        wire = wire or httpx.ASGITransport(self.plane.app, raise_app_exceptions=False)
        client = Client("http://lcm.test", self.plane.tokens[role], wire=wire, registry=CollectorRegistry())
        self.clients.append(client)
        return client

    async def lablets(self) -> list[Lablet]:
        """All of them, as they are in the store."""
        page = await self.plane.parts.plane.store.find(LABLETS, limit=2000)
        return [Lablet.model_validate_json(item.body) for item in page.items]

    async def workers(self) -> list[Worker]:
        """All of them, as they are in the store."""
        page = await self.plane.parts.plane.store.find(WORKERS, limit=2000)
        return [Worker.model_validate_json(item.body) for item in page.items]

    async def statuses(self) -> Counter[str]:
        """How many lablets are in which status."""
        return Counter(lablet.status.value for lablet in await self.lablets())

    def asked(self, path: str, name: str = "one") -> int:
        """How many requests of a scheduler ended like this."""
        return sum(line.endswith(path) for line in self.wires[name].sent)

    async def check_books(self) -> None:
        """What workers say is taken is what their lablets take, and nobody gave more than there is."""
        lablets = [lablet for lablet in await self.lablets() if lablet.assigned]
        for worker in await self.workers():
            mine = [lablet for lablet in lablets if lablet.worker_id == worker.id]
            taken, size = worker.allocation, worker.capacity
            assert taken.lablets == len(mine)
            assert taken.cpu_cores == sum(each.requirements.cpu_cores for each in mine)
            assert taken.memory_gb == sum(each.requirements.memory_gb for each in mine)
            ports = sorted(port for each in mine for port in each.ports.values())
            assert sorted(taken.ports) == ports
            assert len(set(ports)) == len(ports)
            if size is not None and mine:
                assert taken.cpu_cores <= size.cpu_cores
                assert taken.memory_gb <= size.memory_gb
                assert taken.storage_gb <= size.storage_gb
                assert taken.nodes <= size.max_nodes


@asynccontextmanager
async def a_scene(
    rules: SchedulerConfig | None = None, config: ReconciliationConfig | None = None
) -> AsyncIterator[Scene]:
    """A control plane without a scheduler yet; start one, or several."""
    async with serving_plane() as plane:
        server = MemoryServer()
        mirror = Mirror(plane.parts.plane.store, MemoryCoordination(server), plane.feed, LABLET_MIRROR)
        await mirror.start()
        scene = Scene(plane, server, None, None)  # type: ignore[arg-type]
        scene.people = scene.connect(Role.ADMIN)
        scene.controller = scene.connect(Role.CONTROLLER)
        scene.rules = rules or scene.rules
        scene.config = config or scene.config
        try:
            yield scene
        finally:
            for scheduler in scene.schedulers.values():
                await scheduler.stop()
            for client in scene.clients:
                await client.aclose()
            await mirror.stop()
