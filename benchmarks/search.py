"""Searching 10,000 workers: the control plane as a process on SQLite, by the API and by the list page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

from benchmarks.store import REGIONS, WORKERS, waits
from benchmarks.support.control_plane import TOKEN, served_plane, worker_id
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = 4
EACH = 100
AIM = "150"


async def search(port: int) -> None:
    connections = [await Connection.to(port, TOKEN) for _ in range(CLIENTS)]
    queries: dict[str, Callable[[int], str]] = {
        "an id": lambda number: worker_id(number * 37 % WORKERS),
        "an instance id": lambda number: f"i-{number * 37 % WORKERS:017x}",
        "a part of a name": lambda number: f"ker-{number % 100:02}",
        "a tag and a region": lambda number: f"tag-3=value {REGIONS[number % len(REGIONS)]}",
        "a text that nothing has": lambda number: f"nothing-{number}",
    }
    for name, query in queries.items():

        async def ask(number: int, query: Callable[[int], str] = query) -> None:
            path = f"/api/workers?q={quote(query(number))}&exclude_statuses=TERMINATED&sort=name&limit=50"
            await connections[number // EACH].ask("GET", path)

        took = await waits(ask, CLIENTS, EACH)
        report(f"search: {name} among {WORKERS:,}, {CLIENTS} clients, p50", percentile(took, 50), "ms")
        report(f"search: {name} among {WORKERS:,}, {CLIENTS} clients, p99", percentile(took, 99), "ms", aim=AIM)
    for connection in connections:
        await connection.close()


def main() -> None:
    with served_plane() as served:
        asyncio.run(search(served.port))
