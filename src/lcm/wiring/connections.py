"""Connections that processes of several kinds need: to coordination, and to people who want to know what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from lcm.coordination.memory.client import MemoryCoordination
from lcm.coordination.namespaced import NamespacedCoordination
from lcm.core.hosting import HostedService
from lcm.settings import CoordinationSettings, SettingsConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from lcm.core.coordination import Coordination

OnStarted: TypeAlias = "Callable[[str, Mapping[str, object]], None]"

# A call to etcd may take at most this share of the lease: so that a renewal can fail once and still succeed in time.
_CALL_SHARE_OF_TTL = 0.25
_MAX_CALL_SECONDS = 3.0


class EtcdRequiredSettings(CoordinationSettings):
    """A process of its own: others must be able to see what it does, so memory will not do."""

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Besides the rules of the groups: etcd it must be."""
        yield from super().conflicts()
        if self.coordination == "memory":
            yield SettingsConflict(
                "coordination", rule="must be etcd here: only `lcm up` elects in the memory of one process"
            )


class CoordinationConnection(HostedService):
    """Closes coordination after everybody who uses it has stopped."""

    def __init__(self, coordination: Coordination) -> None:
        super().__init__("coordination")
        self._coordination = coordination

    async def start(self) -> None:
        """Nothing to do: connections are made when they are first needed."""

    async def stop(self) -> None:
        await self._coordination.close()


def connect_coordination(settings: CoordinationSettings, *, lease_ttl: float = 15.0) -> Coordination:
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
        call_timeout=min(_MAX_CALL_SECONDS, lease_ttl * _CALL_SHARE_OF_TTL),
    )
    etcd = EtcdCoordination(config)
    REGISTRY.register(_ReconnectCollector(lambda: etcd.reconnects))
    return NamespacedCoordination(etcd, settings.etcd_namespace) if settings.etcd_namespace else etcd


class _ReconnectCollector(Collector):
    """How often a connection to coordination had to be made anew, read when somebody scrapes."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        text = "Connections to coordination that had to be made anew"
        yield CounterMetricFamily("lcm_coordination_reconnects", text, value=self._read())


class StartedNotification(HostedService):
    """Says what runs where, once it runs."""

    def __init__(self, greet: Callable[[], None]) -> None:
        super().__init__("greeting")
        self._greet = greet

    async def start(self) -> None:
        self._greet()

    async def stop(self) -> None:
        """Nothing to do."""
