"""The worker controller as a process, and as a part of one that runs others too."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.client.client import Client
from lcm.client.errors import ClientError
from lcm.cloud.types import LaunchSite
from lcm.cml.proxy import HttpProxy
from lcm.cml.session import Session
from lcm.cml.system import CMLSystemClient
from lcm.cml.tls import CaBundle, FirstUse, Insecure, Pins, Trust, make_context
from lcm.cml.transport import Transport
from lcm.cml.types import Credentials
from lcm.core.hosting import Host, HostedService, keep_running
from lcm.core.surface import HttpServer
from lcm.model.access import Role
from lcm.settings import (
    CloudSettings,
    CmlSettings,
    Conflict,
    ControllerTokenSettings,
    PlaneAddressSettings,
    RegionSettings,
    WorkerControllerSettings,
)
from lcm.wiring.connections import Connection, Greeting, connect
from lcm.wiring.controllers import Runtime, StandaloneSettings
from lcm.worker_controller.alarms import Alarms
from lcm.worker_controller.doorkeeper import Doorkeeper
from lcm.worker_controller.given import Outside, Rules
from lcm.worker_controller.http import make_surface
from lcm.worker_controller.launching import Images
from lcm.worker_controller.policy import Policy
from lcm.worker_controller.reconciler import WorkerReconciler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from fastapi import FastAPI

    from lcm.cloud.aws import RegionConfig
    from lcm.cloud.aws.permissions import Permissions
    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI
    from lcm.cml.spi import CMLSystemSPI
    from lcm.wiring.connections import Started

log = structlog.get_logger(__name__)

SERVICE = "worker-controller"
WORKERS = "/workers/"

_ENDPOINT = "AWS_ENDPOINT_URL"
_CHECK_EVERY = 5.0
_CHECK_SECONDS = 4.0


class WorkerControllerParts(
    WorkerControllerSettings, CmlSettings, CloudSettings, RegionSettings, PlaneAddressSettings, ControllerTokenSettings
):
    """What a worker controller is told, besides what every controller is."""


class WorkerControllerProcess(StandaloneSettings, WorkerControllerParts):
    """What a worker controller in a process of its own is told."""

    def conflicts(self) -> Iterator[Conflict]:
        """Besides the rules of the groups: it must be let in, and there is no simulated cloud to share."""
        yield from super().conflicts()
        token = self.lcm_controller_token
        if token is None:
            yield Conflict("lcm_controller_token", rule="must be set: the one that the control plane was given")
        elif not _printable(token.get_secret_value()):
            yield Conflict("lcm_controller_token", rule="must be printable ASCII without spaces")
        if self.cloud_provider == "simulated":
            yield Conflict("cloud_provider", rule="must be aws here: only `lcm up` has a simulated cloud")


class MissingExtra(Exception):
    """What is needed was not installed; the text says how to get it."""


class WrongSettings(Exception):
    """Settings that only their user can judge are wrong; the text says how."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud, and what instances are launched with in each of its regions."""

    provider: CloudProviderSPI
    metrics: MetricsSPI
    sites: Mapping[str, LaunchSite]
    close: Callable[[], Awaitable[None]]
    permissions: Callable[[str], Permissions] | None = None  # where a cloud can be asked what it would allow


@dataclass(frozen=True, slots=True)
class CmlServers:
    """The way to CML servers."""

    system: CMLSystemSPI
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class WorkerController:
    """A worker controller that was put together. `services` are to be started in this order, after its surface."""

    reconciler: WorkerReconciler
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def aws_cloud(settings: WorkerControllerParts, registry: CollectorRegistry = REGISTRY) -> Cloud:
    """AWS in the regions of the settings."""
    try:
        from lcm.cloud.aws import AwsConfig, AwsProvider, ConfigError
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("boto3", "botocore"):
            raise
        raise MissingExtra("CLOUD_PROVIDER is aws, whose library is missing: install lcm[aws]") from None
    try:
        config = AwsConfig.load(settings.aws_region_configs, settings.aws_default_region)
    except ConfigError as error:
        raise WrongSettings(str(error)) from None
    endpoint = settings.aws_endpoint_url
    # botocore reads the variable by itself, with those for single services; what a file says must be handed on.
    if endpoint is not None and os.environ.get(_ENDPOINT) != endpoint:
        own = {name: _at(region, endpoint) for name, region in config.regions.items()}
        config = AwsConfig(own, config.tuning)
    provider = AwsProvider(config, registry)
    sites = {name: launch_site(region) for name, region in config.regions.items()}
    return Cloud(provider, provider, sites, provider.close, provider.permissions)


def launch_site(region: RegionConfig) -> LaunchSite:
    """What the configuration of a region says about launches."""
    return LaunchSite(
        region=region.region,
        subnet_ids=region.subnet_ids,
        security_group_ids=region.security_group_ids,
        key_name=region.key_name,
        default_tags=region.default_tags,
        instance_profile=region.instance_profile,
    )


def cml_servers(settings: CmlSettings, registry: CollectorRegistry = REGISTRY) -> CmlServers:
    """CML servers over the network, trusted and reached as the settings say."""
    pins = Pins()
    trust: Trust
    if settings.cml_tls == "pin":
        trust = FirstUse(pins)
    elif settings.cml_tls == "ca":
        trust = CaBundle(settings.cml_ca_file)
        try:
            make_context(trust)
        except ValueError as error:
            raise WrongSettings(f"CML_CA_FILE: {error}") from None
    else:
        trust = Insecure()
        log.warning("CML servers do not have to prove who they are; passwords may go to anybody", CML_TLS="insecure")
    if settings.cml_proxy_url is None:
        transport = Transport(trust)
    else:
        proxy = HttpProxy(settings.cml_proxy_url)
        transport = Transport(trust, wire=proxy.wire, open_tls=proxy.open_tls)
    return CmlServers(_Servers(Session(transport, registry=registry), pins), transport.aclose)


