"""The client of the control plane, as controllers and the command line use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.access import Access
from lcm.client.events import Events
from lcm.client.fleet import Fleet
from lcm.client.internal import Internal
from lcm.client.probes import Probes
from lcm.client.templates import Templates
from lcm.client.transport import Limits, Transport
from lcm.client.workers import Workers

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self

    import httpx


class Client:
    """All that can be asked, by subject. It holds connections: close it, or use it in an `async with`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        limits: Limits | None = None,
        wire: httpx.AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | bool = True,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        """`wire` replaces the network, such as by the app itself in a simulation."""
        self._transport = Transport(url, token, limits=limits, wire=wire, verify=verify, registry=registry)
        self.workers = Workers(self._transport)
        self.templates = Templates(self._transport)
        self.fleet = Fleet(self._transport)
        self.access = Access(self._transport)
        self.internal = Internal(self._transport)
        self.events = Events(self._transport)
        self.probes = Probes(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
