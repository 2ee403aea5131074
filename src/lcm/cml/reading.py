"""One reading of a CML server: what to ask for, what came back, and how it is read.

What changes rarely is asked for rarely; the caller says what is due. Each part fails alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from lcm.cml.errors import CMLError, CMLNotReadyError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials, LicenseState, SystemInformation, SystemStats

R = TypeVar("R")
SIDE_TIMEOUT: Final = 10.0
"""Seconds for a part without which a server can be ready: its health and its node definitions."""
HEAD_START: Final = 1.0
"""Seconds for which the next part waits for the one before it."""
INFORMATION_SHARE: Final = 1 / 3
"""The part of the time that is kept for the information, for the case that nothing else arrived."""


@dataclass(frozen=True, slots=True)
class ServerQuery:
    """What to read from a server.

    Without an account that is only the information. With one, the statistics are always read. The information comes
    first if it is requested, and then the rest is read only from a server that is ready. It can also be requested only
    for the case that the statistics cannot be read, because it says why.
    """

    address: str
    account: Credentials | None = None
    information: bool = True
    information_on_failure: bool = False
    labs: bool = True
    nodes_before: tuple[int | None, int | None] | None = None  # nodes and running nodes when the labs were counted
    license: bool = False
    health: bool = False
    definitions: bool = False
    instance_id: str = ""  # of the instance that has the address


@dataclass(slots=True)
class ServerReading:
    """What a server returned, and for each part that failed its error. Times are of `clock.boottime()`."""

    information: SystemInformation | None = None
    information_error: CMLError | None = None
    stats: SystemStats | None = None
    stats_error: CMLError | None = None
    labs_counted: bool = False
    license_state: LicenseState | None = None
    license_error: CMLError | None = None
    license_began: float | None = None  # when the call began that reads the license
    kvm_enabled: bool | None = None
    health_error: CMLError | None = None
    definitions: tuple[str, ...] | None = None
    definitions_error: CMLError | None = None
    timed_out: bool = False


async def read_server(cml: CMLSystemSPI, query: ServerQuery, seconds: float) -> ServerReading:
    """Read a server within so many seconds. What has arrived by then is returned."""
    reading = ServerReading()
    try:
        async with asyncio.timeout(seconds):
            await _read(cml, query, seconds, reading)
    except TimeoutError:
        reading.timed_out = True
    return reading


async def _read(cml: CMLSystemSPI, query: ServerQuery, seconds: float, reading: ServerReading) -> None:
    if query.account is None:
        await _read_information(cml, query, reading)
    elif query.information:
        await _read_information(cml, query, reading)
        if reading.information is not None and reading.information.ready:
            await _read_with_account(cml, query, query.account, reading)
    elif not query.information_on_failure:
        await _read_with_account(cml, query, query.account, reading)
    else:
        try:
            async with asyncio.timeout(seconds * (1 - INFORMATION_SHARE)):
                await _read_with_account(cml, query, query.account, reading)
        except TimeoutError:
            reading.timed_out = True
        if reading.stats is None:
            await _read_information(cml, query, reading)


async def _read_with_account(
    cml: CMLSystemSPI, query: ServerQuery, account: Credentials, reading: ServerReading
) -> None:
    """One after the other over one connection. A slow part is not waited for, so that it takes no time of the others.

    In parallel each part would open a connection: a TLS handshake, and some 40 KiB for as long as it is kept.
    """
    parts = [_read_stats]
    parts += [_read_license] if query.license else []
    parts += [_read_health] if query.health else []
    parts += [_read_definitions] if query.definitions else []
    async with asyncio.TaskGroup() as requests:
        for part in parts:
            request = requests.create_task(part(cml, query, account, reading))
            if part is not parts[-1]:
                await asyncio.wait([request], timeout=HEAD_START)


async def _read_information(cml: CMLSystemSPI, query: ServerQuery, reading: ServerReading) -> None:
    try:
        reading.information = await cml.get_system_information(query.address)
    except CMLError as error:
        reading.information_error = error


async def _read_stats(cml: CMLSystemSPI, query: ServerQuery, account: Credentials, reading: ServerReading) -> None:
    try:
        stats = await cml.get_system_stats(query.address, account, with_labs=query.labs)
        reading.labs_counted = query.labs
        if not query.labs and (stats.nodes, stats.running_nodes) != query.nodes_before:
            stats = replace(stats, labs=await cml.count_labs(query.address, account))
            reading.labs_counted = True
        reading.stats = stats
    except CMLError as error:
        reading.stats_error = error


async def _read_license(cml: CMLSystemSPI, query: ServerQuery, account: Credentials, reading: ServerReading) -> None:
    reading.license_began = clock.boottime()
    try:
        reading.license_state = await cml.get_license(query.address, account)
    except CMLError as error:
        reading.license_error = error


async def _read_health(cml: CMLSystemSPI, query: ServerQuery, account: Credentials, reading: ServerReading) -> None:
    try:
        health = await _within_side_timeout(query.address, cml.get_system_health(query.address, account))
        reading.kvm_enabled = health.kvm_enabled
    except CMLError as error:
        reading.health_error = error


async def _read_definitions(
    cml: CMLSystemSPI, query: ServerQuery, account: Credentials, reading: ServerReading
) -> None:
    try:
        call = cml.get_node_definitions(query.address, account)
        reading.definitions = await _within_side_timeout(query.address, call)
    except CMLError as error:
        reading.definitions_error = error


async def _within_side_timeout(address: str, call: Awaitable[R]) -> R:
    try:
        async with asyncio.timeout(SIDE_TIMEOUT):
            return await call
    except TimeoutError:
        raise CMLNotReadyError(address, "too slow") from None
