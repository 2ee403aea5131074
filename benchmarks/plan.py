"""The plan of 10,000 workers and waiting lablets, and what other requests feel while it is read."""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.store import WORKERS, waits
from benchmarks.support.control_plane import TOKEN, served_plane
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report

CLIENTS = 8
EACH = 5
LABLETS = 20
PATHS = {"first page": "/api/plan?limit=100", "largest page": "/api/plan?limit=500"}


async def measure(port: int) -> None:
    maker = await Connection.to(port, TOKEN)
    await _make_lablets(maker)
    await maker.close()
    for name, path in PATHS.items():

        async def read(_: int, path: str = path) -> None:
            # Each on a connection of its own: the server closes those that wait for their turn for long.
            connection = await Connection.to(port, TOKEN)
            try:
                plan = json.loads(await connection.ask("GET", path))
            finally:
                await connection.close()
            lablets = plan["lablets"]
            assert len(plan["items"]) > 0
            assert lablets["placements_total"] + lablets["waiting_total"] + lablets["scale_ups_total"] > 0

        alone = await waits(read, 1, EACH)
        report(f"plan: {name} of {WORKERS:,}, 1 client, p50", percentile(alone, 50), "ms")
        others: list[float] = []
        probe = asyncio.create_task(_probe(port, others))
        took = await waits(read, CLIENTS, EACH)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        report(f"plan: {name} of {WORKERS:,}, {CLIENTS} clients, p50", percentile(took, 50), "ms")
        report(f"plan: {name} of {WORKERS:,}, {CLIENTS} clients, p99", percentile(took, 99), "ms")
        report(f"plan: one worker read meanwhile ({name}), p99", percentile(others, 99), "ms", aim="250")


async def _probe(port: int, took: list[float]) -> None:
    """A small request, again and again: it waits for as long as the event loop is busy."""
    connection = await Connection.to(port, TOKEN)
    try:
        while True:
            began = time.perf_counter()
            await connection.ask("GET", "/api/workers?limit=1")
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def _make_lablets(connection: Connection) -> None:
    needs = {"cpu_cores": 1, "memory_gb": 1, "storage_gb": 1, "nodes": 1, "license": False}
    definition = {"name": "bench", "version": "1", "topology": "nodes:\n- id: n0\n", "requirements": needs}
    await connection.ask("POST", "/api/lablet-definitions", json.dumps(definition).encode())
    for number in range(LABLETS):
        body = json.dumps({"definition": "bench@1", "name": f"bench-{number}"}).encode()
        await connection.ask("POST", "/api/lablets", body)


def main() -> None:
    with served_plane() as served:
        asyncio.run(measure(served.port))
