"""What controller processes share: settings, runtime, and access to the control plane."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics

from lcm.client.client import Client
from lcm.client.errors import ClientError
from lcm.core import clock
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.core.hosting import Host, HostedService, keep_running
from lcm.core.version import installed_version
from lcm.http.network import make_tls
from lcm.http.server import make_process_app
from lcm.model.access import Role
from lcm.settings import (
    ControllerTokenSettings,
    ControlPlaneAddressSettings,
    CoordinationSettings,
    DataSettings,
    ElectionSettings,
    HttpSettings,
    InstanceIdSettings,
    LogSettings,
    PrivateCaSettings,
    ReconcileSettings,
    SettingsConflict,
    WatchSettings,
)
from lcm.wiring.connections import (
    CoordinationConnection,
    EtcdRequiredSettings,
    InvalidSettingsError,
    StartedNotification,
    connect_coordination,
)
from lcm.wiring.listener import make_http_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lcm.core.coordination import Coordination
    from lcm.wiring.connections import OnStarted


log = structlog.get_logger(__name__)

_CHECK_INTERVAL = 5.0
_CHECK_TIMEOUT = 4.0


class ControllerRuntimeSettings(
    CoordinationSettings,
    ElectionSettings,
    InstanceIdSettings,
    ReconcileSettings,
    WatchSettings,
    HttpSettings,
    LogSettings,
    DataSettings,
):
    """Settings that every controller runtime needs."""


class StandaloneControllerSettings(EtcdRequiredSettings, ControllerRuntimeSettings):
    """Settings of a controller in its own process."""


@dataclass(frozen=True, slots=True)
class ControllerRuntime:
    """What a controller is constructed from."""

    coordination: Coordination
    settings: ControllerRuntimeSettings

    @property
    def data_dir(self) -> Path:
        """The folder for files of the controller."""
        return self.settings.lcm_data_dir

    @property
    def reconciliation(self) -> ReconciliationConfig:
        """Polling, retry and metrics configuration."""
        settings = self.settings
        return ReconciliationConfig(
            interval_seconds=settings.reconcile_interval,
            initial_delay=settings.initial_delay,
            polling_enabled=settings.reconcile_polling_enabled,
            max_concurrent=settings.max_concurrent_reconciles,
            backoff_base=settings.backoff_base,
            max_backoff=settings.max_backoff,
            backoff_multiplier=settings.backoff_multiplier,
            metric_prefix=settings.metric_prefix,
            reconcile_timeout=settings.reconcile_timeout,
            startup_reconcile_enabled=settings.startup_reconcile_enabled,
        )

    def election(self, service_name: str) -> LeaderElectionConfig:
        """The leader election configuration of the named controller."""
        settings = self.settings
        return LeaderElectionConfig(
            etcd_endpoints=list(settings.endpoints),
            election_key_prefix=settings.election_key_prefix,
            lease_ttl=settings.leader_lease_ttl,
            retry_interval=settings.retry_interval,
            instance_id=settings.worker_controller_instance_id or clock.new_id(service_name, length=6),
            service_name=service_name,
        )

    def watch(self, prefix: str) -> WatchConfig:
        """The watch configuration; the settings may override the prefix."""
        settings = self.settings
        return WatchConfig(
            enabled=settings.watch_enabled,
            prefix=settings.watch_prefix or prefix,
            reconnect_delay=settings.watch_reconnect_delay,
            max_reconnect_attempts=settings.watch_max_reconnect_attempts,
            debounce_seconds=settings.watch_debounce_seconds,
        )


ControllerFactory: TypeAlias = "Callable[[ControllerRuntime], HostedService]"


async def serve_controllers(
    settings: ControllerRuntimeSettings, factories: Sequence[ControllerFactory], started: OnStarted
) -> int:
    """Run these controllers with an HTTP server until stopped; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    runtime = ControllerRuntime(coordination, settings)
    controllers = [factory(runtime) for factory in factories]
    about = {
        "service": "lcm",
        "controllers": ", ".join(controller.name for controller in controllers),
        "version": installed_version(),
        "coordination": coordination.description,
    }
    app = make_process_app(controllers, about)
    port = settings.worker_controller_port
    server = make_http_server(app, settings, port, "WORKER_CONTROLLER_PORT")
    notification = StartedNotification(lambda: started(server.url, about))
    return await Host([CoordinationConnection(coordination), server, *controllers, notification]).run()


class ControlPlaneClientSettings(ControlPlaneAddressSettings, ControllerTokenSettings, PrivateCaSettings):
    """Address of and token for the control plane."""


class BuiltinControllerSettings(StandaloneControllerSettings, ControlPlaneClientSettings):
    """Settings of a built-in controller in its own process."""

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Also require a usable token."""
        yield from super().conflicts()
        token = self.lcm_controller_token
        if token is None:
            yield SettingsConflict("lcm_controller_token", rule="must be set to the same value as on the control plane")
        elif not _printable(token.get_secret_value()):
            yield SettingsConflict("lcm_controller_token", rule="must be printable ASCII without spaces")


def make_control_plane_client(settings: ControlPlaneClientSettings, registry: CollectorRegistry = REGISTRY) -> Client:
    """The client of controllers for the control plane."""
    token = settings.lcm_controller_token
    try:
        return Client(
            settings.control_plane_api_url,
            None if token is None else token.get_secret_value(),
            tls=make_tls(settings.control_plane_api_url, settings.lcm_ca_file),
            registry=registry,
        )
    except ValueError as error:
        raise InvalidSettingsError(f"CONTROL_PLANE_API_URL: {error}") from None


class CloseOnStop(HostedService):
    """Closes external connections after all their users have stopped."""

    def __init__(self, closing: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        super().__init__("outside")
        self._closing = closing

    async def start(self) -> None:
        """Nothing to do: connections are opened on first use."""

    async def stop(self) -> None:
        for name, close in self._closing.items():
            try:
                await close()
            except Exception:
                log.exception("a connection did not close cleanly", to=name)


class ControlPlaneCheck(HostedService):
    """Checks periodically that the control plane responds and accepts the token."""

    def __init__(self, control: Client, *, every: float = _CHECK_INTERVAL) -> None:
        super().__init__("control-plane")
        self._control = control
        self._every = every
        self._problem = "not checked yet"
        self._checking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._checking = self._spawn(keep_running("control plane check", self._check_on), "check")

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])

    def readiness(self) -> list[str]:
        """Whether the last check of the control plane succeeded."""
        return [f"control plane: {self._problem}"] if self._problem else []

    async def _check_on(self) -> None:
        while True:
            problem = await self._ask()
            if problem and problem != self._problem:
                log.warning("control plane check failed", error=problem)
            elif self._problem and not problem:
                log.info("control plane check succeeded")
            self._problem = problem
            await asyncio.sleep(self._every)

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT):
                me = await self._control.access.whoami()
        except (ClientError, TimeoutError) as error:
            return str(error) or f"no response within {_CHECK_TIMEOUT:g} s"
        if me.role is not Role.CONTROLLER:
            return f"LCM_CONTROLLER_TOKEN is of {me.name}, whose role is {me.role}, not controller"
        return ""


def _printable(token: str) -> bool:
    return all("!" <= letter <= "~" for letter in token)
