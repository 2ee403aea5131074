"""Assembles the worker controller, for its own process or as part of another."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.cloud.types import RegionLaunchSettings
from lcm.cml.types import Credentials
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.worker.admin_api import make_worker_admin_app
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.deps import ControllerConfig, Dependencies, Policy
from lcm.controllers.worker.metrics.prometheus import AlertMetrics
from lcm.controllers.worker.observe.launch_resolver import ImageFilter
from lcm.controllers.worker.readers.client import SharedCMLClient
from lcm.controllers.worker.readers.directory import Reader, ReaderDirectory
from lcm.controllers.worker.readers.metrics import SharedMetrics
from lcm.controllers.worker.readers.pool import ReaderPool
from lcm.controllers.worker.readers.remote_reader import RemoteReader
from lcm.controllers.worker.readers.routes import ServerReader
from lcm.core.hosting import Host, HostedService
from lcm.core.version import installed_version
from lcm.http.network import NetworkTransport, make_tls
from lcm.settings import (
    CloudSettings,
    CmlSettings,
    RegionSettings,
    SettingsConflict,
    WorkerControllerSettings,
)
from lcm.wiring.connections import (
    CmlConnection,
    CoordinationConnection,
    InvalidSettingsError,
    StartedNotification,
    connect_cml,
    connect_coordination,
)
from lcm.wiring.controllers import (
    BuiltinControllerSettings,
    CloseOnStop,
    ControllerRuntime,
    ControlPlaneCheck,
    ControlPlaneClientSettings,
    make_control_plane_client,
)
from lcm.wiring.listener import make_http_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from fastapi import FastAPI

    from lcm.client.client import Client
    from lcm.cloud.aws import RegionConfig
    from lcm.cloud.aws.iam import PermissionChecker
    from lcm.cloud.spi import CloudProviderSPI, MetricsSPI, SharedMetricsSPI
    from lcm.wiring.connections import OnStarted

SERVICE = "worker-controller"
WORKERS_PREFIX = "/workers/"

_ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"
_READER_IDLE_SECONDS = 30.0
_READER_CONNECTIONS = 64
_KEY_ITERATIONS = 600_000


class WorkerControllerComponentSettings(
    WorkerControllerSettings, CmlSettings, CloudSettings, RegionSettings, ControlPlaneClientSettings
):
    """Settings of a worker controller, besides those of every controller."""


class WorkerControllerProcessSettings(BuiltinControllerSettings, WorkerControllerComponentSettings):
    """Settings of a worker controller in its own process."""

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Also reject the simulated cloud, which exists only within `lcm up`."""
        yield from super().conflicts()
        if self.cloud_provider == "simulated":
            yield SettingsConflict("cloud_provider", rule="must be aws here: only `lcm up` has a simulated cloud")


class MissingExtraError(Exception):
    """An optional dependency is missing; the message says how to install it."""


@dataclass(frozen=True, slots=True)
class CloudConnection:
    """A cloud, and the launch parameters of each of its regions."""

    provider: CloudProviderSPI
    metrics: MetricsSPI
    sites: Mapping[str, RegionLaunchSettings]
    close: Callable[[], Awaitable[None]]
    permissions: Callable[[str], PermissionChecker] | None = None  # only for clouds that support dry runs
    shared_metrics: SharedMetricsSPI | None = None  # only for clouds that all replicas reach


@dataclass(frozen=True, slots=True)
class WorkerControllerAssembly:
    """An assembled worker controller. Start its HTTP server first, then `services` in this order."""

    reconciler: WorkerReconciler
    services: Sequence[HostedService]
    app: FastAPI
    about: Mapping[str, object]


def connect_aws(settings: WorkerControllerComponentSettings, registry: CollectorRegistry = REGISTRY) -> CloudConnection:
    """AWS in the configured regions."""
    try:
        from lcm.cloud.aws import AwsConfig, AwsConfigError, AwsProvider
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("boto3", "botocore"):
            raise
        raise MissingExtraError("CLOUD_PROVIDER is aws, whose library is missing: install lcm-fleet[aws]") from None
    try:
        config = AwsConfig.load(settings.aws_region_configs, settings.aws_default_region)
    except AwsConfigError as error:
        raise InvalidSettingsError(str(error)) from None
    endpoint = settings.aws_endpoint_url
    # botocore reads the environment variable itself, with its per-service variants; a value from a file must be passed.
    if endpoint is not None and os.environ.get(_ENDPOINT_VARIABLE) != endpoint:
        own = {name: _with_endpoint(region, endpoint) for name, region in config.regions.items()}
        config = AwsConfig(own, config.tuning)
    provider = AwsProvider(config, registry)
    sites = {name: region_launch_settings(region) for name, region in config.regions.items()}
    return CloudConnection(provider, provider, sites, provider.close, provider.permissions, provider)


def region_launch_settings(region: RegionConfig) -> RegionLaunchSettings:
    """The launch parameters from the configuration of a region."""
    return RegionLaunchSettings(
        region=region.region,
        subnet_ids=region.subnet_ids,
        security_group_ids=region.security_group_ids,
        key_name=region.key_name,
        default_tags=region.default_tags,
        instance_profile=region.instance_profile,
    )


