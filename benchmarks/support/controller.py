"""`python -m benchmarks.support.controller WORKERS [PORT]`: a worker controller to measure, in its own process.

It is put together as `lcm worker-controller` is and told by the same variables, but its cloud is a simulated one in
which so many machines run. PORT is that of the CML server that stands for all of theirs; without one nothing goes over
the wire. It takes orders on standard input, one a line, and answers each with a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, disable_created_metrics

from benchmarks.support.addresses import loopback_url
from benchmarks.support.fleet import CML_DEFINITIONS, CML_VERSION, simulated_cloud
from lcm.cli.processes.services import freeze_startup_objects, raise_descriptor_limit
from lcm.cloud.simulated import SimulatedProvider
from lcm.cloud.types import RegionLaunchSettings
from lcm.cml.client.access import CmlAccess
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure
from lcm.cml.errors import CMLNotReadyError
from lcm.cml.pollers import PolledCMLClient
from lcm.cml.reading import read_server
from lcm.cml.types import CMLActivity, ComputeHealth, LicenseState, SystemHealth, SystemInformation, SystemStats, Usage
from lcm.core import clock
from lcm.core.hosting import Host, HostedService, cancel_and_wait, run_process
from lcm.core.logs import configure_logging
from lcm.http.server import HttpServer
from lcm.settings import load
from lcm.wiring.connections import CmlConnection, CoordinationConnection, StartedNotification, connect_coordination
from lcm.wiring.controllers import ControllerRuntime, make_control_plane_client
from lcm.wiring.worker_controller import CloudConnection, WorkerControllerProcessSettings, make_worker_controller

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cloud.simulated import SimulatedCloud
    from lcm.cloud.simulated.region import SimulatedRegion
    from lcm.cloud.types import InstanceState
    from lcm.cml.reading import ServerQuery, ServerReading
    from lcm.cml.types import Credentials, DeregistrationResult
    from lcm.controllers.worker.controller import WorkerReconciler

_GLANCE = 0.005
_CML_CALLS = "lcm_cml_calls_total"
_INFORMATION = SystemInformation(CML_VERSION, ready=True)
_HEALTH = SystemHealth(True, False, True, True, (ComputeHealth("cml", True, True, "READY", True),))
_STATS = SystemStats(3, 12, 7, 16, 41.5, Usage(4_000, 16_000), Usage(10_000, 100_000))
_LICENSE = LicenseState("NOT_REGISTERED", "EVAL", "CML_Enterprise", True, (), "", None, False)


class Arrivals(SimulatedProvider):
    """Records the time of start and stop calls, by a clock that all processes share."""

    def __init__(self, world: SimulatedCloud) -> None:
        super().__init__(world)
        self.noted: dict[str, float] = {}

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        def start(place: SimulatedRegion, now: float) -> InstanceState:
            self._note(instance_id)
            return place.start_instance(instance_id, now)

        return await self._call(region, "StartInstances", start, instances=1)

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        def stop(place: SimulatedRegion, now: float) -> InstanceState:
            self._note(instance_id)
            return place.stop_instance(instance_id, now)

        return await self._call(region, "StopInstances", stop, instances=1)

    def _note(self, instance_id: str) -> None:
        self.noted.setdefault(instance_id, asyncio.get_running_loop().time())


class AtHand:
    """CML servers that respond immediately. Nothing is sent: the addresses of these workers belong to others."""

    async def read_server(self, query: ServerQuery, seconds: float) -> ServerReading:
        return await read_server(self, query, seconds)

    async def get_system_information(self, address: str) -> SystemInformation:
        return _INFORMATION

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        return _HEALTH

    async def get_system_stats(self, address: str, credentials: Credentials, *, with_labs: bool = True) -> SystemStats:
        return _STATS

    async def count_labs(self, address: str, credentials: Credentials) -> int | None:
        return _STATS.labs

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        return _LICENSE

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        raise CMLNotReadyError(address, "there is no server")

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        raise CMLNotReadyError(address, "there is no server")

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        return CMLActivity((), 0, 0)

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        return CML_DEFINITIONS

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        return None

    def trust(self, address: str, certificate: str) -> None:
        pass

    def forget(self, address: str) -> None:
        pass


class Orders(HostedService):
    """Executes orders one after the other until the input ends."""

    def __init__(self, reconciler: WorkerReconciler, world: SimulatedCloud, provider: Arrivals) -> None:
        super().__init__("orders")
        self.over: Callable[[str], None] = lambda _: None
        self._reconciler = reconciler
        self._world = world
        self._provider = provider
        self._taking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._taking = self._spawn(self._take_on(), "take")

    async def stop(self) -> None:
        if self._taking is not None:
            await cancel_and_wait([self._taking])

    async def _take_on(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            print(json.dumps(await self._obey(line.decode().strip())), flush=True)
        self.over("there are no more orders")

    async def _obey(self, order: str) -> Any:
        match order:
            case "settle":
                return await self._settled()
            case "resync":
                return await self._resync()
            case "calls":
                return self._world.calls()
            case "passes":
                return sum(self._reconciler.queue.wait_counts)
            case "lead" | "shared by 2" | "shared by 3" | "two rounds":
                return await _until(self._condition(order))
            case "cml":
                return _cml_calls()
            case "polled":
                return _cml_calls("system_stats")
            case "arrivals":
                noted, self._provider.noted = self._provider.noted, {}
                return noted
        raise ValueError(f"no such order: {order}")

    def _condition(self, name: str) -> Callable[[], bool]:
        rounds = self._reconciler.metrics.rounds
        conditions: dict[str, Callable[[], bool]] = {
            "lead": lambda: self._reconciler.is_leader,
            "shared by 2": lambda: REGISTRY.get_sample_value("lcm_cml_readers") == 2,
            "shared by 3": lambda: REGISTRY.get_sample_value("lcm_cml_readers") == 3,
            "two rounds": lambda: self._reconciler.metrics.rounds >= rounds + 2,
        }
        return conditions[name]

    async def _settled(self) -> float:
        """Seconds from the start of the term until all workers were verified, returned when the queue is empty."""
        loop = asyncio.get_running_loop()
        await _until(lambda: self._reconciler.is_leader)
        began = loop.time()
        await _until(lambda: self._reconciler.startup_sweep_done)
        took = loop.time() - began
        await _until(lambda: not self._at_work)
        return took

    async def _resync(self) -> float:
        """Seconds for listing all workers, sweeping all regions, and a pass over each due worker."""
        loop, controller = asyncio.get_running_loop(), self._reconciler
        began, since, listed = loop.time(), clock.boottime(), controller.listed_at
        controller.trigger()
        await _until(lambda: controller.listed_at is not listed and not self._at_work and self._swept(since))
        return loop.time() - began

    @property
    def _at_work(self) -> bool:
        return bool(len(self._reconciler.queue) or self._reconciler.queue.busy)

    def _swept(self, since: float) -> bool:
        latest = (watch.region_cache.latest for watch in self._reconciler.regions.values())
        return all(sweep is not None and sweep.complete and sweep.began_at >= since for sweep in latest)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells when it is so
        await asyncio.sleep(_GLANCE)


def _cml_calls(operation: str | None = None) -> float:
    """The number of calls to CML servers; of an operation only those that were successful."""
    wanted = None if operation is None else {"operation": operation, "outcome": "ok"}
    samples = (sample for family in REGISTRY.restricted_registry([_CML_CALLS]).collect() for sample in family.samples)
    return sum(
        sample.value for sample in samples if sample.name == _CML_CALLS and (wanted is None or sample.labels == wanted)
    )


def _servers(port: int | None, settings: WorkerControllerProcessSettings) -> CmlConnection:
    if port is None:
        return CmlConnection(AtHand(), _nothing_to_close)
    processes = settings.cml_poller_processes
    most = settings.cml_max_idle_connections // max(1, processes)
    access = CmlAccess(Insecure(), max_idle_connections=most, base_url_of=partial(loopback_url, port))
    transport = access.open()
    session = CMLSession(transport)
    if processes == 0:
        return CmlConnection(CMLSystemClient(session), transport.aclose, session)
    polled = PolledCMLClient(session, access, processes)

    async def close() -> None:
        await polled.close_pollers()
        await transport.aclose()

    return CmlConnection(polled, close, session)


async def _nothing_to_close() -> None:
    pass


async def serve(count: int, cml_port: int | None) -> int:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    settings = load(WorkerControllerProcessSettings).settings
    configure_logging(settings.log_level, settings.log_format)
    world = simulated_cloud(count)
    provider = Arrivals(world)
    cloud = CloudConnection(
        provider, provider, {name: RegionLaunchSettings(name) for name in world.regions}, provider.close
    )
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    runtime = ControllerRuntime(coordination, settings)
    cml = _servers(cml_port, settings)
    made = make_worker_controller(runtime, settings, make_control_plane_client(settings), cloud, cml)
    port = settings.worker_controller_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="WORKER_CONTROLLER_PORT")
    orders = Orders(made.reconciler, world, provider)
    host = Host(
        [
            CoordinationConnection(coordination),
            surface,
            *made.services,
            orders,
            StartedNotification(freeze_startup_objects),
        ]
    )
    orders.over = host.request_stop
    return await host.run()


if __name__ == "__main__":
    raise_descriptor_limit()
    sys.exit(run_process(serve(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)))
