"""The whole platform in one process and in virtual time: control plane, coordination, cloud, CML servers, controllers.

Everything is the real code but the network: the cloud is the simulated one, CML servers stand where instances run.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

from prometheus_client import CollectorRegistry

from lcm.client import Client
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange
from lcm.cloud.types import InstanceState, RegionLaunchSettings
from lcm.control_plane.journal.mirror import Mirror, MirrorSettings
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR, WORKER_MIRROR
from lcm.control_plane.records.kinds import WORKERS
from lcm.controllers.common import status_report
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.deps import ControllerConfig, Dependencies, Policy
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.http.in_process import InProcessTransport
from lcm.http.transport import ConnectionFailedError, ConnectionLostError
from lcm.model.access import Role
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import CreateWorkerRequest
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.virtual.control_plane import TestPlane, serving_plane
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lcm.cloud.simulated.machine import Machine
    from lcm.cml.spi import CMLSystemSPI
    from lcm.http.transport import HttpRequest, HttpResponse, HttpTransport
    from lcm.model.worker.status import WorkerStatus

REGIONS = ("eu-west-1", "us-east-1")
BOOT = 20.0
_MIRROR = MirrorSettings(check_every=10.0)  # with the default, probes would take a quarter of the time


class ParkedCml(FakeCml):
    """CML servers on the instances of a simulated cloud: each responds some time after its instance runs."""

    def __init__(self, world: SimulatedCloud) -> None:
        super().__init__()
        self.world = world
        self.boot = BOOT
        self.by_machine: dict[str, FakeServer] = {}
        self._up_since: dict[str, float] = {}
        self._last_at: dict[str, Machine] = {}  # by address: with many machines, a search for each call would be slow

    async def _at(self, address: str, operation: str, credentials: Any = None) -> FakeServer:
        machine = self._machine(address)
        if machine is None:
            self.servers.pop(address, None)
        else:
            server = self.by_machine.setdefault(machine.id, FakeServer(kvm=machine.has_kvm))
            since = self._up_since.setdefault(f"{machine.id} {machine.public_ip}", self.world.time())
            server.ready = self.world.time() - since >= self.boot
            self.servers[address] = server
        return await super()._at(address, operation, credentials)

    def _machine(self, address: str) -> Machine | None:
        machine = self._last_at.get(address)
        if machine is None or address not in (machine.public_ip, machine.private_ip):
            machine = self._find(address)
        if machine is None:
            return None
        self._last_at[address] = machine
        machine.settle(self.world.time())
        return machine if machine.state is InstanceState.RUNNING else None

    def _find(self, address: str) -> Machine | None:
        machines = (machine for region in self.world.regions.values() for machine in region.machines.values())
        return next((each for each in machines if address in (each.public_ip, each.private_ip)), None)

    def licensed(self) -> list[str]:
        """Instances, also terminated ones, whose license was not deregistered."""
        return sorted(i for i, server in self.by_machine.items() if server.license.registration == "COMPLETED")


class MortalWire:
    """A controller's connection to the control plane, which a test can cut before or after a request."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.dead = False
        self.sent: list[str] = []
        self.on_death: Callable[[], None] = lambda: None
        self._doom: tuple[str, str] | None = None
        self._spared = 0
        self._actions: dict[str, Callable[[], Awaitable[object]]] = {}

    def die(self, when: str, request: str, *, spare: int = 0) -> None:
        """`before` or `after` the next request whose method and path end like this; so many are spared."""
        self._doom, self._spared = (when, request), spare

    def meanwhile(self, request: str, errand: Callable[[], Awaitable[object]], *, spare: int = 0) -> None:
        """Do something else before the next such request is sent; so many are spared."""

        async def later() -> None:
            self.meanwhile(request, errand, spare=spare - 1)

        self._actions[request] = later if spare else errand

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request, unless the process is dead."""
        if request.before_send is not None:
            request.before_send()
            request = replace(request, before_send=None)  # asked already: what happens meanwhile comes too late for it
        line = f"{request.method} {unquote(urlsplit(request.url).path)}"
        for suffix in [suffix for suffix in self._actions if line.endswith(suffix)]:
            await self._actions.pop(suffix)()
        doomed = self._doom is not None and line.endswith(self._doom[1])
        if doomed and self._spared:
            self._spared, doomed = self._spared - 1, False
        if doomed and self._doom is not None and self._doom[0] == "before":
            self.kill()
        if self.dead:
            raise ConnectionFailedError("the process is dead")
        self.sent.append(line)
        response = await self._inner.send(request)
        if doomed and not self.dead:
            self.kill()
        if self.dead:
            raise ConnectionLostError("the process is dead")
        return response

    def discard(self, tls: ssl.SSLContext) -> None:
        """Nothing to do: there are no connections."""

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    def kill(self) -> None:
        """Cut the process off from now on."""
        self.dead = True
        self.on_death()


@dataclass
class Fleet:
    """The platform, and access to its parts."""

    plane: TestPlane
    server: MemoryServer
    world: SimulatedCloud
    cml: ParkedCml
    people: Client
    policy: Policy
    servers: CMLSystemSPI | None = None  # instead of the fakes
    metrics_interval: float = 60.0
    dedicated_account: bool = False
    config: ReconciliationConfig = field(default_factory=ReconciliationConfig)
    watch: WatchConfig = field(default_factory=lambda: WatchConfig(prefix="/workers/"))
    sites: dict[str, RegionLaunchSettings] = field(
        default_factory=lambda: {region: _site(region) for region in REGIONS}
    )
    providers: dict[str, SimulatedProvider] = field(default_factory=dict)
    controllers: dict[str, WorkerReconciler] = field(default_factory=dict)
    registries: dict[str, CollectorRegistry] = field(default_factory=dict)
    wires: dict[str, MortalWire] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    _decoded: dict[str, tuple[bytes, Worker]] = field(default_factory=dict)  # most reads find what the last one found

    def connect(self, role: Role, wire: HttpTransport | None = None) -> Client:
        """A client of the control plane."""
        http = wire or InProcessTransport(self.plane.app)
        client = Client("http://lcm.test", self.plane.tokens[role], wire=http, registry=CollectorRegistry())
        self.clients.append(client)
        return client

    async def start(self, name: str = "one") -> WorkerReconciler:
        """A worker controller, leading or standing by."""
        provider = self.providers[name] = SimulatedProvider(self.world)
        wire = self.wires[name] = MortalWire(InProcessTransport(self.plane.app))
        control = self.connect(Role.CONTROLLER, wire)
        coordination = FaultyCoordination(MemoryCoordination(self.server))

        def cut_off() -> None:
            provider.cut = coordination.cut = True
            coordination.break_watches()

        wire.on_death = cut_off
        election = LeaderElectionConfig(election_key_prefix="/lcm", service_name="worker-controller", instance_id=name)
        registry = self.registries[name] = CollectorRegistry()
        reconciler = WorkerReconciler(
            coordination,
            election,
            self.watch,
            self.config,
            Dependencies(control, provider, provider, self.servers or self.cml, self.sites),
            ControllerConfig(
                DEFAULT,
                policy=self.policy,
                metrics_interval=self.metrics_interval,
                dedicated_account=self.dedicated_account,
            ),
            registry=registry,
        )
        self.controllers[name] = reconciler
        await reconciler.start()
        return reconciler

    async def create(self, name: str = "alpha", **body: Any) -> Worker:
        """A person creates a worker."""
        return await self.people.workers.create(CreateWorkerRequest(**{"name": name, "template_name": "small", **body}))

    async def worker(self, worker_id: str) -> Worker:
        """The current record, from the store: an HTTP request twice a second would take most of a test's time."""
        stored = await self.plane.services.context.store.get(WORKERS, worker_id)
        assert stored is not None
        known = self._decoded.get(worker_id)
        if known is None or known[0] != stored.body:
            known = self._decoded[worker_id] = stored.body, Worker.model_validate_json(stored.body)
        return known[1]

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], what: str, *, within: float = 3600.0
    ) -> float:
        """Wait until the predicate is true; returns the seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return loop.time() - began
            if loop.time() - began > within:
                raise AssertionError(f"not within {within:g} s: {what}")
            await asyncio.sleep(0.5)

    async def until_status(self, worker_id: str, status: WorkerStatus, *, within: float = 3600.0) -> Worker:
        """Wait for a status."""

        async def reached() -> bool:
            return (await self.worker(worker_id)).status is status

        await self.until(reached, f"{worker_id} is {status}", within=within)
        return await self.worker(worker_id)

    async def until_ready(self, worker_id: str, *, within: float = 3600.0) -> Worker:
        """Wait until lablets can be placed on the worker."""

        async def reached() -> bool:
            return (await self.worker(worker_id)).ready

        await self.until(reached, f"{worker_id} is ready", within=within)
        return await self.worker(worker_id)

    async def running(self, name: str = "alpha", **body: Any) -> Worker:
        """A worker that is up and ready."""
        return await self.until_ready((await self.create(name, **body)).id)

    async def steps(self, worker_id: str) -> list[str]:
        """The statuses in the worker's history, in order."""
        return [entry.to_status.value async for entry in self.people.workers.history(worker_id)]

    async def audits(self, subject: str) -> list[str]:
        """The audit actions of a subject, oldest first."""
        audit = self.people.fleet.audit(subject=[subject], newest_first=False)
        return [entry.action async for entry in audit]

    def disturb(self, action: ExternalAction, worker: Worker) -> None:
        """Change the instance outside LCM."""
        assert worker.instance_id is not None
        self.world.inject_fault(worker.aws_region, ExternalChange(action, worker.instance_id))

    def machine(self, worker: Worker) -> Machine:
        """The simulated instance of a worker."""
        assert worker.instance_id is not None
        return self.world.regions[worker.aws_region].machines[worker.instance_id]

    def cml_of(self, worker: Worker) -> FakeServer:
        """The CML server of a worker."""
        assert worker.instance_id is not None
        return self.cml.by_machine[worker.instance_id]

    def calls(self, operation: str) -> int:
        """The number of requests that reached the cloud."""
        return self.world.calls()[operation]

    async def change_settings(self, **groups: dict[str, Any]) -> None:
        """An admin changes settings at run time."""
        response = await self.plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json=groups)
        assert response.status_code == 200, response.text


