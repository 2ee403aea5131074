"""Searching 10,000 workers: the control plane as a process on SQLite and on mongod, by the API and by the list page."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import quote

from benchmarks.store import REGIONS, WORKERS, waits
from benchmarks.support.control_plane import TOKEN, record, served_plane, worker_id
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = 4
EACH = 100
AIM = "150"
QUERIES: dict[str, Callable[[int], str]] = {
    "an id": lambda number: worker_id(number * 37 % WORKERS),
    "an instance id": lambda number: f"i-{number * 37 % WORKERS:017x}",
    "a part of a name": lambda number: f"ker-{number % 100:02}",
    "a tag and a region": lambda number: f"tag-3=value {REGIONS[number % len(REGIONS)]}",
    "a text that nothing has": lambda number: f"nothing-{number}",
}


async def search(port: int, store: str) -> None:
    connections = [await Connection.to(port, TOKEN) for _ in range(CLIENTS)]
    browser = f"Cookie: {sign_in(port)}\r\nHX-Request: true\r\nHX-Current-URL: http://127.0.0.1:{port}/fleet\r\n"
    for name, query in QUERIES.items():

        async def by_api(number: int, query: Callable[[int], str] = query) -> None:
            path = f"/api/workers?q={quote(query(number))}&exclude_statuses=TERMINATED&sort=name&limit=50"
            await connections[number // EACH].ask("GET", path)

        async def on_page(number: int, query: Callable[[int], str] = query) -> None:
            await connections[number // EACH].ask("GET", f"/fleet?q={quote(query(number))}", headers=browser)

        for where, ask in (("API", by_api), ("page", on_page)):
            took = await waits(ask, CLIENTS, EACH)
            title = f"search, {store}, {where}: {name} among {WORKERS:,}, {CLIENTS} clients"
            report(f"{title}, p50", percentile(took, 50), "ms")
            report(f"{title}, p99", percentile(took, 99), "ms", aim=AIM)
    for connection in connections:
        await connection.close()


def sign_in(port: int) -> str:
    """The cookie of a browser's session."""
    body = json.dumps({"token": TOKEN}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/session", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.headers["Set-Cookie"]).partition(";")[0]


def main() -> None:
    for store, mongo in (("SQLite", False), ("mongod", True)):
        with served_plane(record, WORKERS, mongo) as served:
            asyncio.run(search(served.port, store))