def controller_config(settings: WorkerControllerComponentSettings) -> ControllerConfig:
    """The controller configuration from the settings."""
    timeouts = [each.name for each in fields(Policy) if each.name in WorkerControllerSettings.model_fields]
    return ControllerConfig(
        account=Credentials(settings.cml_default_username, settings.cml_default_password.get_secret_value()),
        policy=Policy(**{name: getattr(settings, name) for name in timeouts}),
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
    """Assemble a worker controller for any process. It owns and closes its arguments."""
    election = runtime.election(SERVICE)
    readers = _share_reads(runtime, settings, election.instance_id, cloud, cml, registry)
    reconciler = WorkerReconciler(
        runtime.coordination,
        election,
        runtime.watch(WORKERS_PREFIX),
        runtime.reconciliation,
        Dependencies(
            control,
            cloud.provider,
            cloud.metrics if readers is None else readers.metrics,
            cml.system if readers is None else readers.cml,
            cloud.sites,
        ),
        controller_config(settings),
        registry=registry,
    )
    AlertMetrics(reconciler, registry)
    plane = ControlPlaneCheck(control)
    about: dict[str, object] = {
        "service": SERVICE,
        "version": installed_version(),
        "instance_id": reconciler.election.instance_id,
        "coordination": runtime.coordination.description,
        "control_plane": settings.control_plane_api_url,
        "cloud": settings.cloud_provider,
        "regions": sorted(cloud.sites),
    }
    app = make_worker_admin_app(
        reconciler,
        AdminAuthenticator(control.access.whoami),
        [reconciler, plane],
        about,
        registry,
        reader=None if readers is None else ServerReader(cml.system, readers.directory, cloud.shared_metrics),
    )
    closing = {"cloud": cloud.close, "CML servers": cml.close, "control plane": control.aclose}
    if readers is None:
        return WorkerControllerAssembly(reconciler, [CloseOnStop(closing), plane, reconciler], app, about)
    cleanup = CloseOnStop({"readers": readers.close, **closing})
    return WorkerControllerAssembly(reconciler, [cleanup, plane, readers.directory, reconciler], app, about)


@dataclass(frozen=True, slots=True)
class _SharedReads:
    """The reads that all replicas share."""

    cml: SharedCMLClient
    metrics: MetricsSPI
    pool: ReaderPool
    directory: ReaderDirectory
    http: NetworkTransport

    async def close(self) -> None:
        await self.pool.close()
        await self.http.aclose()


def _share_reads(
    runtime: ControllerRuntime,
    settings: WorkerControllerComponentSettings,
    instance_id: str,
    cloud: CloudConnection,
    cml: CmlConnection,
    registry: CollectorRegistry,
) -> _SharedReads | None:
    """None: this replica cannot be reached by others, so that the leader reads everything."""
    url, token = settings.cml_reader_url, settings.lcm_controller_token
    if url is None or token is None:
        return None
    try:
        tls = make_tls(url, settings.lcm_ca_file)
    except ValueError as error:
        raise InvalidSettingsError(f"CML_READER_URL: {error}") from None
    http = NetworkTransport(idle_seconds=_READER_IDLE_SECONDS, max_idle=_READER_CONNECTIONS)
    secret = token.get_secret_value()
    # Slow, because etcd is no place for what would help to guess a weak token.
    key = hashlib.pbkdf2_hmac("sha256", secret.encode(), b"lcm readers", _KEY_ITERATIONS)
    directory = ReaderDirectory(
        runtime.coordination, Reader(instance_id, url), key=key, lease_ttl=runtime.settings.leader_lease_ttl
    )
    authorization = f"Bearer {secret}"
    pool = ReaderPool(directory, lambda reader: RemoteReader(reader, http, authorization, tls), registry=registry)
    shared = cloud.shared_metrics
    metrics = cloud.metrics if shared is None else SharedMetrics(shared, pool, registry=registry)
    return _SharedReads(SharedCMLClient(cml.system, pool, registry=registry), metrics, pool, directory, http)


async def serve_worker_controller(settings: WorkerControllerProcessSettings, started: OnStarted) -> int:
    """Run a worker controller until it is stopped; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    cloud, cml = connect_aws(settings), connect_cml(settings)
    control = make_control_plane_client(settings)
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    assembly = make_worker_controller(ControllerRuntime(coordination, settings), settings, control, cloud, cml)
    port = settings.worker_controller_port
    server = make_http_server(assembly.app, settings, port, "WORKER_CONTROLLER_PORT")
    notification = StartedNotification(lambda: started(server.url, assembly.about))
    return await Host([CoordinationConnection(coordination), server, *assembly.services, notification]).run()


def _with_endpoint(region: RegionConfig, endpoint: str) -> RegionConfig:
    return region if region.endpoint_url is not None else region.model_copy(update={"endpoint_url": endpoint})
