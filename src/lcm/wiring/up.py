"""Everything in one process: control plane, all controllers, and a simulated world unless AWS is configured."""

from __future__ import annotations

import json
import secrets as token_source
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

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
from lcm.core.version import installed_version
from lcm.http.callers import mark_in_process
from lcm.http.in_process import InProcessTransport
from lcm.model.fleet.state import LeadershipTerm
from lcm.wiring.confirm_aws import ConfirmBeforeChanges
from lcm.wiring.connections import (
    CmlConnection,
    CoordinationConnection,
    StartedNotification,
    connect_cml,
    connect_coordination,
)
from lcm.wiring.control_plane import ControlPlaneComponentSettings, make_control_plane, region_names
from lcm.wiring.controllers import ControllerRuntime, ControllerRuntimeSettings
from lcm.wiring.identity_provider import oidc_network
from lcm.wiring.lablet_controller import LabletControllerComponentSettings, make_lablet_controller
from lcm.wiring.listener import make_http_server
from lcm.wiring.resource_scheduler import ResourceSchedulerComponentSettings, make_resource_scheduler
from lcm.wiring.simulated.demo import LICENSE_TOKEN, Demo
from lcm.wiring.simulated.world import SimulatedWorld
from lcm.wiring.worker_controller import (
    CloudConnection,
    WorkerControllerAssembly,
    WorkerControllerComponentSettings,
    connect_aws,
    make_worker_controller,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from fastapi import FastAPI

    from lcm.control_plane.store.port import Store
    from lcm.core.coordination import Coordination
    from lcm.http.server import HttpServer
    from lcm.settings import LoadedSettings
    from lcm.wiring.confirm_aws import AccountPreview
    from lcm.wiring.controllers import ControllerFactory

log = structlog.get_logger(__name__)

SIMULATED_REGIONS: Final = ("us-east-1", "eu-west-1", "ap-southeast-2")
# Shorter than the defaults, so that the demo shows activity within minutes.
_DEMO_MINUTES: Final = {"worker_idle_timeout_minutes": 12.0, "worker_auto_pause_snooze_minutes": 4.0}
_DEMO_SECONDS: Final = {"idle_detection_interval": 30.0, "discovery_interval": 60.0, "metrics_collect_interval": 15.0}
_LEAST_DEMO_VALUE: Final = 1.0  # a shorter idle timeout or interval is refused
_SIMULATED_PASSWORD: Final = "simulated"  # noqa: S105 - of servers that only this process can reach
_LOCAL_URL: Final = "http://lcm.local"  # requests go straight to the app, without a network
_TOKEN_FILE: Final = "admin.token"  # noqa: S105 - a name
_PASSWORD_SETTING: Final = "cml_default_password"  # noqa: S105 - a name


class UpSettings(
    ControllerRuntimeSettings,
    ControlPlaneComponentSettings,
    WorkerControllerComponentSettings,
    ResourceSchedulerComponentSettings,
    LabletControllerComponentSettings,
):
    """Settings of `lcm up`: those of all its components. By default it coordinates in memory."""

    coordination: Literal["etcd", "memory"] = Field(
        default="memory", description=ControllerRuntimeSettings.model_fields["coordination"].description
    )
    cloud_provider: Literal["aws", "simulated"] = Field(
        default="simulated", description=WorkerControllerComponentSettings.model_fields["cloud_provider"].description
    )


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options from the command line, in addition to the settings."""

    demo: bool = True
    speed: float = 1.0
    controllers: Sequence[ControllerFactory] = ()
    ask: Callable[[AccountPreview], Awaitable[bool]] | None = None  # None: change a real account without confirmation


@dataclass(frozen=True, slots=True)
class UpInfo:
    """Addresses and facts for the startup banner."""

    version: str
    url: str
    sign_in: str
    controllers: Mapping[str, str]
    token: str
    token_source: str
    cloud: str
    regions: tuple[str, ...]
    data_dir: Path
    demo: bool


def effective_settings(loaded: LoadedSettings[UpSettings], options: UpOptions) -> UpSettings:
    """The settings, with unset values adapted to a single process and to the demo."""
    settings = loaded.settings
    adapted: dict[str, object] = {}
    if settings.lcm_controller_token is None:
        adapted["lcm_controller_token"] = SecretStr(token_source.token_urlsafe(32))
    if settings.cloud_provider == "simulated":
        if settings.aws_region_configs is None:
            names = dict.fromkeys((settings.aws_default_region, *SIMULATED_REGIONS))
            adapted["aws_region_configs"] = json.dumps({name: {} for name in names})
        adapted[_PASSWORD_SETTING] = SecretStr(_SIMULATED_PASSWORD)
        if options.demo:
            if settings.scale_up_license_token is None:
                adapted["scale_up_license_token"] = SecretStr(LICENSE_TOKEN)
            for name, value in (*_DEMO_MINUTES.items(), *_DEMO_SECONDS.items()):
                if loaded.source_of(name) == "default":
                    adapted[name] = max(value / options.speed, _LEAST_DEMO_VALUE)
    return settings.model_copy(update=adapted)


def admin_token(settings: UpSettings) -> str:
    """The configured admin token, or one that is generated once and saved in the data folder."""
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
    """Where to find the admin token."""
    if loaded.settings.lcm_bootstrap_token is None:
        return str(loaded.settings.lcm_data_dir / _TOKEN_FILE)
    return f"from {loaded.source_of('lcm_bootstrap_token')}"


async def serve_up(loaded: LoadedSettings[UpSettings], options: UpOptions, started: Callable[[UpInfo], None]) -> int:
    """Run everything until it is stopped; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    settings = effective_settings(loaded, options)
    token = admin_token(settings)
    settings = settings.model_copy(update={"lcm_bootstrap_token": SecretStr(token)})
    server = MemoryServer()
    coordination: Coordination = (
        MemoryCoordination(server)
        if settings.coordination == "memory"
        else connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    )
    async with aclosing(oidc_network(settings)) as http:
        control_plane = make_control_plane(settings, coordination, http)
        wire = InProcessTransport(mark_in_process(control_plane.server.app))
        world = _world(settings, options) if settings.cloud_provider == "simulated" else None
        runtime = ControllerRuntime(coordination, settings)
        controllers = _make_controllers(runtime, settings, wire, world)
        services: list[HostedService] = [CoordinationConnection(coordination), *control_plane.services]
        services.append(_RestoreTermCounter(control_plane.parts.context.store, server))
        if world is not None:
            services.append(world)
        services += [*controllers.servers.values(), *controllers.services]
        services += [factory(runtime) for factory in options.controllers]
        admin_client = partial(Client, _LOCAL_URL, token, wire=wire)
        demo = world is not None and options.demo
        if world is not None and options.demo:
            services.append(Demo(admin_client(), world, region_names(settings), speed=options.speed))
        admin = await control_plane.parts.authenticator.tokens.verify(token)

        async def notify() -> None:
            link = await control_plane.parts.authenticator.links.link_path(admin)
            sign_in = control_plane.server.url + link.reveal()
            urls = {name: each.url for name, each in controllers.servers.items()}
            started(_up_info(loaded, settings, control_plane.server.url, sign_in, urls, demo=demo))

        services.append(StartedNotification(notify))
        host = Host(services)
        if world is None and options.ask is not None:
            stop = partial(host.request_stop, "not confirmed")
            services.append(ConfirmBeforeChanges(controllers.worker.reconciler, admin_client(), options.ask, stop))
        return await host.run()


@dataclass(frozen=True, slots=True)
class _Controllers:
    """All built-in controllers. Start the HTTP servers first, then `services` in this order."""

    worker: WorkerControllerAssembly
    services: Sequence[HostedService]
    servers: Mapping[str, HttpServer]


def _make_controllers(
    runtime: ControllerRuntime, settings: UpSettings, wire: InProcessTransport, world: SimulatedWorld | None
) -> _Controllers:
    token = settings.lcm_controller_token
    assert token is not None

    def client() -> Client:
        return Client(_LOCAL_URL, token.get_secret_value(), wire=wire)

    def http_server(app: FastAPI, port: int, setting: str) -> HttpServer:
        return make_http_server(app, settings, port, setting)

    cloud = _simulated_cloud(world) if world is not None else connect_aws(settings)
    cml = _simulated_cml(world) if world is not None else connect_cml(settings)
    worker = make_worker_controller(runtime, settings, client(), cloud, cml)
    scheduler = make_resource_scheduler(runtime, settings, client())
    # The worker controller closes the CML connection: it is stopped last.
    shared_cml = CmlConnection(cml.system, _close_nothing, cml.session)
    lablet = make_lablet_controller(runtime, settings, client(), shared_cml)
    servers = {
        "worker controller": http_server(worker.app, settings.worker_controller_port, "WORKER_CONTROLLER_PORT"),
        "resource scheduler": http_server(scheduler.app, settings.resource_scheduler_port, "RESOURCE_SCHEDULER_PORT"),
        "lablet controller": http_server(lablet.app, settings.lablet_controller_port, "LABLET_CONTROLLER_PORT"),
    }
    return _Controllers(worker, [*worker.services, *scheduler.services, *lablet.services], servers)


def _up_info(
    loaded: LoadedSettings[UpSettings],
    settings: UpSettings,
    url: str,
    sign_in: str,
    controllers: Mapping[str, str],
    *,
    demo: bool,
) -> UpInfo:
    return UpInfo(
        version=installed_version(),
        url=url,
        sign_in=sign_in,
        controllers=controllers,
        token=admin_token(settings),
        token_source=describe_token_source(loaded),
        cloud=settings.cloud_provider,
        regions=region_names(settings),
        data_dir=settings.lcm_data_dir,
        demo=demo,
    )


def _world(settings: UpSettings, options: UpOptions) -> SimulatedWorld:
    path = settings.lcm_data_dir / "simulated-cloud.json"
    return SimulatedWorld(path, region_names(settings), speed=options.speed, password=_SIMULATED_PASSWORD)


def _simulated_cloud(world: SimulatedWorld) -> CloudConnection:
    sites: Mapping[str, RegionLaunchSettings] = {region: RegionLaunchSettings(region) for region in world.cloud.regions}
    return CloudConnection(world.provider, world.provider, sites, world.provider.close)


def _simulated_cml(world: SimulatedWorld) -> CmlConnection:
    # The servers run in this process, each on its own port, so there is no certificate to verify.
    transport = CMLTransport(Insecure(), base_url_of=world.dial)
    session = CMLSession(transport)
    return CmlConnection(CMLSystemClient(session), transport.aclose, session)


async def _close_nothing() -> None:
    """Another component closes it."""


class _RestoreTermCounter(HostedService):
    """Keeps terms increasing across restarts: coordination in memory starts above the highest stored term."""

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
