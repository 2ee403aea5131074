"""The client of a CML server as a whole: version, health, load, licence and what people do on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.cml.client.json_values import (
    flag,
    items,
    maybe_count,
    maybe_flag,
    maybe_number,
    maybe_text,
    part,
    record,
    text,
)
from lcm.cml.client.system import read_activity
from lcm.cml.client.transport import DEREGISTER_SECONDS, SMALL_REPLY
from lcm.cml.errors import AuthFailed, CMLError, Invalid, Unauthorized
from lcm.cml.licensing import read_license
from lcm.cml.types import (
    Activity,
    ComputeHealth,
    Credentials,
    Deregistration,
    LicenseState,
    SystemHealth,
    SystemInformation,
    SystemStats,
    Usage,
)

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.cml.client.cml_session import Session
    from lcm.cml.client.responses import Reply

_LOCAL_ONLY = 202
_UNREGISTERED = "NOT_REGISTERED"


class CMLSystemClient:
    """`CMLSystemSPI` over HTTP."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness; needs no account and sends none."""
        return await self._session.call(
            "system_information",
            address,
            None,
            "GET",
            "/system_information",
            read=_information,
            largest=SMALL_REPLY,
        )

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        """The server's own verdict on itself."""
        return await self._session.call(
            "system_health", address, credentials, "GET", "/system_health", read=lambda reply: _health(reply.content)
        )

    async def get_system_stats(self, address: str, credentials: Credentials) -> SystemStats:
        """Labs, nodes, processor, memory and disk. Labs that cannot be counted hide nothing of the rest."""
        labs = await self._count_labs(address, credentials)
        return await self._session.call(
            "system_stats", address, credentials, "GET", "/system_stats", read=lambda reply: _stats(reply.content, labs)
        )

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        """The licence as it is now."""
        return await self._session.call(
            "license", address, credentials, "GET", "/licensing", read=lambda reply: read_license(reply.content)
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
            read=_nothing,
            json={"token": token, "reregister": reregister},
        )

    async def deregister_license(self, address: str, credentials: Credentials) -> Deregistration:
        """Give the licence back, and say whether Cisco's side knows."""
        try:
            return await self._session.call(
                "deregister_license",
                address,
                credentials,
                "DELETE",
                "/licensing/deregistration",
                read=lambda reply: Deregistration.LOCAL_ONLY if reply.status == _LOCAL_ONLY else Deregistration.DONE,
                seconds=DEREGISTER_SECONDS,
            )
        except Invalid:
            # The same refusal may have other reasons; a licence that is still held must not be taken for given back.
            if (await self.get_license(address, credentials)).registration == _UNREGISTERED:
                return Deregistration.WAS_NOT_REGISTERED
            raise

    async def get_activity_events(self, address: str, credentials: Credentials, since: datetime | None) -> Activity:
        """What happened after `since`, oldest first. The server sends all it has: it knows no filter."""
        return await self._session.call(
            "activity_events",
            address,
            credentials,
            "GET",
            "/telemetry/events",
            read=lambda reply: read_activity(reply.content, since),
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
                sorted(text(record(entry, "a definition"), "id") for entry in items(reply.content, "the definitions"))
            ),
        )

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The id by which the server's events name this account; None: it does not tell."""

        def read(reply: Reply) -> str | None:
            users = [record(entry, "a user") for entry in items(reply.content, "the users")]
            named = [user for user in users if maybe_text(user, "username") == credentials.username]
            return maybe_text(named[0], "id") if named else None

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
                read=lambda reply: len(items(reply.content, "the list of labs")),
            )
        except (AuthFailed, Unauthorized):
            raise
        except CMLError:
            return None


def _nothing(_reply: Reply) -> None:
    """Some versions answer with content, some without: it says nothing that is believed."""


def _information(reply: Reply) -> SystemInformation:
    answer = record(reply.content, "the system information")
    return SystemInformation(version=text(answer, "version"), ready=flag(answer, "ready"))


def _health(content: Any) -> SystemHealth:
    answer = record(content, "the system health")
    return SystemHealth(
        valid=maybe_flag(answer, "valid"),
        is_licensed=maybe_flag(answer, "is_licensed"),
        is_enterprise=maybe_flag(answer, "is_enterprise"),
        controller_valid=maybe_flag(part(answer, "controller"), "valid"),
        computes=tuple(_compute(entry) for entry in part(answer, "computes").values()),
    )


def _compute(entry: Any) -> ComputeHealth:
    compute = record(entry, "a compute")
    return ComputeHealth(
        hostname=maybe_text(compute, "hostname") or "",
        is_controller=maybe_flag(compute, "is_controller") or False,
        valid=maybe_flag(compute, "valid"),
        admission_state=maybe_text(compute, "admission_state") or "",
    )


def _stats(content: Any, labs: int | None) -> SystemStats:
    answer = record(content, "the system stats")
    machines = [part(record(entry, "a compute"), "stats") for entry in part(answer, "computes").values()]
    every = part(answer, "all")
    cpu = part(every, "cpu")
    return SystemStats(
        labs=labs,
        nodes=_total(machines, "total_nodes"),
        running_nodes=_total(machines, "running_nodes"),
        cpu_count=maybe_count(cpu, "count"),
        cpu_percent=maybe_number(cpu, "percent"),
        memory=_usage(part(every, "memory")),
        disk=_usage(part(every, "disk")),
    )


def _total(machines: list[dict[str, Any]], key: str) -> int | None:
    """The sum over all machines; unknown when one of them does not say: a part would pass for the whole."""
    counts = [maybe_count(part(machine, "dominfo"), key) for machine in machines]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _usage(value: dict[str, Any]) -> Usage | None:
    used, total = maybe_count(value, "used"), maybe_count(value, "total")
    return None if used is None or total is None else Usage(used, total)
