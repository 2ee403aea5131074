"""Making processes out of settings: the one place where adapters are chosen and services are put together."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, TypeAlias

from prometheus_client import REGISTRY, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from pydantic import Field

from lcm.coordination.memory import MemoryCoordination
from lcm.coordination.namespaced import NamespacedCoordination
from lcm.core import clock
from lcm.core.hosting import Host, HostedService
from lcm.core.leadership import LeaderElectionConfig
from lcm.core.reconciliation import ReconciliationConfig
from lcm.core.surface import Surface
from lcm.core.watching import WatchConfig
from lcm.settings import (
    Conflict,
    CoordinationSettings,
    DataSettings,
    ElectionSettings,
    HttpSettings,
    InstanceSettings,
    LogSettings,
    ReconcileSettings,
    WatchSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from lcm.core.ports import Coordination

# A call to etcd may take at most this share of the lease: so that a renewal can fail once and still succeed in time.
_CALL_SHARE_OF_TTL = 0.25
_LONGEST_CALL = 3.0


class ProcessSettings(
    CoordinationSettings,
    ElectionSettings,
    InstanceSettings,
    ReconcileSettings,
    WatchSettings,
    HttpSettings,
    LogSettings,
    DataSettings,
):
    """What a process of the platform is told."""


class StandaloneSettings(ProcessSettings):
    """A controller in a process of its own: others must be able to see its election, so memory will not do."""

    def conflicts(self) -> Iterator[Conflict]:
        """Besides the rules of the groups: etcd it must be."""
        yield from super().conflicts()
        if self.coordination == "memory":
            yield Conflict("coordination", rule="must be etcd here: only `lcm up` elects in the memory of one process")


class UpSettings(ProcessSettings):
    """Everything in one process: it elects among its own unless told otherwise."""

    coordination: Literal["etcd", "memory"] = Field(
        default="memory", description=ProcessSettings.model_fields["coordination"].description
    )


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a controller is built from."""

    coordination: Coordination
    settings: ProcessSettings

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


ControllerFactory: TypeAlias = "Callable[[Runtime], HostedService]"
Started: TypeAlias = "Callable[[str, Mapping[str, object]], None]"


class _Connection(HostedService):
    """Closes coordination after everybody who uses it has stopped."""

    def __init__(self, coordination: Coordination) -> None:
        super().__init__("coordination")
        self._coordination = coordination

    async def start(self) -> None:
        """Nothing to do: connections are made when they are first needed."""

    async def stop(self) -> None:
        await self._coordination.close()


def connect(settings: ProcessSettings) -> Coordination:
    """The coordination that the settings name. It does not have to answer yet."""
    if settings.coordination == "memory":
        return MemoryCoordination()
    from lcm.coordination.etcd import EtcdConfig, EtcdCoordination

    password = settings.etcd_password
    config = EtcdConfig(
        endpoints=settings.endpoints,
        ca_file=settings.etcd_ca_file,
        cert_file=settings.etcd_cert_file,
        key_file=settings.etcd_key_file,
        user=settings.etcd_user,
        password=None if password is None else password.get_secret_value(),
        call_timeout=min(_LONGEST_CALL, settings.leader_lease_ttl * _CALL_SHARE_OF_TTL),
    )
    etcd = EtcdCoordination(config)
    REGISTRY.register(_Reconnects(lambda: etcd.reconnects))
    return NamespacedCoordination(etcd, settings.etcd_namespace) if settings.etcd_namespace else etcd


async def serve(settings: ProcessSettings, factories: Sequence[ControllerFactory], started: Started) -> int:
    """Run these controllers with a surface of their own until told to stop; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    coordination = connect(settings)
    runtime = Runtime(coordination, settings)
    controllers = [factory(runtime) for factory in factories]
    about = {
        "service": "lcm",
        "controllers": ", ".join(controller.name for controller in controllers),
        "version": version("lcm"),
        "coordination": coordination.description,
    }
    surface = Surface(
        controllers,
        settings.bind_host,
        settings.worker_controller_port,
        info=about,
        port_setting="WORKER_CONTROLLER_PORT",
    )
    greeting = _Greeting(lambda: started(surface.url, about))
    return await Host([_Connection(coordination), surface, *controllers, greeting]).run()


class _Reconnects(Collector):
    """How often a connection to coordination had to be made anew, read when somebody scrapes."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        text = "Connections to coordination that had to be made anew"
        yield CounterMetricFamily("lcm_coordination_reconnects", text, value=self._read())


class _Greeting(HostedService):
    """Says what runs where, once it runs."""

    def __init__(self, greet: Callable[[], None]) -> None:
        super().__init__("greeting")
        self._greet = greet

    async def start(self) -> None:
        self._greet()

    async def stop(self) -> None:
        """Nothing to do."""
