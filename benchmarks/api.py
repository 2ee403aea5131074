"""The API over 10,000 workers: the control plane as a process on SQLite, with 8 concurrent HTTP clients."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from benchmarks.store import REGIONS, WORKERS, waits
from benchmarks.support.control_plane import TOKEN, served_plane
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CLIENTS = 8
EACH = 250
WARM_UP = 25
PAGE = 100
FIRST = f"/api/workers?status=RUNNING,STOPPED&limit={PAGE}"


class Walk:
    """A client that reads page after page, and starts over at the end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor: str | None = None

    async def step(self) -> None:
        path = FIRST if self._cursor is None else f"{FIRST}&cursor={self._cursor}"
        page = await self._connection.ask("GET", path)
        assert page.count(b'"aws_region"') == PAGE
        # Decode only the tail, to keep the client's share of the delay small.
        self._cursor = json.loads(b"{" + page[page.rindex(b'"next_cursor"') :])["next_cursor"]


async def figures(name: str, calls: Callable[[int], Awaitable[None]], aim: str = "") -> None:
    """Each client makes its calls one after the other, after a short warm-up."""

    async def warm(number: int) -> None:
        await calls(number // WARM_UP * EACH)

    await waits(warm, CLIENTS, WARM_UP)
    began = time.perf_counter()
    took = await waits(calls, CLIENTS, EACH)
    rate = len(took) / (time.perf_counter() - began)
    report(f"API: {name}, {CLIENTS} clients, p50", percentile(took, 50), "ms")
    report(f"API: {name}, {CLIENTS} clients, p99", percentile(took, 99), "ms", aim=aim)
    report(f"API: {name}, {CLIENTS} clients", rate, "/s")


async def measure(port: int) -> None:
    connections = [await Connection.to(port, TOKEN) for _ in range(CLIENTS)]
    walks = [Walk(connection) for connection in connections]

    async def first(number: int) -> None:
        page = await connections[number // EACH].ask("GET", f"{FIRST}&aws_region={REGIONS[number % len(REGIONS)]}")
        assert page.count(b'"aws_region"') == PAGE

    async def following(number: int) -> None:
        await walks[number // EACH].step()

    async def summary(number: int) -> None:
        fleet = json.loads(await connections[number // EACH].ask("GET", "/api/fleet"))
        assert sum(fleet["by_status"].values()) == WORKERS

    await figures("filtered page of 100 from 10,000", first, aim="20")
    await figures("the same, following cursors", following, aim="20")
    await figures("fleet summary of 10,000", summary)
    for connection in connections:
        await connection.close()


def main() -> None:
    with served_plane() as served:
        asyncio.run(measure(served.port))
