"""What the worker controller needs from a CML server. Labs are not part of it: the lablet controller manages them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lcm.cml.reading import ServerQuery, ServerReading
    from lcm.cml.types import (
        CMLActivity,
        Credentials,
        DeregistrationResult,
        LicenseState,
        SystemHealth,
        SystemInformation,
        SystemStats,
    )


class CMLSystemSPI(Protocol):
    """System-level calls to a CML server. Every call may raise the errors of `lcm.cml.errors`."""

    async def read_server(self, query: ServerQuery, seconds: float) -> ServerReading:
        """Read several parts at once, within so many seconds. A part that fails has its error in the result.

        Raises only `CMLPollerError`: then nothing is known about the server.
        """

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness. Needs no account and sends no credentials."""

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        """The health that the server reports about itself."""

    async def get_system_stats(self, address: str, credentials: Credentials, *, with_labs: bool = True) -> SystemStats:
        """Labs, nodes, CPU, memory and disk. Counting the labs is a request of its own."""

    async def count_labs(self, address: str, credentials: Credentials) -> int | None:
        """The number of labs; None if they cannot be counted."""

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        """The current license state: the only evidence of registration that is trusted."""

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        """Request a registration. On return the server has accepted the request, but it is not registered yet."""

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        """Deregister the license. This may take more than a minute."""

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        """The newest events, oldest first."""

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        """The node definitions that the server offers, sorted by name."""

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The user id of this account in the server's events, or None if the server does not report it."""

    def trust(self, address: str, certificate: str) -> None:
        """Accept only the certificate with this SHA-256 fingerprint at an address.

        Where certificates are pinned, only `get_system_information` may be called before that.
        """

    def forget(self, address: str) -> None:
        """Drop all sessions with an address, because another server now uses it."""
