"""CML's telemetry events, in whatever form a version writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.cml.client.json_values import (
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
from lcm.cml.client.transport import DEREGISTER_TIMEOUT, MAX_SMALL_RESPONSE_BYTES
from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLInvalidRequestError, CMLUnauthorizedError
from lcm.cml.licensing import parse_license
from lcm.cml.types import (
    CMLActivity,
    CMLActivityEvent,
    ComputeHealth,
    Credentials,
    DeregistrationResult,
    LicenseState,
    SystemHealth,
    SystemInformation,
    SystemStats,
    Usage,
)

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cml.client.responses import CMLResponse
    from lcm.cml.client.session import CMLSession


def parse_activity(answer: Any, since: datetime | None = None) -> CMLActivity:
    """The events after `since`, oldest first. Entries that cannot be read are counted and left out.

    Categories nobody has heard of are kept: what counts as activity is decided elsewhere.
    """
    found: list[CMLActivityEvent] = []
    skipped = 0
    for entry in as_list(answer, "the list of events"):
        event = parse_event(entry)
        if event is None:
            skipped += 1
        else:
            found.append(event)
    wanted = [event for event in found if since is None or event.at > since]
    wanted.sort(key=lambda event: event.at)
    return CMLActivity(tuple(wanted), total=len(found), skipped=skipped)


def parse_event(entry: Any) -> CMLActivityEvent | None:
    """One event, or None when it has no category or no time."""
    if not isinstance(entry, dict):
        return None
    category = optional_text(entry, "category")
    at = parse_time(entry.get("timestamp"))
    if not category or at is None:
        return None
    data = entry.get("data")
    if not isinstance(data, dict):
        data = {}
    return CMLActivityEvent(category, at, user_id=optional_text(data, "user_id"), lab_id=optional_text(data, "lab_id"))


_DEREGISTERED_LOCALLY_STATUS = 202
_NOT_REGISTERED = "NOT_REGISTERED"


class CMLSystemClient:
    """`CMLSystemSPI` over HTTP."""

    def __init__(self, session: CMLSession) -> None:
        self._session = session

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness; needs no account and sends none."""
        return await self._session.call(
            "system_information",
            address,
            None,
            "GET",
            "/system_information",
            read=_parse_information,
            largest=MAX_SMALL_RESPONSE_BYTES,
        )

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        """The server's own verdict on itself."""
        return await self._session.call(
            "system_health",
            address,
            credentials,
            "GET",
            "/system_health",
            read=lambda reply: _parse_health(reply.content),
        )

    async def get_system_stats(self, address: str, credentials: Credentials) -> SystemStats:
        """Labs, nodes, processor, memory and disk. Labs that cannot be counted hide nothing of the rest."""
        labs = await self._count_labs(address, credentials)
        return await self._session.call(
            "system_stats",
            address,
            credentials,
            "GET",
            "/system_stats",
            read=lambda reply: _parse_stats(reply.content, labs),
        )

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        """The licence as it is now."""
        return await self._session.call(
            "license", address, credentials, "GET", "/licensing", read=lambda reply: parse_license(reply.content)
        )

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        """Ask for registration; what comes of it is seen by `get_license` only."""
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
        """Give the licence back, and say whether Cisco's side knows."""
        try:
            return await self._session.call(
                "deregister_license",
                address,
                credentials,
                "DELETE",
                "/licensing/deregistration",
                read=lambda reply: (
                    DeregistrationResult.LOCAL_ONLY
                    if reply.status == _DEREGISTERED_LOCALLY_STATUS
                    else DeregistrationResult.DONE
                ),
                seconds=DEREGISTER_TIMEOUT,
            )
        except CMLInvalidRequestError:
            # The same refusal may have other reasons; a licence that is still held must not be taken for given back.
            if (await self.get_license(address, credentials)).registration == _NOT_REGISTERED:
                return DeregistrationResult.WAS_NOT_REGISTERED
            raise

    async def get_activity_events(self, address: str, credentials: Credentials, since: datetime | None) -> CMLActivity:
        """What happened after `since`, oldest first. The server sends all it has: it knows no filter."""
        return await self._session.call(
            "activity_events",
            address,
            credentials,
            "GET",
            "/telemetry/events",
            read=lambda reply: parse_activity(reply.content, since),
        )

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        """The kinds of nodes that the server can run."""
        return await self._session.call(
            "node_definitions",
            address,
            credentials,
            "GET",
            "/node_definitions",
            read=lambda reply: tuple(
                sorted(
                    get_text(as_object(entry, "a definition"), "id")
                    for entry in as_list(reply.content, "the definitions")
                )
            ),
        )

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The id by which the server's events name this account; None: it does not tell."""

        def read(reply: CMLResponse) -> str | None:
            users = [as_object(entry, "a user") for entry in as_list(reply.content, "the users")]
            named = [user for user in users if optional_text(user, "username") == credentials.username]
            return optional_text(named[0], "id") if named else None

        return await self._session.call("users", address, credentials, "GET", "/users", read=read)

    def forget(self, address: str) -> None:
        """Drop sessions with an address, because another machine has it now."""
        self._session.forget(address)

    async def _count_labs(self, address: str, credentials: Credentials) -> int | None:
        try:
            return await self._session.call(
                "count_labs",
                address,
                credentials,
                "GET",
                "/labs",
                query={"show_all": "true"},
                read=lambda reply: len(as_list(reply.content, "the list of labs")),
            )
        except (CMLAuthenticationError, CMLUnauthorizedError):
            raise
        except CMLError:
            return None


