"""A region of the simulated cloud, a control plane, and a leader between them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client import CollectorRegistry

from lcm.client import Client
from lcm.client.base import Leader
from lcm.cloud.region_cache import RegionCache
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing
from lcm.cloud.simulated.faults import ExternalAction, ExternalChange
from lcm.cloud.types import (
    ATTEMPT_TAG,
    INSTALLATION_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    WORKER_TAG,
    InstanceSelection,
    LaunchParameters,
)
from lcm.cml.errors import CMLNotReadyError
from lcm.cml.types import SystemInformation
from lcm.controllers.worker.discovery.region_monitor import RegionMonitor
from lcm.controllers.worker.discovery.scan import Discovery, DiscoveryDependencies
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.fleet.settings import FleetSettings
from lcm.model.worker.requests import ImportWorkerRequest
from lcm.model.worker.status import WorkerStatus
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lcm.cloud.simulated.machine import Machine
    from lcm.model.worker.record import Worker

REGION = "eu-west-1"
OTHER_ACCOUNT = "999999999999"
TIMING = Timing(pending=(20.0, 20.0), stopping=(30.0, 30.0), shutting_down=(20.0, 20.0), visible_after=(0.0, 0.0))
BEYOND_DOUBT = 400.0  # seconds after which a missing instance is not merely late
_NEVER = 1e12


class Servers:
    """CML servers that respond at some addresses only."""

    def __init__(self) -> None:
        self.responses: dict[str, SystemInformation] = {}
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self.busy = self.most_at_once = 0

    async def get_system_information(self, address: str) -> SystemInformation:
        self.asked.append(address)
        self.busy += 1
        self.most_at_once = max(self.most_at_once, self.busy)
        try:
            await asyncio.sleep(3600.0 if address in self.silent else 1.0)
        finally:
            self.busy -= 1
        if address not in self.responses:
            raise CMLNotReadyError(address, "connection refused")
        return self.responses[address]


class RegionScene:
    """One region, one control plane, and any number of controllers."""

    def __init__(self, plane: TestPlane, client: Client, installation: str) -> None:
        self.plane = plane
        self.client = client
        self.internal = client.internal
        self.installation = installation
        self.world = SimulatedCloud(seed=7, timing=TIMING, page_size=20)
        self.place = self.world.add_region(REGION)
        self.image = self.world.add_image(REGION, "cml-2.9", created_at=clock.now() - timedelta(days=1))
        self.provider = SimulatedProvider(self.world)
        self.servers = Servers()
        self.settings: FleetSettings | None = FleetSettings()
        self.woken: list[str] = []
        self.effects: list[str] = []
        self._launches = 0

    # Controllers

    def monitor(self, term: int = 5) -> RegionMonitor:
        region_cache = RegionCache(self.provider, REGION, InstanceSelection((WORKER_TAG, "cml-managed")))
        return RegionMonitor(
            region_cache,
            self.internal,
            leader=lambda: Leader("worker-controller", term),
            settings=lambda: self.settings,
        )

    def discovery(self, monitor: RegionMonitor | None = None, *, term: int = 5, **more: Any) -> Discovery:
        deps = DiscoveryDependencies(
            cloud=self.provider,
            probe=self.servers,
            internal=self.internal,
            leader=lambda: Leader("worker-controller", term),
            settings=lambda: self.settings,
            wake=self.woken.append,
            known_workers=lambda _region: (),
            effect=self.effect,
            installation=self.installation,
        )
        return Discovery(deps, {REGION: monitor or self.monitor(term)}, **more)

    async def effect(self, key: str, call: Callable[[], Awaitable[Any]], /) -> Any:
        self.effects.append(key)
        return await call()

    def set(self, **discovery: Any) -> None:
        settings = FleetSettings().discovery.model_copy(update=discovery)
        self.settings = FleetSettings(discovery=settings)

    # The cloud

    async def launch(self, tags: dict[str, str] | None = None) -> str:
        """An instance that was launched by hand, by default with the discovery tag."""
        self._launches += 1
        tags_given = {"cml-managed": "true"} if tags is None else tags
        parameters = LaunchParameters(
            REGION, f"token-{self._launches}", self.image, "t3.large", None, (), None, tags_given, None, None
        )
        return (await self.provider.launch_instance(parameters)).id

    async def launch_for(self, worker_id: str, *, installation: str | None = None, **tags: str) -> str:
        """An instance of a worker, as a controller launches it."""
        ours = {
            WORKER_TAG: worker_id,
            ATTEMPT_TAG: "1",
            MANAGED_BY_TAG: MANAGED_BY,
            INSTALLATION_TAG: installation or self.installation,
        }
        return await self.launch({**ours, "cml-managed": "true", **tags})

    async def up(self, *launches: Awaitable[str], cml: bool = True) -> list[str]:
        """Running instances whose CML responds."""
        ids = [await launch for launch in launches]
        await asyncio.sleep(30)
        for instance_id in ids if cml else []:
            self.servers.responses[self.machine(instance_id).public_ip or ""] = SystemInformation("2.9.0+build.3", True)
        return ids

    def machine(self, instance_id: str) -> Machine:
        return self.place.machines[instance_id]

    def hide(self, *instance_ids: str) -> None:
        for instance_id in instance_ids:
            self.machine(instance_id).visible_at = _NEVER

    async def outlast(self, monitor: RegionMonitor, workers: list[Worker], *, minutes: float = 5, **more: Any) -> None:
        """Sweeps for so long, a minute apart: what is missing from all of them is gone if nothing else speaks."""
        ends = clock.boottime() + minutes * 60
        while clock.boottime() < ends:
            await monitor.sweep(workers, **more)
            await asyncio.sleep(60)
        await monitor.sweep(workers, **more)

    async def scan_for(self, discovery: Discovery, *, minutes: float = 10) -> None:
        """Scans for so long, five minutes apart."""
        for _ in range(int(minutes // 5)):
            await discovery.scan()
            await asyncio.sleep(300)
        await discovery.scan()

    def terminate(self, *instance_ids: str) -> None:
        """They are terminated outside LCM; EC2 shows them so."""
        for instance_id in instance_ids:
            self.world.inject_fault(REGION, ExternalChange(ExternalAction.TERMINATE, instance_id))

    def reveal(self, *instance_ids: str) -> None:
        for instance_id in instance_ids:
            self.machine(instance_id).visible_at = 0.0

    # Records

    async def fleet_of(self, count: int) -> list[Worker]:
        """That many running workers, old enough that their instances count as gone when missing."""
        ids = await self.up(*(self.launch() for _ in range(count)))
        workers = [await self.record(instance_id) for instance_id in ids]
        await asyncio.sleep(BEYOND_DOUBT)
        return workers

    async def record(self, instance_id: str, account_id: str | None = None) -> Worker:
        """A running worker with this instance."""
        body = ImportWorkerRequest(
            instance_id=instance_id,
            aws_region=REGION,
            aws_account_id=account_id or self.place.account_id,
            status=WorkerStatus.RUNNING,
        )
        return await self.internal.import_worker(Leader("worker-controller", 5), body)

    async def workers(self) -> list[Worker]:
        """All that are not TERMINATED."""
        return [worker async for worker in self.internal.workers(exclude_statuses=[WorkerStatus.TERMINATED])]

    async def now(self, worker: Worker) -> Worker:
        return await self.internal.worker(worker.id)

    async def marked(self) -> list[Worker]:
        """All that are TERMINATED."""
        return [worker async for worker in self.internal.workers() if worker.status is WorkerStatus.TERMINATED]

    async def terminated(self, instance_id: str, *, desired: bool, name: str = "ended") -> Worker:
        """A worker that was launched, had this instance, and is TERMINATED."""
        worker = await self.plane.create(name)
        worker = await self.plane.report(worker, "PROVISIONING", instance_id=instance_id)
        if desired:
            worker = (await self.plane.ask("DELETE", f"/api/workers/{worker['id']}")).json()
        await self.plane.report(worker, "TERMINATED")
        return await self.internal.worker(worker["id"])

    # People

    async def reset_breaker(self) -> None:
        response = await self.plane.ask("POST", "/api/fleet/breaker/reset", role=Role.ADMIN, json={})
        assert response.status_code < 300, response.text

    async def hold(self, path: str) -> None:
        response = await self.plane.ask("POST", path, role=Role.ADMIN, json={"reason": "under investigation"})
        assert response.status_code < 300, response.text

    async def audited(self, action: str) -> list[dict[str, Any]]:
        response = await self.plane.ask("GET", "/api/audit", role=Role.ADMIN, params={"limit": 500})
        assert response.status_code == 200, response.text
        return [entry for entry in response.json()["items"] if entry["action"] == action]

    async def breaker_known(self) -> bool:
        """Whether the control plane reports the breaker as open."""
        return REGION in (await self.internal.fleet()).breakers


@asynccontextmanager
async def region_scene() -> AsyncIterator[RegionScene]:
    """A new scene."""
    async with serving_plane() as plane:
        wire = httpx.ASGITransport(plane.app, raise_app_exceptions=False)
        token = plane.tokens[Role.CONTROLLER]
        async with Client("http://lcm.test", token, wire=HttpxTransport(wire), registry=CollectorRegistry()) as client:
            installation = (await client.internal.installation()).installation_id
            yield RegionScene(plane, client, installation)
