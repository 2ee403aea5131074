"""The client of the control plane, as controllers and the command line use it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lcm.client.transport import Limits, Transport

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self

    import httpx
    from prometheus_client import CollectorRegistry

    from lcm.client.events import Events
    from lcm.client.resources.fleet import Fleet
    from lcm.client.resources.internal import InternalApi
    from lcm.client.resources.lablets import Definitions, Lablets
    from lcm.client.resources.system import Access, Probes
    from lcm.client.resources.workers import Templates, Workers


class Client:
    """All that can be asked, by subject. It holds connections: close it, or use it in an `async with`.

    A subject is imported when it is first asked about: a command that asks about one does not wait for all.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        limits: Limits | None = None,
        wire: httpx.AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | bool = True,
        registry: CollectorRegistry | None = None,
        counted: bool = True,
    ) -> None:
        """`wire` replaces the network, such as by the app itself in a simulation."""
        self._transport = Transport(
            url, token, limits=limits, wire=wire, verify=verify, registry=registry, counted=counted
        )

    @cached_property
    def workers(self) -> Workers:
        """Workers, as people ask for them."""
        from lcm.client.resources.workers import Workers

        return Workers(self._transport)

    @cached_property
    def templates(self) -> Templates:
        """What workers can be made from."""
        from lcm.client.resources.workers import Templates

        return Templates(self._transport)

    @cached_property
    def lablets(self) -> Lablets:
        """Lablets, as people ask for them."""
        from lcm.client.resources.lablets import Lablets

        return Lablets(self._transport)

    @cached_property
    def definitions(self) -> Definitions:
        """What lablets can be made from."""
        from lcm.client.resources.lablets import Definitions

        return Definitions(self._transport)

    @cached_property
    def fleet(self) -> Fleet:
        """What concerns no single worker."""
        from lcm.client.resources.fleet import Fleet

        return Fleet(self._transport)

    @cached_property
    def access(self) -> Access:
        """Who is calling, tokens, and the key of stored secrets."""
        from lcm.client.resources.system import Access

        return Access(self._transport)

    @cached_property
    def internal(self) -> InternalApi:
        """For the role `controller` alone."""
        from lcm.client.resources.internal import InternalApi

        return InternalApi(self._transport)

    @cached_property
    def events(self) -> Events:
        """The event stream."""
        from lcm.client.events import Events

        return Events(self._transport)

    @cached_property
    def probes(self) -> Probes:
        """What anybody may ask of the process."""
        from lcm.client.resources.system import Probes

        return Probes(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