def _ignore_body(_reply: CMLResponse) -> None:
    """Some versions answer with content, some without: it says nothing that is believed."""


def _parse_information(reply: CMLResponse) -> SystemInformation:
    answer = as_object(reply.content, "the system information")
    return SystemInformation(version=get_text(answer, "version"), ready=get_bool(answer, "ready"))


def _parse_health(content: Any) -> SystemHealth:
    answer = as_object(content, "the system health")
    return SystemHealth(
        valid=optional_bool(answer, "valid"),
        is_licensed=optional_bool(answer, "is_licensed"),
        is_enterprise=optional_bool(answer, "is_enterprise"),
        controller_valid=optional_bool(nested_object(answer, "controller"), "valid"),
        computes=tuple(_parse_compute(entry) for entry in nested_object(answer, "computes").values()),
    )


def _parse_compute(entry: Any) -> ComputeHealth:
    compute = as_object(entry, "a compute")
    return ComputeHealth(
        hostname=optional_text(compute, "hostname") or "",
        is_controller=optional_bool(compute, "is_controller") or False,
        valid=optional_bool(compute, "valid"),
        admission_state=optional_text(compute, "admission_state") or "",
    )


def _parse_stats(content: Any, labs: int | None) -> SystemStats:
    answer = as_object(content, "the system stats")
    machines = [
        nested_object(as_object(entry, "a compute"), "stats") for entry in nested_object(answer, "computes").values()
    ]
    every = nested_object(answer, "all")
    cpu = nested_object(every, "cpu")
    return SystemStats(
        labs=labs,
        nodes=_sum_counts(machines, "total_nodes"),
        running_nodes=_sum_counts(machines, "running_nodes"),
        cpu_count=optional_int(cpu, "count"),
        cpu_percent=optional_number(cpu, "percent"),
        memory=_parse_usage(nested_object(every, "memory")),
        disk=_parse_usage(nested_object(every, "disk")),
    )


def _sum_counts(machines: list[dict[str, Any]], key: str) -> int | None:
    """The sum over all machines; unknown when one of them does not say: a part would pass for the whole."""
    counts = [optional_int(nested_object(machine, "dominfo"), key) for machine in machines]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _parse_usage(value: dict[str, Any]) -> Usage | None:
    used, total = optional_int(value, "used"), optional_int(value, "total")
    return None if used is None or total is None else Usage(used, total)
