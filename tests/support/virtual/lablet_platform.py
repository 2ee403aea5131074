"""Lablets in virtual time: a control plane, ready workers, simulated CML servers and lablet controllers."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client import CollectorRegistry

from lcm.client import Client
from lcm.client.base import Leader
from lcm.cml.client.session import CMLSession
from lcm.cml.types import Credentials
from lcm.control_plane.journal.mirror import Mirror, MirrorSettings
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR
from lcm.controllers.lablet.controller import LabletReconciler
from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies, LabletPolicy
from lcm.controllers.lablet.metrics import LabletGauges
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.http.in_process import InProcessTransport
from lcm.model.access import Role
from lcm.model.lablet.record import (
    CreateDefinitionRequest,
    CreateLabletRequest,
    LabletRequirements,
    Placement,
    PlacementBatch,
    PlacementRequest,
)
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.requests import CreateWorkerRequest, WorkerStatusUpdate
from lcm.model.worker.status import WorkerStatus
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.cml_servers import FakeCmlNetwork, MortalLink, ProcessLife, cml_transport
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lcm.cml.simulator.state.world import World
    from lcm.model.lablet.record import Lablet
    from lcm.model.lablet.status import LabletStatus
    from lcm.model.worker.record import Worker

TOPOLOGY = """\
lab: {version: 0.2.2, title: exercise}
nodes:
  - {id: n0, label: sw, node_definition: unmanaged_switch, x: 0, y: 0,
     interfaces: [{id: i0, type: physical, slot: 0, label: port0}]}
  - {id: n1, label: host, node_definition: alpine, x: 100, y: 0, tags: ["serial:${CONSOLE}"],
     interfaces: [{id: i0, type: physical, slot: 0, label: eth0}]}
links:
  - {id: l0, n1: n0, i1: i0, n2: n1, i2: i0}
