"""Connections to coordination and to CML servers, and the started notification that all processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from lcm.cml.client.access import CmlAccess
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import CaBundle, Insecure, PinPerServer, TrustPolicy, make_tls_context
from lcm.cml.pollers import PolledCMLClient
from lcm.coordination.memory.client import MemoryCoordination
from lcm.coordination.namespaced import NamespacedCoordination
from lcm.core.hosting import HostedService
from lcm.settings import (
    CmlSettings,
    CoordinationSettings,
    PrivateCaSettings,
    SettingsConflict,
    WorkerControllerSettings,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from lcm.cml.spi import CMLSystemSPI
    from lcm.core.coordination import Coordination

log = structlog.get_logger(__name__)

OnStarted: TypeAlias = "Callable[[str, Mapping[str, object]], None]"

# A call to etcd may take at most this share of the lease, so that a failed renewal can be retried in time.
_CALL_SHARE_OF_TTL = 0.25
_MAX_CALL_SECONDS = 3.0


class InvalidSettingsError(Exception):
    """Settings that are found invalid only when they are used; the message gives the reason."""


class EtcdRequiredSettings(CoordinationSettings, PrivateCaSettings):
    """Settings of a separate process, which must use etcd: memory is not visible to other processes."""

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Also require etcd."""
        yield from super().conflicts()
        if self.coordination == "memory":
            yield SettingsConflict("coordination", rule="must be etcd here: only `lcm up` coordinates in memory")


class CoordinationConnection(HostedService):
    """Closes coordination after all its users have stopped."""

    def __init__(self, coordination: Coordination) -> None:
        super().__init__("coordination")
        self._coordination = coordination

    async def start(self) -> None:
        """Nothing to do: connections are opened on first use."""

    async def stop(self) -> None:
        await self._coordination.close()


def connect_coordination(settings: CoordinationSettings, *, lease_ttl: float = 15.0) -> Coordination:
    """The coordination from the settings. It need not be reachable yet."""
    if settings.coordination == "memory":
        return MemoryCoordination()
    from lcm.coordination.etcd import EtcdConfig, EtcdCoordination

    password = settings.etcd_password
    private_ca = settings.lcm_ca_file if isinstance(settings, PrivateCaSettings) else None
    config = EtcdConfig(
        endpoints=settings.endpoints,
        ca_file=settings.etcd_ca_file or private_ca,
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
    """Exports the number of reconnects to coordination, read at scrape time."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        text = "Reconnections to coordination"
        yield CounterMetricFamily("lcm_coordination_reconnects", text, value=self._read())


class StartedNotification(HostedService):
    """Calls back once everything before it has started."""

    def __init__(self, greet: Callable[[], Awaitable[None] | None]) -> None:
        super().__init__("greeting")
        self._greet = greet

    async def start(self) -> None:
        greeting = self._greet()
        if greeting is not None:
            await greeting

    async def stop(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class CmlConnection:
    """Access to CML servers: the system client, and the `session` that other clients can share."""

    system: CMLSystemSPI
    close: Callable[[], Awaitable[None]]
    session: CMLSession | None = None


def connect_cml(settings: CmlSettings, registry: CollectorRegistry = REGISTRY) -> CmlConnection:
    """CML servers over the network, with TLS trust and proxy from the settings.

    Where a worker controller has poller processes, they make its regular reads.
    """
    trust: TrustPolicy
    if settings.cml_tls == "pin":
        trust = PinPerServer()
    elif settings.cml_tls == "ca":
        trust = CaBundle(settings.cml_ca_file)
        try:
            make_tls_context(trust)
        except ValueError as error:
            raise InvalidSettingsError(f"CML_CA_FILE: {error}") from None
    else:
        trust = Insecure()
        log.warning(
            "CML server certificates are not verified; passwords may be sent to an impostor", CML_TLS="insecure"
        )
    processes = settings.cml_poller_processes if isinstance(settings, WorkerControllerSettings) else 0
    access = CmlAccess(trust, settings.cml_proxy_url, settings.cml_max_idle_connections // max(1, processes))
    transport = access.open()
    session = CMLSession(transport, registry=registry)
    if processes == 0:
        return CmlConnection(CMLSystemClient(session), transport.aclose, session)
    polled = PolledCMLClient(session, access, processes, registry=registry)

    async def close() -> None:
        await polled.close_pollers()
        await transport.aclose()

    return CmlConnection(polled, close, session)
