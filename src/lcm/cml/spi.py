"""What the worker controller needs of a CML server. Labs are not here: they belong to the lablet controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

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
    """A server as a whole. Every call may raise the errors of `lcm.cml.errors`."""

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness; needs no account and sends none."""

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        """The server's own verdict on itself."""

    async def get_system_stats(self, address: str, credentials: Credentials) -> SystemStats:
        """Labs, nodes, processor, memory and disk."""

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        """The licence as it is now: the only word on registration that is believed."""

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        """Ask for registration. Returning means that the server took the request, not that it is registered."""

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        """Give the licence back. It may take more than a minute."""

    async def get_activity_events(self, address: str, credentials: Credentials, since: datetime | None) -> CMLActivity:
        """What happened after `since`, oldest first; everything when it is None."""

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        """The kinds of nodes that the server can run, in the order of their names."""

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The id by which the server's events name this account; None: it does not tell."""

    def forget(self, address: str) -> None:
        """Drop sessions with an address, because another machine has it now."""
