"""A control plane, ready workers and resource schedulers, in one process and in virtual time."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from lcm.client import Client
from lcm.client.base import Leader
from lcm.control_plane.journal.mirror import Mirror
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.http.in_process import InProcessTransport
from lcm.model.access import Role
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, Lablet, LabletRequirements
from lcm.model.worker.record import Worker
from tests.support.records.placement import a_ready_worker, needs
from tests.support.virtual.control_plane import SYSTEM, TestPlane, serving_plane
from tests.support.virtual.fleet import MortalWire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.http.transport import HttpTransport

TOPOLOGY = "lab: {title: t}\nnodes: [{id: n0, label: a, node_definition: alpine}]\n"
WATCH = WatchConfig(prefix="/instances/")


@dataclass
class SchedulingScene:
    """The control plane, and ways to manipulate its records."""

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
        """Announce a worker controller that has verified all workers."""
        leader = Leader("worker-controller", term)
        await self.controller.internal.announce_leadership(leader, startup_sweep_done=done)

    async def stand(self, workers: Sequence[Worker]) -> None:
        """Add records of these workers."""

        async def save(tx: Transaction) -> None:
            for worker in workers:
                tx.save_worker(worker.model_copy(update={"created_at": clock.now()}), "created")

        await self.plane.services.context.unit_of_work.run(SYSTEM, save)

    async def stand_ready(self, count: int, **changes: Any) -> None:
        """Add records of this many ready workers."""
        await self.stand([a_ready_worker(number, **changes) for number in range(1, count + 1)])

    async def alter(self, worker_id: str, change_it: Callable[[Worker], Worker]) -> None:
        """Change a worker as its own controller would."""

        async def save(tx: Transaction) -> None:
            worker = await tx.worker(worker_id)
            tx.save_worker(change_it(worker).model_copy(update={"version": worker.version + 1}), "changed")

        await self.plane.services.context.unit_of_work.run(SYSTEM, save)

    async def define(self, name: str = "lab", requirements: LabletRequirements | None = None) -> None:
        """Create a definition."""
        body = CreateDefinitionRequest(name=name, version="1", topology=TOPOLOGY, requirements=requirements or needs())
        await self.people.definitions.create(body)

    async def make(self, count: int = 1, definition: str = "lab", **body: Any) -> list[Lablet]:
        """Create lablets."""
        return [
            await self.people.lablets.create(CreateLabletRequest(definition=definition, **body)) for _ in range(count)
        ]

    async def start(self, name: str = "one") -> SchedulerHostedService:
        """Start a scheduler, which leads or stands by."""
        wire = self.wires[name] = MortalWire(InProcessTransport(self.plane.app))
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

    def connect(self, role: Role, wire: HttpTransport | None = None) -> Client:
        """A client of the control plane."""
        http = wire or InProcessTransport(self.plane.app)
        client = Client("http://lcm.test", self.plane.tokens[role], wire=http, registry=CollectorRegistry())
        self.clients.append(client)
        return client

    async def lablets(self) -> list[Lablet]:
        """All of them, as they are in the store."""
        page = await self.plane.services.context.store.find(LABLETS, limit=2000)
        return [Lablet.model_validate_json(item.body) for item in page.items]

    async def workers(self) -> list[Worker]:
        """All of them, as they are in the store."""
        page = await self.plane.services.context.store.find(WORKERS, limit=2000)
        return [Worker.model_validate_json(item.body) for item in page.items]

    async def statuses(self) -> Counter[str]:
        """The number of lablets by status."""
        return Counter(lablet.status.value for lablet in await self.lablets())

    def request_count(self, path: str, name: str = "one") -> int:
        """The number of requests of a scheduler whose line ends like this."""
        return sum(line.endswith(path) for line in self.wires[name].sent)

    async def check_books(self) -> None:
        """Check that the allocation of each worker is the sum of its lablets and within its capacity."""
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
async def start_scheduling_scene(
    rules: SchedulerConfig | None = None, config: ReconciliationConfig | None = None
) -> AsyncIterator[SchedulingScene]:
    """A control plane without a scheduler."""
    async with serving_plane() as plane:
        server = MemoryServer()
        mirror = Mirror(plane.services.context.store, MemoryCoordination(server), plane.feed, LABLET_MIRROR)
        await mirror.start()
        scene = SchedulingScene(plane, server, None, None)  # type: ignore[arg-type]
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
