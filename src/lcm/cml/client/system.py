"""The system client of a CML server: version, health, load, license and user activity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.cml.client.responses import (
    as_list,
    as_object,
    get_bool,
    get_text,
    nested_object,
    optional_bool,
    optional_int,
    optional_number,
    optional_text,
    parse_time,
)
from lcm.cml.client.telemetry import TELEMETRY_TIMEOUT, read_activity, telemetry_buffer
from lcm.cml.client.transport import DEREGISTER_TIMEOUT, MAX_SMALL_RESPONSE_BYTES
from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLInvalidRequestError, CMLUnauthorizedError
from lcm.cml.reading import read_server
from lcm.cml.types import (
    CMLActivity,
    ComputeHealth,
    Credentials,
    DeregistrationResult,
    LicenseFeature,
    LicenseState,
    SystemHealth,
    SystemInformation,
    SystemStats,
    Usage,
)

if TYPE_CHECKING:
    from lcm.cml.client.responses import CMLResponse
    from lcm.cml.client.session import CMLSession
    from lcm.cml.reading import ServerQuery, ServerReading


_DEREGISTERED_LOCALLY_STATUS = 202
_NOT_REGISTERED = "NOT_REGISTERED"


class CMLSystemClient:
    """`CMLSystemSPI` over HTTP."""

    def __init__(self, session: CMLSession) -> None:
        self._session = session

    async def read_server(self, query: ServerQuery, seconds: float) -> ServerReading:
        """Read several parts at once, within so many seconds."""
        return await read_server(self, query, seconds)

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness. Needs no account and sends no credentials."""
        return await self._session.call(
            "system_information",
            address,
            None,
            "GET",
            "/system_information",
            read=_parse_information,
            max_bytes=MAX_SMALL_RESPONSE_BYTES,
        )

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        """The health that the server reports about itself."""
        return await self._session.call(
            "system_health",
            address,
            credentials,
            "GET",
            "/system_health",
            read=lambda response: _parse_health(response.content),
        )

    async def get_system_stats(self, address: str, credentials: Credentials, *, with_labs: bool = True) -> SystemStats:
        """Labs, nodes, CPU, memory and disk. If the labs cannot be counted, the rest is still returned."""
        labs = await self.count_labs(address, credentials) if with_labs else None
        return await self._session.call(
            "system_stats",
            address,
            credentials,
            "GET",
            "/system_stats",
            read=lambda response: _parse_stats(response.content, labs),
        )

    async def count_labs(self, address: str, credentials: Credentials) -> int | None:
        """The number of labs; None if they cannot be counted."""
        try:
            return await self._session.call(
                "count_labs",
                address,
                credentials,
                "GET",
                "/labs",
                query={"show_all": "true"},
                read=lambda response: len(as_list(response.content, "the list of labs")),
            )
        except (CMLAuthenticationError, CMLUnauthorizedError):
            raise
        except CMLError:
            return None

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        """The current license state."""
        return await self._session.call(
            "license", address, credentials, "GET", "/licensing", read=lambda response: parse_license(response.content)
        )

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        """Request a registration. Only `get_license` shows its result."""
        await self._session.call(
            "register_license",
            address,
            credentials,
            "POST",
            "/licensing/registration",
            read=_ignore_body,
            json={"token": token, "reregister": reregister},
        )

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        """Deregister the license, and return whether Cisco was notified."""
        try:
            return await self._session.call(
                "deregister_license",
                address,
                credentials,
                "DELETE",
                "/licensing/deregistration",
                read=lambda response: (
                    DeregistrationResult.LOCAL_ONLY
                    if response.status == _DEREGISTERED_LOCALLY_STATUS
                    else DeregistrationResult.DONE
                ),
                timeout=DEREGISTER_TIMEOUT,
            )
        except CMLInvalidRequestError:
            # The rejection may have other reasons; a license that is still held must not be reported as deregistered.
            if (await self.get_license(address, credentials)).registration == _NOT_REGISTERED:
                return DeregistrationResult.WAS_NOT_REGISTERED
            raise

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        """The newest events, oldest first. The server always sends all events; only the ends of the list are kept."""
        return await self._session.call(
            "activity_events",
            address,
            credentials,
            "GET",
            "/telemetry/events",
            read=read_activity,
            timeout=TELEMETRY_TIMEOUT,
            make_buffer=telemetry_buffer,
        )

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        """The node definitions that the server offers, sorted by name."""
        return await self._session.call(
            "node_definitions",
            address,
            credentials,
            "GET",
            "/node_definitions",
            read=lambda response: tuple(
                sorted(
                    get_text(as_object(entry, "a definition"), "id")
                    for entry in as_list(response.content, "the definitions")
                )
            ),
        )

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The user id of this account in the server's events, or None if the server does not report it."""

        def read(response: CMLResponse) -> str | None:
            users = [as_object(entry, "a user") for entry in as_list(response.content, "the users")]
            named = [user for user in users if optional_text(user, "username") == credentials.username]
            return optional_text(named[0], "id") if named else None

        return await self._session.call("users", address, credentials, "GET", "/users", read=read)

    def trust(self, address: str, certificate: str) -> None:
        """Accept only the certificate with this SHA-256 fingerprint at an address, where certificates are pinned."""
        self._session.trust(address, certificate)

    def forget(self, address: str) -> None:
        """Drop all sessions with an address, because another server now uses it."""
        self._session.forget(address)


