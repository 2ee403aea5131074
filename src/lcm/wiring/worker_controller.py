"""The worker controller as a process, and as a part of one that runs others too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.cloud.types import LaunchSite
from lcm.cml.types import Credentials
from lcm.controllers.common.admin_auth import Doorkeeper
from lcm.controllers.worker.admin_api import make_surface
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.deps import Outside, Rules
from lcm.controllers.worker.metrics.alarms import Alarms
from lcm.controllers.worker.observe.launch_resolver import Images
from lcm.controllers.worker.policy import Policy
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.settings import (
    CloudSettings,
    CmlSettings,
    Conflict,
    RegionSettings,
    WorkerControllerSettings,
)
from lcm.wiring.cml_servers import CmlServers, cml_servers
from lcm.wiring.connections import Connection, Greeting, connect
from lcm.wiring.control_plane_access import (
    PlaneCheck,
    PlaneSideSettings,
    StandaloneController,
    Ties,
    WrongSettings,
    plane_client,
)
from lcm.wiring.controllers import Runtime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.cloud.aws import RegionConfig
    from lcm.cloud.aws.permissions import Permissions
    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI
    from lcm.wiring.connections import Started

__all__ = [
    "Cloud",
    "CmlServers",
    "MissingExtra",
    "PlaneCheck",
    "Ties",
    "WorkerController",
    "WorkerControllerParts",
    "WorkerControllerProcess",
    "WrongSettings",
    "aws_cloud",
    "cml_servers",
    "launch_site",
    "make_worker_controller",
    "plane_client",
    "rules_of",
    "serve_worker_controller",
]

SERVICE = "worker-controller"
WORKERS = "/workers/"

_ENDPOINT = "AWS_ENDPOINT_URL"


class WorkerControllerParts(WorkerControllerSettings, CmlSettings, CloudSettings, RegionSettings, PlaneSideSettings):
    """What a worker controller is told, besides what every controller is."""


class WorkerControllerProcess(StandaloneController, WorkerControllerParts):
    """What a worker controller in a process of its own is told."""

    def conflicts(self) -> Iterator[Conflict]:
        """Besides the rules of the groups: there is no simulated cloud to share."""
        yield from super().conflicts()
        if self.cloud_provider == "simulated":
            yield Conflict("cloud_provider", rule="must be aws here: only `lcm up` has a simulated cloud")


class MissingExtra(Exception):
    """What is needed was not installed; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud, and what instances are launched with in each of its regions."""

    provider: CloudProviderSPI
    metrics: MetricsSPI
    sites: Mapping[str, LaunchSite]
    close: Callable[[], Awaitable[None]]
    permissions: Callable[[str], Permissions] | None = None  # where a cloud can be asked what it would allow


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


def _at(region: RegionConfig, endpoint: str) -> RegionConfig:
    return region if region.endpoint_url is not None else region.model_copy(update={"endpoint_url": endpoint})
