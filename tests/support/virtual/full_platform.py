"""All controllers on one fleet in virtual time: the scheduler's workers are launched, and lablets run on them.

Everything is the real code but the network. The worker controller and the lablet controller speak to the same
simulated CML servers, one on each instance of the simulated cloud.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client import CollectorRegistry

from lcm.cloud.types import InstanceState
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure
from lcm.cml.client.transport import CMLTransport
from lcm.cml.simulator.http.app import make_simulator_app
from lcm.cml.simulator.state.world import SimulatorSettings, World
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.controllers.lablet.controller import LabletReconciler
from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.coordination.memory.client import MemoryCoordination
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.model.access import Role
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, Lablet, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.cml_servers import FakeCmlNetwork
from tests.support.virtual.fake_cml import DEFAULT
from tests.support.virtual.fleet import BOOT, Fleet, a_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lcm.cloud.simulated import SimulatedCloud
    from lcm.cloud.simulated.machine import Machine
    from lcm.cml.simulator.state.labs import Lab
    from lcm.controllers.worker.deps import Policy
    from lcm.core.hosting import HostedService

WATCH = WatchConfig(prefix="/instances/")
CONFIG = ReconciliationConfig(interval_seconds=120.0)  # changes are watched; frequent polling would be slow
_SETTINGS = SimulatorSettings(boot_seconds=BOOT, password=DEFAULT.password)
_POLL_SECONDS = 5.0  # reading all records takes longer than what happens meanwhile
_NODE = "  - {{id: n{0}, label: host{0}, node_definition: alpine, x: {0}, y: 0, interfaces: []}}\n"


def topology(nodes: int) -> str:
    """A lab with that many nodes."""
    return "lab: {version: 0.2.2, title: exercise}\nnodes:\n" + "".join(_NODE.format(n) for n in range(nodes))


class ParkedServers(FakeCmlNetwork):
    """Simulated CML servers on the instances of a simulated cloud: each is reachable while its instance runs."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        super().__init__()
        self.cloud = cloud
        self.by_machine: dict[str, World] = {}
        self.types_without_kvm: set[str] = set()  # although EC2 offers it
        self._address_of: dict[str, str] = {}  # the last address of each instance

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        address = request.url.host
        machine = self._machine(address)
        if machine is None:
            self.worlds.pop(address, None)
        elif not self._switch_on(machine, address).boot.is_listening:
            raise httpx.ConnectError("it boots", request=request)
        return await super().handle_async_request(request)

    def labs(self) -> list[Lab]:
        """All labs on instances that still exist, running or not."""
        there = {
            machine.id
            for region in self.cloud.regions.values()
            for machine in region.machines.values()
            if machine.state is not InstanceState.TERMINATED
        }
        worlds = [world for machine_id, world in self.by_machine.items() if machine_id in there]
        for world in worlds:
            world.time.advance()
        return [lab for world in worlds for lab in world.labs.all]

    def imports(self) -> int:
        """All labs that were created through the API, also on instances that are gone."""
        return sum(world.labs.imported for world in self.by_machine.values())

    def _switch_on(self, machine: Machine, address: str) -> World:
        """An instance has a new address after each start: its disk is kept, but nothing runs on it."""
        world = self.by_machine.setdefault(machine.id, World(replace(_SETTINGS, kvm=self._has_kvm(machine))))
        if self._address_of.get(machine.id) != address:
            world.power_off()
            world.power_on()
            self.worlds[address] = world
            self._wires[address] = httpx.ASGITransport(app=make_simulator_app(world))
            self._address_of[machine.id] = address
        world.time.advance()
        return world

    def _has_kvm(self, machine: Machine) -> bool:
        return machine.has_kvm and machine.instance_type not in self.types_without_kvm

    def _machine(self, address: str) -> Machine | None:
        """The instance that runs at an address. Controllers of these tests use public addresses only."""
        for region in self.cloud.regions.values():
            for machine in region.machines.values():
                if machine.public_ip == address:
                    machine.settle(self.cloud.time())
                    return machine if machine.state is InstanceState.RUNNING else None
        return None