def _ignore_body(_reply: CMLResponse) -> None:
    """Some versions respond with content, some without; it is not used."""


def _parse_information(response: CMLResponse) -> SystemInformation:
    content = as_object(response.content, "the system information")
    return SystemInformation(
        version=get_text(content, "version"), ready=get_bool(content, "ready"), certificate=response.certificate
    )


def _parse_health(content: Any) -> SystemHealth:
    content = as_object(content, "the system health")
    return SystemHealth(
        valid=optional_bool(content, "valid"),
        is_licensed=optional_bool(content, "is_licensed"),
        is_enterprise=optional_bool(content, "is_enterprise"),
        controller_valid=optional_bool(nested_object(content, "controller"), "valid"),
        computes=tuple(_parse_compute(entry) for entry in nested_object(content, "computes").values()),
    )


def _parse_compute(entry: Any) -> ComputeHealth:
    compute = as_object(entry, "a compute")
    return ComputeHealth(
        hostname=optional_text(compute, "hostname") or "",
        is_controller=optional_bool(compute, "is_controller") or False,
        valid=optional_bool(compute, "valid"),
        admission_state=optional_text(compute, "admission_state") or "",
        kvm_enabled=optional_bool(compute, "kvm_vmx_enabled"),
    )


def _parse_stats(content: Any, labs: int | None) -> SystemStats:
    content = as_object(content, "the system stats")
    computes = [
        nested_object(as_object(entry, "a compute"), "stats") for entry in nested_object(content, "computes").values()
    ]
    every = nested_object(content, "all")
    cpu = nested_object(every, "cpu")
    return SystemStats(
        labs=labs,
        nodes=_sum_counts(computes, "total_nodes"),
        running_nodes=_sum_counts(computes, "running_nodes"),
        cpu_count=optional_int(cpu, "count"),
        cpu_percent=optional_number(cpu, "percent"),
        memory=_parse_usage(nested_object(every, "memory")),
        disk=_parse_usage(nested_object(every, "disk")),
    )


def _sum_counts(computes: list[dict[str, Any]], key: str) -> int | None:
    """The sum over all compute hosts, or None if one of them does not report it: a partial sum would be misleading."""
    counts = [optional_int(nested_object(compute, "dominfo"), key) for compute in computes]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _parse_usage(value: dict[str, Any]) -> Usage | None:
    used, total = optional_int(value, "used"), optional_int(value, "total")
    return None if used is None or total is None else Usage(used, total)


def parse_license(content: Any) -> LicenseState:
    """Parse the response to `GET /licensing`."""
    whole = as_object(content, "the license")
    registration = as_object(whole.get("registration"), "registration")
    product = nested_object(whole, "product_license")
    return LicenseState(
        registration=get_text(registration, "status"),
        authorization=get_text(nested_object(whole, "authorization"), "status", ""),
        product=get_text(product, "active", ""),
        is_enterprise=optional_bool(product, "is_enterprise"),
        features=tuple(_parse_feature(entry) for entry in as_list(whole.get("features") or [], "features")),
        failure=optional_text(nested_object(registration, "register_time"), "failure") or "",
        expires=parse_time(registration.get("expires")),
        reservation_mode=optional_bool(whole, "reservation_mode") or False,
    )


def _parse_feature(entry: Any) -> LicenseFeature:
    feature = as_object(entry, "a feature")
    return LicenseFeature(
        id=get_text(feature, "id"),
        name=get_text(feature, "name", ""),
        in_use=optional_int(feature, "in_use") or 0,
        status=get_text(feature, "status", ""),
    )
