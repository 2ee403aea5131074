"""The worker controller as a process, and as a part of one that runs others too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.cloud.types import RegionLaunchSettings
from lcm.cml.types import Credentials
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.worker.admin_api import create_admin_app
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.deps import ControllerConfig, Dependencies
from lcm.controllers.worker.metrics.prometheus import AlertMetrics
from lcm.controllers.worker.observe.launch_resolver import ImageFilter
from lcm.controllers.worker.policy import Policy
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer
from lcm.settings import (
    CloudSettings,
    CmlSettings,
    RegionSettings,
    SettingsConflict,
    WorkerControllerSettings,
)
from lcm.wiring.cml_servers import CmlConnection, connect_cml
from lcm.wiring.connections import CoordinationConnection, StartedNotification, connect_coordination
from lcm.wiring.control_plane_access import (
    BuiltinControllerSettings,
    CloseOnStop,
    ControlPlaneCheck,
    ControlPlaneClientSettings,
    InvalidSettingsError,
    make_control_plane_client,
)
from lcm.wiring.controllers import ControllerRuntime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.cloud.aws import RegionConfig
    from lcm.cloud.aws.iam import PermissionChecker
    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI
    from lcm.wiring.connections import OnStarted

__all__ = [
    "CloseOnStop",
    "CloudConnection",
    "CmlConnection",
    "ControlPlaneCheck",
    "InvalidSettingsError",
    "MissingExtraError",
    "WorkerControllerAssembly",
    "WorkerControllerComponentSettings",
    "WorkerControllerProcessSettings",
    "connect_aws",
    "connect_cml",
    "controller_config",
    "launch_site",
    "make_control_plane_client",
    "make_worker_controller",
    "serve_worker_controller",
]

SERVICE = "worker-controller"
WORKERS_PREFIX = "/workers/"

_ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"


class WorkerControllerComponentSettings(
    WorkerControllerSettings, CmlSettings, CloudSettings, RegionSettings, ControlPlaneClientSettings
):
    """What a worker controller is told, besides what every controller is."""


class WorkerControllerProcessSettings(BuiltinControllerSettings, WorkerControllerComponentSettings):
    """What a worker controller in a process of its own is told."""

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Besides the rules of the groups: there is no simulated cloud to share."""
        yield from super().conflicts()
        if self.cloud_provider == "simulated":
            yield SettingsConflict("cloud_provider", rule="must be aws here: only `lcm up` has a simulated cloud")


class MissingExtraError(Exception):
    """What is needed was not installed; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class CloudConnection:
    """A cloud, and what instances are launched with in each of its regions."""

    provider: CloudProviderSPI
    metrics: MetricsSPI
    sites: Mapping[str, RegionLaunchSettings]
    close: Callable[[], Awaitable[None]]
    permissions: Callable[[str], PermissionChecker] | None = None  # where a cloud can be asked what it would allow


@dataclass(frozen=True, slots=True)
class WorkerControllerAssembly:
    """A worker controller that was put together. `services` are to be started in this order, after its surface."""

    reconciler: WorkerReconciler
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def connect_aws(settings: WorkerControllerComponentSettings, registry: CollectorRegistry = REGISTRY) -> CloudConnection:
    """AWS in the regions of the settings."""
    try:
        from lcm.cloud.aws import AwsConfig, AwsConfigError, AwsProvider
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("boto3", "botocore"):
            raise
        raise MissingExtraError("CLOUD_PROVIDER is aws, whose library is missing: install lcm[aws]") from None
    try:
        config = AwsConfig.load(settings.aws_region_configs, settings.aws_default_region)
    except AwsConfigError as error:
        raise InvalidSettingsError(str(error)) from None
    endpoint = settings.aws_endpoint_url
    # botocore reads the variable by itself, with those for single services; what a file says must be handed on.
    if endpoint is not None and os.environ.get(_ENDPOINT_VARIABLE) != endpoint:
        own = {name: _with_endpoint(region, endpoint) for name, region in config.regions.items()}
        config = AwsConfig(own, config.tuning)
    provider = AwsProvider(config, registry)
    sites = {name: launch_site(region) for name, region in config.regions.items()}
    return CloudConnection(provider, provider, sites, provider.close, provider.permissions)


def launch_site(region: RegionConfig) -> RegionLaunchSettings:
    """What the configuration of a region says about launches."""
    return RegionLaunchSettings(
        region=region.region,
        subnet_ids=region.subnet_ids,
        security_group_ids=region.security_group_ids,
        key_name=region.key_name,
        default_tags=region.default_tags,
        instance_profile=region.instance_profile,
    )


def controller_config(settings: WorkerControllerComponentSettings) -> ControllerConfig:
    """What the reconciler is told once."""
    return ControllerConfig(
        account=Credentials(settings.cml_default_username, settings.cml_default_password.get_secret_value()),
        policy=Policy(
            provisioning_timeout=settings.provisioning_timeout,
            starting_timeout=settings.starting_timeout,
            stuck_after=settings.stuck_after,
            cml_ready_timeout=settings.cml_ready_timeout,
            drain_timeout=settings.drain_timeout,
            license_release_timeout=settings.license_release_timeout,
        ),
        images=ImageFilter(settings.ami_name_pattern, settings.ami_owners),
        metrics_interval=settings.metrics_collect_interval,
        private_addresses=settings.cml_use_private_address,
        dedicated_account=settings.cml_dedicated_account,
    )


def make_worker_controller(
    runtime: ControllerRuntime,
    settings: WorkerControllerComponentSettings,
    control: Client,
    cloud: CloudConnection,
    cml: CmlConnection,
    *,
    registry: CollectorRegistry = REGISTRY,
) -> WorkerControllerAssembly:
    """Put a worker controller together, for whichever process runs it. It owns what it is given, and closes it."""
    reconciler = WorkerReconciler(
        runtime.coordination,
        runtime.election(SERVICE),
        runtime.watch(WORKERS_PREFIX),
        runtime.reconciliation,
        Dependencies(control, cloud.provider, cloud.metrics, cml.system, cloud.sites),
        controller_config(settings),
        registry=registry,
    )
    AlertMetrics(reconciler, registry)
    plane = ControlPlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": version("lcm"),
        "instance_id": reconciler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
        "cloud": settings.cloud_provider,
        "regions": sorted(cloud.sites),
    }
    app = create_admin_app(reconciler, AdminAuthenticator(control.access.whoami), [reconciler, plane], about, registry)
    ties = CloseOnStop({"cloud": cloud.close, "CML servers": cml.close, "control plane": control.aclose})
    return WorkerControllerAssembly(reconciler, [ties, plane, reconciler], app, about)


async def serve_worker_controller(settings: WorkerControllerProcessSettings, started: OnStarted) -> int:
    """Run a worker controller until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    cloud, cml = connect_aws(settings), connect_cml(settings)
    control = make_control_plane_client(settings)
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    made = make_worker_controller(ControllerRuntime(coordination, settings), settings, control, cloud, cml)
    port = settings.worker_controller_port
    surface = HttpServer(made.app, settings.bind_host, port, port_setting="WORKER_CONTROLLER_PORT")
    greeting = StartedNotification(lambda: started(surface.url, made.about))
    return await Host([CoordinationConnection(coordination), surface, *made.services, greeting]).run()


def _with_endpoint(region: RegionConfig, endpoint: str) -> RegionConfig:
    return region if region.endpoint_url is not None else region.model_copy(update={"endpoint_url": endpoint})