class Whole:
    """The platform, and actions of users and tests."""

    def __init__(self, fleet: Fleet, servers: ParkedServers, scheduler: SchedulerHostedService) -> None:
        self.fleet = fleet
        self.servers = servers
        self.scheduler = scheduler

    async def define(self, name: str, requirements: LabletRequirements) -> None:
        """A lablet definition: a lab with that many nodes."""
        body = CreateDefinitionRequest(
            name=name, version="1", topology=topology(requirements.nodes), requirements=requirements
        )
        await self.fleet.people.definitions.create(body)

    async def make(self, definition: str, **body: Any) -> Lablet:
        """A user creates a lablet."""
        return await self.fleet.people.lablets.create(CreateLabletRequest(definition=definition, **body))

    async def running(self, definition: str, **body: Any) -> Lablet:
        """A running lablet."""
        return await self.until_status(await self.make(definition, **body), LabletStatus.RUNNING)

    async def lablets(self) -> list[Lablet]:
        """All records, from the store."""
        page = await self.fleet.plane.services.context.store.find(LABLETS, limit=1000)
        return [Lablet.model_validate_json(item.body) for item in page.items]

    async def lablet(self, lablet_id: str) -> Lablet:
        """The record, from the store."""
        return next(lablet for lablet in await self.lablets() if lablet.id == lablet_id)

    async def workers(self) -> list[Worker]:
        """All records, from the store."""
        page = await self.fleet.plane.services.context.store.find(WORKERS, limit=1000)
        return [Worker.model_validate_json(item.body) for item in page.items]

    async def worker_of(self, lablet: Lablet) -> Worker:
        """The worker of a lablet."""
        assert lablet.worker_id is not None
        return await self.fleet.worker(lablet.worker_id)

    async def serving(self) -> int:
        """The number of running workers."""
        return sum(worker.status is WorkerStatus.RUNNING for worker in await self.workers())

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, *, within: float = 3600.0) -> None:
        """Wait until the predicate is true; on failure describe all records."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not await condition():
            if loop.time() > deadline:
                lablets = [(each.status.value, each.message, each.placement) for each in await self.lablets()]
                workers = [(each.name, each.status.value, each.allocation) for each in await self.workers()]
                raise AssertionError(f"not within {within:g} s: {what}\n{lablets}\n{workers}")
            await asyncio.sleep(_POLL_SECONDS)

    async def until_status(self, lablet: Lablet, status: LabletStatus, *, within: float = 3600.0) -> Lablet:
        """Wait for the status of a lablet."""

        async def reached() -> bool:
            return (await self.lablet(lablet.id)).status is status

        await self.until(reached, f"{lablet.id} is {status}", within=within)
        return await self.lablet(lablet.id)

    async def check_books(self) -> None:
        """The allocations of workers match their lablets and do not exceed their capacity."""
        lablets = [lablet for lablet in await self.lablets() if lablet.assigned]
        for worker in await self.workers():
            mine = [lablet.requirements for lablet in lablets if lablet.worker_id == worker.id]
            taken, size = worker.allocation, worker.capacity
            assert size is not None
            assert taken.lablets == len(mine)
            assert taken.cpu_cores == sum(each.cpu_cores for each in mine) <= size.cpu_cores
            assert taken.memory_gb == sum(each.memory_gb for each in mine) <= size.memory_gb
            assert taken.storage_gb == sum(each.storage_gb for each in mine) <= size.storage_gb
            assert taken.nodes == sum(each.nodes for each in mine) <= size.max_nodes


def _election(name: str) -> LeaderElectionConfig:
    return LeaderElectionConfig(election_key_prefix="/lcm", service_name=name, instance_id="one")


@asynccontextmanager
async def a_whole(*, policy: Policy | None = None, report_interval: float | None = None) -> AsyncIterator[Whole]:
    """An empty fleet with a worker controller, a resource scheduler and a lablet controller."""
    async with a_fleet(policy=policy, config=CONFIG, report_interval=report_interval) as fleet:
        servers = ParkedServers(fleet.world)
        transport = CMLTransport(Insecure(), http=HttpxTransport(servers))
        session = CMLSession(transport, registry=CollectorRegistry())
        fleet.servers = CMLSystemClient(session)
        await fleet.change_settings(scaling={"max_workers_per_region": 60})
        scheduler = SchedulerHostedService(
            MemoryCoordination(fleet.server),
            _election("resource-scheduler"),
            WATCH,
            CONFIG,
            fleet.connect(Role.CONTROLLER),
            SchedulerConfig(),
            registry=CollectorRegistry(),
        )
        lablets = LabletReconciler(
            MemoryCoordination(fleet.server),
            _election("lablet-controller"),
            WATCH,
            CONFIG,
            LabletDependencies(fleet.connect(Role.CONTROLLER), session, session.forget),
            LabletControllerConfig(DEFAULT),
            registry=CollectorRegistry(),
        )
        await fleet.start()
        services: list[HostedService] = [scheduler, lablets]
        for service in services:
            await service.start()
        try:
            yield Whole(fleet, servers, scheduler)
        finally:
            for service in services:
                await service.stop()
            await transport.aclose()