def _site(region: str) -> RegionLaunchSettings:
    return RegionLaunchSettings(region, subnet_ids=("subnet-a", "subnet-b"))


@asynccontextmanager
async def a_fleet(
    *,
    policy: Policy | None = None,
    seed: int = 1,
    dedicated_account: bool = False,
    config: ReconciliationConfig | None = None,
    report_interval: float | None = None,
) -> AsyncIterator[Fleet]:
    """A platform without a controller; start one or several.

    `report_interval`: seconds between the status reports of controllers, for tests of many hours that read none.
    """
    world = SimulatedCloud(seed=seed)
    for region in REGIONS:
        world.add_region(region, subnets={"subnet-a": f"{region}a", "subnet-b": f"{region}b"})
        world.add_image(region, "cml-2.9.1", created_at=clock.now())
    async with serving_plane() as plane:
        stack = ExitStack()
        if report_interval is not None:
            stack.enter_context(patch.object(status_report, "REPORT_INTERVAL_SECONDS", report_interval))
        server = MemoryServer()
        store = plane.services.context.store
        mirrors = [
            Mirror(store, MemoryCoordination(server), plane.feed, mirrored, _MIRROR)
            for mirrored in (WORKER_MIRROR, LABLET_MIRROR)
        ]
        for mirror in mirrors:
            await mirror.start()
        fleet = Fleet(plane, server, world, ParkedCml(world), None, policy or Policy())  # type: ignore[arg-type]
        fleet.people = fleet.connect(Role.ADMIN)
        fleet.dedicated_account = dedicated_account
        if config is not None:
            fleet.config = config
        try:
            yield fleet
        finally:
            stack.close()
            for controller in fleet.controllers.values():
                await controller.stop()
            for client in fleet.clients:
                await client.aclose()
            for mirror in mirrors:
                await mirror.stop()
