"""Processes that run controllers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client import disable_created_metrics

from lcm.core import clock
from lcm.core.controller.leader_election import LeaderElectionConfig
from lcm.core.controller.reconciliation import ReconciliationConfig
from lcm.core.controller.watch import WatchConfig
from lcm.core.hosting import Host, HostedService
from lcm.http.server import HttpServer, make_process_app
from lcm.settings import (
    CoordinationSettings,
    DataSettings,
    ElectionSettings,
    HttpSettings,
    InstanceIdSettings,
    LogSettings,
    ReconcileSettings,
    WatchSettings,
)
from lcm.wiring.connections import (
    CoordinationConnection,
    EtcdRequiredSettings,
    StartedNotification,
    connect_coordination,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lcm.core.coordination import Coordination
    from lcm.wiring.connections import OnStarted


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
    """What a process of the platform is told."""


class StandaloneControllerSettings(EtcdRequiredSettings, ControllerRuntimeSettings):
    """A controller in a process of its own."""


@dataclass(frozen=True, slots=True)
class ControllerRuntime:
    """What a controller is built from."""

    coordination: Coordination
    settings: ControllerRuntimeSettings

    @property
    def data_dir(self) -> Path:
        """Where the controller may keep files."""
        return self.settings.lcm_data_dir

    @property
    def reconciliation(self) -> ReconciliationConfig:
        """How to poll, retry and count."""
        told = self.settings
        return ReconciliationConfig(
            interval_seconds=told.reconcile_interval,
            initial_delay=told.initial_delay,
            polling_enabled=told.reconcile_polling_enabled,
            max_concurrent=told.max_concurrent_reconciles,
            backoff_base=told.backoff_base,
            max_backoff=told.max_backoff,
            backoff_multiplier=told.backoff_multiplier,
            metric_prefix=told.metric_prefix,
            reconcile_timeout=told.reconcile_timeout,
            startup_reconcile_enabled=told.startup_reconcile_enabled,
        )

    def election(self, service_name: str) -> LeaderElectionConfig:
        """The election of the controller of this name."""
        told = self.settings
        return LeaderElectionConfig(
            etcd_endpoints=list(told.endpoints),
            election_key_prefix=told.election_key_prefix,
            lease_ttl=told.leader_lease_ttl,
            retry_interval=told.retry_interval,
            instance_id=told.worker_controller_instance_id or clock.new_id(service_name, length=6),
            service_name=service_name,
        )

    def watch(self, prefix: str) -> WatchConfig:
        """What the controller watches, unless the settings name another prefix."""
        told = self.settings
        return WatchConfig(
            enabled=told.watch_enabled,
            prefix=told.watch_prefix or prefix,
            reconnect_delay=told.watch_reconnect_delay,
            max_reconnect_attempts=told.watch_max_reconnect_attempts,
            debounce_seconds=told.watch_debounce_seconds,
        )


ControllerFactory: TypeAlias = "Callable[[ControllerRuntime], HostedService]"


async def serve_controllers(
    settings: ControllerRuntimeSettings, factories: Sequence[ControllerFactory], started: OnStarted
) -> int:
    """Run these controllers with a surface of their own until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    coordination = connect_coordination(settings, lease_ttl=settings.leader_lease_ttl)
    runtime = ControllerRuntime(coordination, settings)
    controllers = [factory(runtime) for factory in factories]
    about = {
        "service": "lcm",
        "controllers": ", ".join(controller.name for controller in controllers),
        "version": version("lcm"),
        "coordination": coordination.description,
    }
    app = make_process_app(controllers, about)
    port = settings.worker_controller_port
    surface = HttpServer(app, settings.bind_host, port, port_setting="WORKER_CONTROLLER_PORT")
    greeting = StartedNotification(lambda: started(surface.url, about))
    return await Host([CoordinationConnection(coordination), surface, *controllers, greeting]).run()