"""
ACCOUNT = Credentials("admin", "simulated")
WORKERS_LEADER = Leader("worker-controller", 3)
SCHEDULER = Leader("resource-scheduler", 3)
READY = (ConditionStatus.TRUE, "Ready")
NOT_READY = (ConditionStatus.FALSE, "NotReady")


@dataclass
class LabletPlatform:
    """The parts of the platform that lablets need, and ways to manipulate them."""

    plane: TestPlane
    coordination: MemoryServer
    servers: FakeCmlNetwork
    people: Client
    control: Client
    policy: LabletPolicy = field(default_factory=LabletPolicy)
    sweep_interval: float = 600.0
    reconciliation: ReconciliationConfig = field(default_factory=ReconciliationConfig)
    lives: dict[str, ProcessLife] = field(default_factory=dict)
    controllers: dict[str, LabletReconciler] = field(default_factory=dict)
    registries: dict[str, CollectorRegistry] = field(default_factory=dict)
    closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    # Workers

    async def worker(self, name: str = "alpha", address: str = "192.0.2.7") -> Worker:
        """A ready worker with its CML."""
        self.servers.add(address)
        made = await self.people.workers.create(CreateWorkerRequest(name=name, template_name="large"))
        made = await self.report(made, WorkerStatus.PROVISIONING, instance_id=f"i-{name}1")
        made = await self.report(made, WorkerStatus.STARTING)
        return await self.report(made, WorkerStatus.RUNNING, public_ip=address, conditions=self.cml(*READY))

    async def report(self, worker: Worker, status: WorkerStatus, **fields: Any) -> Worker:
        """Write what the worker controller would observe."""
        current = await self.control.internal.worker(worker.id)
        body = WorkerStatusUpdate(status=status, version=current.version, reason="seen", **fields)
        return await self.control.internal.write_status(WORKERS_LEADER, worker.id, body)

    @staticmethod
    def cml(status: ConditionStatus, reason: str) -> tuple[Condition, ...]:
        """Write the CML condition that the worker controller would report."""
        return (Condition(type=ConditionType.CML_READY, status=status, reason=reason, since=clock.now()),)

    async def restart(self, worker: Worker, *, seconds: float = 120.0) -> None:
        """The instance is stopped and started again later: its nodes are stopped then."""
        world = self.world(worker)
        world.power_off()
        await self.report(worker, WorkerStatus.STOPPED, conditions=self.cml(*NOT_READY))
        await asyncio.sleep(seconds)
        world.power_on()
        await self.report(worker, WorkerStatus.STARTING)
        address = next(a for a, known in self.servers.worlds.items() if known is world)
        await self.report(worker, WorkerStatus.RUNNING, public_ip=address, conditions=self.cml(*READY))

    def world(self, worker: Worker) -> World:
        """The CML of a worker."""
        assert worker.public_ip is not None
        return self.servers.worlds[worker.public_ip]

    async def verify(self, *, done: bool = True) -> None:
        """The worker controller's leader has verified all its workers."""
        await self.control.internal.announce_leadership(WORKERS_LEADER, startup_sweep_done=done)

    # Lablets

    async def define(self, topology: str = TOPOLOGY, **requirements: Any) -> None:
        """Create a definition."""
        needs = LabletRequirements(**{"license": False, "nodes": 2, "ports": ("CONSOLE",), **requirements})
        await self.people.definitions.create(
            CreateDefinitionRequest(name="exercise", version="1", topology=topology, requirements=needs)
        )

    async def lablet(self, worker: Worker | None = None, **body: Any) -> Lablet:
        """Create a lablet; with a worker, place it there."""
        made = await self.people.lablets.create(CreateLabletRequest(definition="exercise", **body))
        return made if worker is None else await self.place(made, worker)

    async def place(self, lablet: Lablet, worker: Worker) -> Lablet:
        """Place a lablet as the scheduler would."""
        placement = Placement(at=clock.now(), worker_id=worker.id, score=0.5, reason="the only one")
        write = PlacementRequest(lablet_id=lablet.id, version=lablet.version, worker_id=worker.id, placement=placement)
        (done,) = await self.control.internal.schedule(SCHEDULER, PlacementBatch(items=(write,)))
        assert done.placed, done.detail
        return await self.control.internal.lablet(lablet.id)

    async def get(self, lablet: Lablet) -> Lablet:
        """The current record."""
        return await self.people.lablets.get(lablet.id)

    async def until_status(self, lablet: Lablet, status: LabletStatus, *, within: float = 3600.0) -> Lablet:
        """Wait for a status."""

        async def reached() -> bool:
            return (await self.get(lablet)).status is status

        try:
            await self.until(reached, "", within=within)
        except AssertionError:
            found = await self.get(lablet)
            raise AssertionError(
                f"not {status} within {within:g} s but {found.status}: {found.message!r}, labs {self.servers.markers()}"
            ) from None
        return await self.get(lablet)

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], what: str, *, within: float = 3600.0
    ) -> None:
        """Wait until the condition holds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            if loop.time() - began > within:
                raise AssertionError(f"not within {within:g} s: {what}")
            await asyncio.sleep(0.5)

    async def steps(self, lablet: Lablet) -> list[str]:
        """The statuses of its history, in order."""
        return [entry.to_status.value async for entry in self.people.lablets.history(lablet.id)]

    async def audits(self, subject: str, by: str = "lablet-controller") -> list[str]:
        """The audit entries of the lablet controller about a subject, oldest first."""
        audit = self.people.fleet.audit(subject=[subject], newest_first=False)
        return [entry.action async for entry in audit if by in entry.actor.name]

    # Controllers

    async def start(self, name: str = "one") -> LabletReconciler:
        """Start a lablet controller, which leads or stands by."""
        life = self.lives[name] = ProcessLife()
        inner = httpx.ASGITransport(self.plane.app, raise_app_exceptions=False)
        control = self.connect(Role.CONTROLLER, MortalLink(inner, life))
        coordination = FaultyCoordination(MemoryCoordination(self.coordination))

        def cut_off() -> None:
            coordination.cut = True
            coordination.break_watches()

        life.on_death = cut_off
        transport = cml_transport(self.servers, life)
        session = CMLSession(transport, registry=CollectorRegistry())
        registry = self.registries[name] = CollectorRegistry()
        reconciler = LabletReconciler(
            coordination,
            LeaderElectionConfig(election_key_prefix="/lcm", service_name="lablet-controller", instance_id=name),
            WatchConfig(prefix="/instances/"),
            self.reconciliation,
            LabletDependencies(control, session, session.forget),
            LabletControllerConfig(ACCOUNT, policy=self.policy, sweep_interval=self.sweep_interval),
            registry=registry,
        )
        LabletGauges(reconciler, registry)
        self.controllers[name] = reconciler
        self.closing.append(transport.aclose)
        await reconciler.start()
        return reconciler

    def connect(self, role: Role, wire: httpx.AsyncBaseTransport | None = None) -> Client:
        """A client of the control plane."""
        http = InProcessTransport(self.plane.app) if wire is None else HttpxTransport(wire)
        client = Client("http://lcm.test", self.plane.tokens[role], wire=http, registry=CollectorRegistry())
        self.closing.append(client.aclose)
        return client


@asynccontextmanager
async def start_lablet_platform(
    *, policy: LabletPolicy | None = None, verified: bool = True
) -> AsyncIterator[LabletPlatform]:
    """A platform with a definition, but without workers and controllers."""
    async with serving_plane() as plane:
        server = MemoryServer()
        store, probes = plane.services.context.store, MirrorSettings(check_every=10.0)  # the default takes much time
        mirror = Mirror(store, MemoryCoordination(server), plane.feed, LABLET_MIRROR, probes)
        await mirror.start()
        platform = LabletPlatform(plane, server, FakeCmlNetwork(), None, None, policy or LabletPolicy())  # type: ignore[arg-type]
        platform.people = platform.connect(Role.ADMIN)
        platform.control = platform.connect(Role.CONTROLLER)
        await platform.control.internal.announce_leadership(SCHEDULER)
        await platform.verify(done=verified)
        await platform.define()
        try:
            yield platform
        finally:
            for controller in platform.controllers.values():
                await controller.stop()
            for close in platform.closing:
                await close()
            await mirror.stop()
