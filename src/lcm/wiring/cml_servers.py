"""The way to CML servers: one network, one set of sessions, for whoever in a process talks to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.cml.client.proxy import HttpProxy
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import CaBundle, Insecure, MemoryPinStore, TrustOnFirstUse, TrustPolicy, make_tls_context
from lcm.cml.client.transport import CMLTransport
from lcm.wiring.control_plane_access import InvalidSettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cml.spi import CMLSystemSPI
    from lcm.settings import CmlSettings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CmlConnection:
    """The way to CML servers. `session` is what talks to them, for another client beside the one of the systems."""

    system: CMLSystemSPI
    close: Callable[[], Awaitable[None]]
    session: CMLSession | None = None


def connect_cml(settings: CmlSettings, registry: CollectorRegistry = REGISTRY) -> CmlConnection:
    """CML servers over the network, trusted and reached as the settings say."""
    pins = MemoryPinStore()
    trust: TrustPolicy
    if settings.cml_tls == "pin":
        trust = TrustOnFirstUse(pins)
    elif settings.cml_tls == "ca":
        trust = CaBundle(settings.cml_ca_file)
        try:
            make_tls_context(trust)
        except ValueError as error:
            raise InvalidSettingsError(f"CML_CA_FILE: {error}") from None
    else:
        trust = Insecure()
        log.warning("CML servers do not have to prove who they are; passwords may go to anybody", CML_TLS="insecure")
    if settings.cml_proxy_url is None:
        transport = CMLTransport(trust)
    else:
        proxy = HttpProxy(settings.cml_proxy_url)
        transport = CMLTransport(trust, wire=proxy.wire, open_tls=proxy.open_tls)
    session = CMLSession(transport, registry=registry)
    return CmlConnection(_PinForgettingClient(session, pins), transport.aclose, session)


class _PinForgettingClient(CMLSystemClient):
    """Forgets the certificate of an address with the rest: whoever has the address next shows one of its own."""

    def __init__(self, session: CMLSession, pins: MemoryPinStore) -> None:
        super().__init__(session)
        self._pins = pins

    def forget(self, address: str) -> None:
        super().forget(address)
        self._pins.drop(address)
