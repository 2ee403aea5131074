"""`CMLSystemSPI` of the leader: regular reads are shared among all replicas, everything else is done here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast

from prometheus_client import REGISTRY, CollectorRegistry, Counter

from lcm.cml.errors import CMLPollerError
from lcm.cml.pollers import ACTIVITY_SECONDS, USERS_SECONDS
from lcm.cml.reading import ServerQuery
from lcm.controllers.worker.readers.directory import choose_reader
from lcm.controllers.worker.readers.messages import ReadRequest
from lcm.controllers.worker.readers.remote_reader import ReaderUnavailableError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cml.reading import ServerReading
    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import (
        CMLActivity,
        Credentials,
        DeregistrationResult,
        LicenseState,
        SystemHealth,
        SystemInformation,
        SystemStats,
    )
    from lcm.controllers.worker.readers.directory import Reader
    from lcm.controllers.worker.readers.pool import ReaderPool

R = TypeVar("R")


class SharedCMLClient:
    """Sends each regular read to the replica that reads this server; a replica that is lost delays it only.

    Whatever changes a server is sent by this process alone: it needs the leader's lease.
    """

    def __init__(self, local: CMLSystemSPI, readers: ReaderPool, *, registry: CollectorRegistry = REGISTRY) -> None:
        self._local = local
        self._readers = readers
        self._pins: dict[str, str] = {}
        self._instances: dict[str, str] = {}  # that have an address
        self._reads = Counter("lcm_cml_reads", "Reads of CML servers, by who made them", ["by"], registry=registry)

    def reader_of(self, address: str) -> Reader | None:
        """The replica that reads a server; None: this one."""
        chosen = choose_reader(address, self._readers.usable())
        return None if chosen is self._readers.own else chosen

    # Shared among the replicas

    async def read_server(self, query: ServerQuery, seconds: float) -> ServerReading:
        """Read several parts at once, within so many seconds; raises CMLPollerError if nobody could read it."""
        self._instances[query.address] = query.instance_id
        asked_at = clock.boottime()
        reading, is_remote = await self._read(query, "", seconds, lambda left: self._local.read_server(query, left))
        if is_remote and reading.license_began is not None:
            reading.license_began = (
                asked_at  # the clock of the other host means nothing here; earlier is on the safe side
            )
        return reading

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        """The newest events, oldest first."""
        query = ServerQuery(address, credentials, instance_id=self._instances.get(address, ""))
        result, _ = await self._read(
            query,
            "get_activity_events",
            ACTIVITY_SECONDS,
            lambda _: self._local.get_activity_events(address, credentials),
        )
        return result

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        """The user id of this account in the server's events, or None if the server does not report it."""
        query = ServerQuery(address, credentials, instance_id=self._instances.get(address, ""))
        result, _ = await self._read(
            query, "get_own_user_id", USERS_SECONDS, lambda _: self._local.get_own_user_id(address, credentials)
        )
        return result

    async def _read(
        self, query: ServerQuery, method: str, seconds: float, locally: Callable[[float], Awaitable[R]]
    ) -> tuple[R, bool]:
        """The result, and whether another replica has read it. One that is lost meanwhile is replaced by another."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            left = deadline - loop.time()
            if left <= 0.0:
                raise CMLPollerError(query.address, "no time was left to read it")
            reader = self.reader_of(query.address)
            if reader is None:
                self._reads.labels("leader").inc()
                return await locally(left), False
            request = ReadRequest(0, query.instance_id, self._pins.get(query.address), left, query, method)
            try:
                result = await self._readers.read(reader, request)
            except ReaderUnavailableError as error:
                if deadline <= loop.time():
                    raise CMLPollerError(query.address, f"reader {reader.instance_id}: {error}") from None
            else:
                self._reads.labels("other").inc()
                if result.error is not None:
                    raise result.error
                return cast("R", result.value), True

    # Done here

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness."""
        return await self._local.get_system_information(address)

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        """The health that the server reports about itself."""
        return await self._local.get_system_health(address, credentials)

    async def get_system_stats(self, address: str, credentials: Credentials, *, with_labs: bool = True) -> SystemStats:
        """Labs, nodes, CPU, memory and disk."""
        return await self._local.get_system_stats(address, credentials, with_labs=with_labs)

    async def count_labs(self, address: str, credentials: Credentials) -> int | None:
        """The number of labs."""
        return await self._local.count_labs(address, credentials)

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        """The current license state."""
        return await self._local.get_license(address, credentials)

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        """Request a registration."""
        await self._local.register_license(address, credentials, token, reregister=reregister)

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        """Deregister the license."""
        return await self._local.deregister_license(address, credentials)

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        """The node definitions that the server offers."""
        return await self._local.get_node_definitions(address, credentials)

    def trust(self, address: str, certificate: str) -> None:
        """Accept only the certificate with this SHA-256 fingerprint at an address."""
        self._pins[address] = certificate
        self._local.trust(address, certificate)

    def forget(self, address: str) -> None:
        """Drop all sessions with an address. Readers do so when they are sent the next instance that has it."""
        self._pins.pop(address, None)
        self._instances.pop(address, None)
        self._local.forget(address)
