"""Everything in one process: control plane, all controllers, and the simulated world unless a real cloud is named."""

from __future__ import annotations

import json
import secrets as token_source
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal

import httpx
import structlog
from prometheus_client import disable_created_metrics
from pydantic import Field, SecretStr

from lcm.client.client import Client
from lcm.cloud.types import RegionLaunchSettings
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure
from lcm.cml.client.transport import CMLTransport
from lcm.control_plane.records.kinds import LEADERSHIPS
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.model.fleet.state import LeadershipTerm
from lcm.wiring.confirm_aws import ConfirmBeforeChanges
from lcm.wiring.connections import CoordinationConnection, StartedNotification, connect_coordination
from lcm.wiring.control_plane import ControlPlaneComponentSettings, make_control_plane, region_names
from lcm.wiring.controllers import ControllerRuntime, ControllerRuntimeSettings
from lcm.wiring.lablet_controller import LabletControllerComponentSettings, make_lablet_controller
from lcm.wiring.resource_scheduler import ResourceSchedulerComponentSettings, make_resource_scheduler
from lcm.wiring.simulated.demo import LICENSE_TOKEN, Demo
from lcm.wiring.simulated.world import SimulatedWorld
from lcm.wiring.worker_controller import (
    CloudConnection,
    CmlConnection,
    WorkerControllerComponentSettings,
    connect_aws,
    connect_cml,
    make_worker_controller,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from lcm.control_plane.store.port import Store
    from lcm.core.coordination import Coordination
    from lcm.settings import LoadedSettings
    from lcm.wiring.confirm_aws import AccountPreview
    from lcm.wiring.controllers import ControllerFactory

log = structlog.get_logger(__name__)

SIMULATED_REGIONS: Final = ("us-east-1", "eu-west-1", "ap-southeast-2")
# In a demo an hour without anything to see would be a long one.
_DEMO_MINUTES: Final = {"worker_idle_timeout_minutes": 12.0, "worker_auto_pause_snooze_minutes": 4.0}
_DEMO_SECONDS: Final = {"idle_detection_interval": 30.0, "discovery_interval": 60.0, "metrics_collect_interval": 15.0}
_SIMULATED_PASSWORD: Final = "simulated"  # noqa: S105 - of servers that only this process can reach
_TOKEN_FILE: Final = "admin.token"  # noqa: S105 - a name
_PASSWORD_SETTING: Final = "cml_default_password"  # noqa: S105 - a name


class UpSettings(
    ControllerRuntimeSettings,
    ControlPlaneComponentSettings,
    WorkerControllerComponentSettings,
    ResourceSchedulerComponentSettings,
    LabletControllerComponentSettings,
):
    """What `lcm up` is told: everything that its parts are. It elects among its own unless told otherwise."""

    coordination: Literal["etcd", "memory"] = Field(
        default="memory", description=ControllerRuntimeSettings.model_fields["coordination"].description
    )
    cloud_provider: Literal["aws", "simulated"] = Field(
        default="simulated", description=WorkerControllerComponentSettings.model_fields["cloud_provider"].description
    )


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the command line adds to the settings."""

    demo: bool = True
    speed: float = 1.0
    controllers: Sequence[ControllerFactory] = ()
    ask: Callable[[AccountPreview], Awaitable[bool]] | None = (
        None  # None: nobody is asked before a real account is changed
    )


@dataclass(frozen=True, slots=True)
class UpInfo:
    """What runs where, once it runs."""

    version: str
    url: str
    sign_in: str
    controllers: Mapping[str, str]
    token: str
    token_from: str
    cloud: str
    regions: tuple[str, ...]
    store: str
    data_dir: Path
    demo: bool


def effective_settings(loaded: LoadedSettings[UpSettings], wishes: UpOptions) -> UpSettings:
    """The settings, with what nobody has set made fit for one process, and in a demo for something to see."""
    settings = loaded.settings
    fitting: dict[str, object] = {}
    if settings.lcm_controller_token is None:
        fitting["lcm_controller_token"] = SecretStr(token_source.token_urlsafe(32))
    if settings.cloud_provider == "simulated":
        if settings.aws_region_configs is None:
            names = dict.fromkeys((settings.aws_default_region, *SIMULATED_REGIONS))
            fitting["aws_region_configs"] = json.dumps({name: {} for name in names})
        fitting[_PASSWORD_SETTING] = SecretStr(_SIMULATED_PASSWORD)
        if wishes.demo:
            if settings.scale_up_license_token is None:
                fitting["scale_up_license_token"] = SecretStr(LICENSE_TOKEN)
            for name, value in (*_DEMO_MINUTES.items(), *_DEMO_SECONDS.items()):
                if loaded.source_of(name) == "default":
                    fitting[name] = max(value / wishes.speed, 0.2)
    return settings.model_copy(update=fitting)


def admin_token(settings: UpSettings) -> str:
    """The admin token: the one that is set, or one that is made once and kept in the data folder."""
    if settings.lcm_bootstrap_token is not None:
        return settings.lcm_bootstrap_token.get_secret_value()
    path = settings.lcm_data_dir / _TOKEN_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    token = token_source.token_urlsafe(32)
    path.touch(mode=0o600, exist_ok=True)
    path.write_text(token + "\n", encoding="ascii")
    return token


def describe_token_source(loaded: LoadedSettings[UpSettings]) -> str:
    """Where a person finds the admin token."""
    if loaded.settings.lcm_bootstrap_token is None:
        return str(loaded.settings.lcm_data_dir / _TOKEN_FILE)
    return f"the one of {loaded.source_of('lcm_bootstrap_token')}"


async def serve_up(loaded: LoadedSettings[UpSettings], wishes: UpOptions, started: Callable[[UpInfo], None]) -> int:
    """Run everything until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    settings = effective_settings(loaded, wishes)
    token = admin_token(settings)
    settings = settings.model_copy(update={"lcm_bootstrap_token": SecretStr(token)})
    server = MemoryServer()
    coordination: Coordination = (
        MemoryCoordination(server)
        if settings.coordination == "memory"
        else connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    )
    async with httpx.AsyncClient(timeout=5.0) as http:
        plane = make_control_plane(settings, coordination, http)
        wire = httpx.ASGITransport(plane.server.app)
        regions = region_names(settings)
        world = _world(settings, regions, wishes) if settings.cloud_provider == "simulated" else None
        cloud = _simulated_cloud(world) if world is not None else connect_aws(settings)
        cml = _simulated_cml(world) if world is not None else connect_cml(settings)
        runtime = ControllerRuntime(coordination, settings)
        controller_token = settings.lcm_controller_token
        assert controller_token is not None
        admin = await plane.parts.gate.tokens.verify(token)

        def control() -> Client:
            return Client("http://lcm.local", controller_token.get_secret_value(), wire=wire)

        made = make_worker_controller(runtime, settings, control(), cloud, cml)
        scheduler = make_resource_scheduler(runtime, settings, control())
        # The servers are closed by the worker controller, which is stopped last.
        lablets = make_lablet_controller(
            runtime, settings, control(), CmlConnection(cml.system, _close_nothing, cml.session)
        )
        surfaces = [
            HttpServer(app, settings.bind_host, port, port_setting=setting)
            for app, port, setting in (
                (made.app, settings.worker_controller_port, "WORKER_CONTROLLER_PORT"),
                (scheduler.app, settings.resource_scheduler_port, "RESOURCE_SCHEDULER_PORT"),
                (lablets.app, settings.lablet_controller_port, "LABLET_CONTROLLER_PORT"),
            )
        ]
        services: list[HostedService] = [CoordinationConnection(coordination), *plane.services]
        services.append(_RestoreTermCounter(plane.parts.plane.store, server))
        if world is not None:
            services.append(world)
        services += [*surfaces, *made.services, *scheduler.services, *lablets.services]
        services += [factory(runtime) for factory in wishes.controllers]
        if world is not None and wishes.demo:
            people = Client("http://lcm.local", token, wire=wire)
            services.append(Demo(people, world, regions, speed=wishes.speed))
        services.append(
            StartedNotification(
                lambda: started(
                    UpInfo(
                        version=version("lcm"),
                        url=plane.server.url,
                        sign_in=plane.server.url + plane.parts.gate.links.address(admin).reveal(),
                        controllers={
                            name: surface.url
                            for name, surface in zip(
                                ("worker control", "scheduler", "lablet control"), surfaces, strict=True
                            )
                        },
                        token=token,
                        token_from=describe_token_source(loaded),
                        cloud=settings.cloud_provider,
                        regions=regions,
                        store=settings.store_url or str(settings.lcm_data_dir / "lcm.db"),
                        data_dir=settings.lcm_data_dir,
                        demo=world is not None and wishes.demo,
                    )
                )
            )
        )
        host = Host(services)
        if world is None and wishes.ask is not None:
            people = Client("http://lcm.local", token, wire=wire)
            services.append(
                ConfirmBeforeChanges(made.reconciler, people, wishes.ask, lambda: host.request_stop("nobody said yes"))
            )
        return await host.run()


def _world(settings: UpSettings, regions: Sequence[str], wishes: UpOptions) -> SimulatedWorld:
    path = settings.lcm_data_dir / "simulated-cloud.json"
    return SimulatedWorld(path, regions, speed=wishes.speed, password=_SIMULATED_PASSWORD)


def _simulated_cloud(world: SimulatedWorld) -> CloudConnection:
    sites: Mapping[str, RegionLaunchSettings] = {region: RegionLaunchSettings(region) for region in world.cloud.regions}
    return CloudConnection(world.provider, world.provider, sites, world.provider.close)


def _simulated_cml(world: SimulatedWorld) -> CmlConnection:
    # The servers are parts of this process, each under a port of its own: there is nobody to mistake them for.
    transport = CMLTransport(Insecure(), dial=world.dial)
    session = CMLSession(transport)
    return CmlConnection(CMLSystemClient(session), transport.aclose, session)


async def _close_nothing() -> None:
    """Somebody else closes it."""


class _RestoreTermCounter(HostedService):
    """Lets terms grow across restarts: coordination in memory begins above the highest term that the store knows."""

    def __init__(self, store: Store, server: MemoryServer) -> None:
        super().__init__("terms")
        self._store = store
        self._server = server

    async def start(self) -> None:
        page = await self._store.find(LEADERSHIPS)
        terms = [LeadershipTerm.model_validate_json(item.body).term for item in page.items]
        self._server.skip_to(max(terms, default=0) + 1)

    async def stop(self) -> None:
        """Nothing to do."""
