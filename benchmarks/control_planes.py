"""One control plane and two on the same MongoDB: reads per second, and changes to clients of the event stream.

A host has a few cores, and other processes use them too: beside each rate is the processor time of a read in all
control planes, which depends on the host's load the least.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from itertools import chain, cycle
from typing import TYPE_CHECKING

from benchmarks.store import REGIONS, waits
from benchmarks.stream import Log, all_listening
from benchmarks.support import process as proc
from benchmarks.support.control_plane import STATUSES, TOKEN, one_more, record, served_plane, worker_id
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.support.control_plane import Served

WORKERS = 2_000
CLIENTS = 8
EACH = 150
WARM_UP = 15
LISTENERS = 400
CHANGES = 40
CHANGES_PER_SECOND = 4
PATIENCE = 120.0
READS = {
    "page of 100": "/api/workers?status=RUNNING,STOPPED&limit=100&aws_region={region}",
    "one worker": "/api/workers/{worker}",
    "fleet summary": "/api/fleet",
}


def _cpu(planes: Sequence[Served]) -> float:
    return sum(proc.cpu_seconds(plane.pid) for plane in planes)


async def reads(planes: Sequence[Served], name: str, path: str) -> None:
    """Clients that ask one after the other, spread over the control planes."""
    ports = cycle(plane.port for plane in planes)
    connections = [await Connection.to(next(ports), TOKEN) for _ in range(CLIENTS)]

    async def ask(number: int, each: int = EACH) -> None:
        where = path.format(region=REGIONS[number % len(REGIONS)], worker=worker_id(number % WORKERS))
        await connections[number // each].ask("GET", where)

    await waits(lambda number: ask(number, WARM_UP), CLIENTS, WARM_UP)
    busy, began = _cpu(planes), time.perf_counter()
    took = await waits(ask, CLIENTS, EACH)
    rate = len(took) / (time.perf_counter() - began)
    each = (_cpu(planes) - busy) * 1000 / len(took)
    title = f"control planes {len(planes)}: {name}"
    report(title, rate, "/s", beside=f"p99 {percentile(took, 99):.3g} ms, {each:.3g} ms of processor each")
    for connection in connections:
        await connection.close()


async def streams(planes: Sequence[Served]) -> None:
    """Changes through the first control plane, to listeners of all of them."""
    log = Log(CHANGES * LISTENERS)
    share = LISTENERS // len(planes)
    listeners = list(chain.from_iterable([await all_listening(plane.port, log, share) for plane in planes]))
    connection = await Connection.to(planes[0].port, TOKEN)
    busy, began = _cpu(planes), time.perf_counter()
    for number in range(CHANGES):
        await asyncio.sleep(max(0.0, began + number / CHANGES_PER_SECOND - time.perf_counter()))
        mark = f"{len(planes) * CHANGES + number:06}"  # a hold with the reason that a worker has already is no change
        log.asked[mark.encode()] = time.perf_counter()
        running = STATUSES.index(WorkerStatus.RUNNING) + number * len(STATUSES) % WORKERS
        body = json.dumps({"reason": f"change {mark}"}).encode()
        await connection.ask("POST", f"/api/workers/{worker_id(running)}/hold", body)
    await asyncio.wait_for(log.complete.wait(), PATIENCE)
    each = (_cpu(planes) - busy) * 1e6 / len(log.delays)
    title = f"control planes {len(planes)}: change to each of {len(listeners)} listeners, p99"
    beside = f"p50 {percentile(log.delays, 50):.3g} ms, {each:.3g} µs of processor each"
    report(title, percentile(log.delays, 99), "ms", beside=beside)
    await connection.close()
    for listener in listeners:
        assert listener.transport is not None
        listener.transport.close()


async def measure(planes: Sequence[Served]) -> None:
    for name, path in READS.items():
        await reads(planes, name, path)
    await streams(planes)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with served_plane(record, WORKERS, True) as first:
        asyncio.run(measure([first]))
        with one_more(first) as second:
            asyncio.run(measure([first, second]))