class _Servers(CMLSystemClient):
    """Forgets the certificate of an address with the rest: whoever has the address next shows one of its own."""

    def __init__(self, session: Session, pins: Pins) -> None:
        super().__init__(session)
        self._pins = pins

    def forget(self, address: str) -> None:
        super().forget(address)
        self._pins.drop(address)


def rules_of(settings: WorkerControllerParts) -> Rules:
    """What the reconciler is told once."""
    return Rules(
        account=Credentials(settings.cml_default_username, settings.cml_default_password.get_secret_value()),
        policy=Policy(
            provisioning_timeout=settings.provisioning_timeout,
            starting_timeout=settings.starting_timeout,
            stuck_after=settings.stuck_after,
            cml_ready_timeout=settings.cml_ready_timeout,
            drain_timeout=settings.drain_timeout,
            license_release_timeout=settings.license_release_timeout,
        ),
        images=Images(settings.ami_name_pattern, settings.ami_owners),
        metrics_interval=settings.metrics_collect_interval,
        private_addresses=settings.cml_use_private_address,
        dedicated_account=settings.cml_dedicated_account,
    )


def make_worker_controller(
    runtime: Runtime,
    settings: WorkerControllerParts,
    control: Client,
    cloud: Cloud,
    cml: CmlServers,
    *,
    registry: CollectorRegistry = REGISTRY,
) -> WorkerController:
    """Put a worker controller together, for whichever process runs it. It owns what it is given, and closes it."""
    reconciler = WorkerReconciler(
        runtime.coordination,
        runtime.election(SERVICE),
        runtime.watch(WORKERS),
        runtime.reconciliation,
        Outside(control, cloud.provider, cloud.metrics, cml.system, cloud.sites),
        rules_of(settings),
        registry=registry,
    )
    Alarms(reconciler, registry)
    plane = PlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": version("lcm"),
        "instance_id": reconciler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
        "cloud": settings.cloud_provider,
        "regions": sorted(cloud.sites),
    }
    app = make_surface(reconciler, Doorkeeper(control.access.whoami), [reconciler, plane], about, registry)
    ties = Ties({"cloud": cloud.close, "CML servers": cml.close, "control plane": control.aclose})
    return WorkerController(reconciler, [ties, plane, reconciler], app, about)


class Ties(HostedService):
    """Closes connections to the outside, after everybody who uses them has stopped."""

    def __init__(self, closing: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        super().__init__("outside")
        self._closing = closing

    async def start(self) -> None:
        """Nothing to do: connections are made when they are first needed."""

    async def stop(self) -> None:
        for name, close in self._closing.items():
            try:
                await close()
            except Exception:
                log.exception("a connection did not close cleanly", to=name)


class PlaneCheck(HostedService):
    """Asks the control plane now and then whether it answers us, and as whom."""

    def __init__(self, control: Client, *, every: float = _CHECK_EVERY) -> None:
        super().__init__("control-plane")
        self._control = control
        self._every = every
        self._trouble = "has not been asked yet"
        self._checking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._checking = self._spawn(keep_running("control plane check", self._check_on), "check")

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])

    def readiness(self) -> list[str]:
        """Whether the control plane let us in when it was last asked."""
        return [f"control plane: {self._trouble}"] if self._trouble else []

    async def _check_on(self) -> None:
        while True:
            trouble = await self._ask()
            if trouble and trouble != self._trouble:
                log.warning("the control plane does not serve us", error=trouble)
            elif self._trouble and not trouble:
                log.info("the control plane serves us")
            self._trouble = trouble
            await asyncio.sleep(self._every)

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                me = await self._control.access.whoami()
        except (ClientError, TimeoutError) as error:
            return str(error) or f"no answer within {_CHECK_SECONDS:g} s"
        if me.role is not Role.CONTROLLER:
            return f"LCM_CONTROLLER_TOKEN is of {me.name}, whose role is {me.role}, not controller"
        return ""


async def serve_worker_controller(settings: WorkerControllerProcess, started: Started) -> int:
    """Run a worker controller until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    cloud, cml = aws_cloud(settings), cml_servers(settings)
    control = plane_client(settings)
    coordination = connect(settings, lease_ttl=settings.leader_lease_ttl)
    made = make_worker_controller(Runtime(coordination, settings), settings, control, cloud, cml)
    port = settings.worker_controller_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="WORKER_CONTROLLER_PORT")
    greeting = Greeting(lambda: started(surface.url, made.about))
    return await Host([Connection(coordination), surface, *made.services, greeting]).run()


def plane_client(settings: WorkerControllerParts, registry: CollectorRegistry = REGISTRY) -> Client:
    """The control plane, as controllers see it."""
    token = settings.lcm_controller_token
    try:
        return Client(
            settings.control_plane_api_url, None if token is None else token.get_secret_value(), registry=registry
        )
    except ValueError as error:
        raise WrongSettings(f"CONTROL_PLANE_API_URL: {error}") from None


def _at(region: RegionConfig, endpoint: str) -> RegionConfig:
    return region if region.endpoint_url is not None else region.model_copy(update={"endpoint_url": endpoint})


def _printable(token: str) -> bool:
    return all("!" <= letter <= "~" for letter in token)
