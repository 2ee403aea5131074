"""The client of the control plane, for controllers and the command line."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lcm.client.transport import Limits, Transport

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self

    from prometheus_client import CollectorRegistry

    from lcm.client.events import Events
    from lcm.client.resources.bookings import Bookings
    from lcm.client.resources.fleet import Fleet
    from lcm.client.resources.internal import InternalApi
    from lcm.client.resources.lablets import Definitions, Lablets
    from lcm.client.resources.schedules import Schedules
    from lcm.client.resources.seat_links import SeatLinks
    from lcm.client.resources.subscriptions import Subscriptions
    from lcm.client.resources.system import Access, Probes
    from lcm.client.resources.teams import Teams
    from lcm.client.resources.workers import Templates, Workers
    from lcm.http.transport import HttpTransport


class Client:
    """The API, grouped by resource. It holds connections: close it, or use it with `async with`.

    A resource is imported on first use, so that a command does not wait for the import of all others.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        limits: Limits | None = None,
        wire: HttpTransport | None = None,
        tls: ssl.SSLContext | None = None,
        registry: CollectorRegistry | None = None,
        with_metrics: bool = True,
    ) -> None:
        """`wire` replaces the network, for example with the app itself in a simulation."""
        self._transport = Transport(
            url, token, limits=limits, wire=wire, tls=tls, registry=registry, with_metrics=with_metrics
        )

    @cached_property
    def workers(self) -> Workers:
        """Workers, for users."""
        from lcm.client.resources.workers import Workers

        return Workers(self._transport)

    @cached_property
    def templates(self) -> Templates:
        """Worker templates."""
        from lcm.client.resources.workers import Templates

        return Templates(self._transport)

    @cached_property
    def lablets(self) -> Lablets:
        """Lablets, for users."""
        from lcm.client.resources.lablets import Lablets

        return Lablets(self._transport)

    @cached_property
    def definitions(self) -> Definitions:
        """Lablet definitions."""
        from lcm.client.resources.lablets import Definitions

        return Definitions(self._transport)

    @cached_property
    def seat_links(self) -> SeatLinks:
        """Links that let people use one lablet without an account."""
        from lcm.client.resources.seat_links import SeatLinks

        return SeatLinks(self._transport)

    @cached_property
    def fleet(self) -> Fleet:
        """The fleet as a whole."""
        from lcm.client.resources.fleet import Fleet

        return Fleet(self._transport)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions to notifications."""
        from lcm.client.resources.subscriptions import Subscriptions

        return Subscriptions(self._transport)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules: when workers are up."""
        from lcm.client.resources.schedules import Schedules

        return Schedules(self._transport)

    @cached_property
    def bookings(self) -> Bookings:
        """Bookings of classes."""
        from lcm.client.resources.bookings import Bookings

        return Bookings(self._transport)

    @cached_property
    def teams(self) -> Teams:
        """Teams and their members."""
        from lcm.client.resources.teams import Teams

        return Teams(self._transport)

    @cached_property
    def access(self) -> Access:
        """The caller, tokens, and the rotation of stored secrets."""
        from lcm.client.resources.system import Access

        return Access(self._transport)

    @cached_property
    def internal(self) -> InternalApi:
        """Internal routes, only for the role `controller`."""
        from lcm.client.resources.internal import InternalApi

        return InternalApi(self._transport)

    @cached_property
    def events(self) -> Events:
        """The event stream."""
        from lcm.client.events import Events

        return Events(self._transport)

    @cached_property
    def probes(self) -> Probes:
        """Health, readiness, info and metrics of the process."""
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
