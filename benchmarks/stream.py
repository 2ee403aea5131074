"""The event stream: delay of a change to 1,000 listeners, and their memory cost on the server."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from array import array
from functools import partial
from itertools import count

from benchmarks.store import WORKERS, waits
from benchmarks.support.control_plane import STATUSES, TOKEN, Served, served_plane, worker_id
from benchmarks.support.http import Connection, head
from benchmarks.support.output import percentile, report
from lcm.model.worker.status import WorkerStatus

LISTENERS = 1_000
CHANGES_PER_SECOND = 5
SECONDS = 30
CHANGES = CHANGES_PER_SECOND * SECONDS
SETTLERS = 8
SETTLING = 400  # changes that each connection makes before the first listener
TOGETHER = 50  # listeners that connect at a time, with a token: its limit of streams
PATIENCE = 60.0

_MARK = b'"hold":{"reason":"change '
_DIGITS = 6
_tokens = count(1)


class Log:
    """The time of each change request, and its delay to each listener."""

    def __init__(self, expected: int = CHANGES * LISTENERS) -> None:
        self._expected = expected
        self.asked: dict[bytes, float] = {}
        self.delays = array("d")
        self.complete = asyncio.Event()

    def heard(self, mark: bytes) -> None:
        began = self.asked.get(mark)
        if began is None:
            return
        self.delays.append((time.perf_counter() - began) * 1000)
        if len(self.delays) == self._expected:
            self.complete.set()


class Listener(asyncio.Protocol):
    """Finds the mark of a change in the stream; it counts when its event is complete."""

    def __init__(self, log: Log, token: str) -> None:
        self._log = log
        self._token = token
        self._rest = b""
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(head("GET", "/api/events/stream", self._token))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        *events, self._rest = data.split(b"\n\n")
        for event in events:
            if not self.greeted.done():
                assert b" 200 OK\r\n" in event, event
                self.greeted.set_result(None)
            place = event.find(_MARK)
            if place >= 0:
                begin = place + len(_MARK)
                self._log.heard(event[begin : begin + _DIGITS])


async def all_listening(port: int, log: Log, number: int = LISTENERS) -> list[Listener]:
    """Connect in batches: a thousand at once would measure the socket's backlog. A caller may have no more of them."""
    loop = asyncio.get_running_loop()
    admin = await Connection.to(port, TOKEN)
    listeners: list[Listener] = []
    while len(listeners) < number:
        request = {"name": f"listeners-{next(_tokens)}", "role": "viewer"}
        token = json.loads(await admin.ask("POST", "/api/tokens", json.dumps(request).encode()))["token"]
        make = partial(Listener, log, token)
        some = await asyncio.gather(*(loop.create_connection(make, "127.0.0.1", port) for _ in range(TOGETHER)))
        listeners += [listener for _, listener in some]
        await asyncio.wait_for(asyncio.gather(*(listener.greeted for _, listener in some)), PATIENCE)
    await admin.close()
    return listeners


async def settle(port: int) -> None:
    """Make changes until the store's caches are full, so that later growth is the cost of listeners."""
    connections = [await Connection.to(port, TOKEN) for _ in range(SETTLERS)]

    async def change(number: int) -> None:
        await hold(connections[number // SETTLING], number, f"settling {number}")

    await waits(change, SETTLERS, SETTLING)
    for connection in connections:
        await connection.close()


async def hold(connection: Connection, number: int, reason: str) -> None:
    """Change one of the running workers; the reason is in the event."""
    running = STATUSES.index(WorkerStatus.RUNNING) + number * len(STATUSES) % WORKERS
    await connection.ask("POST", f"/api/workers/{worker_id(running)}/hold", json.dumps({"reason": reason}).encode())


async def changes(connection: Connection, log: Log, numbers: range) -> None:
    """Make changes at an even rate, independent of their duration."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for turn, number in enumerate(numbers):
        await asyncio.sleep(began + turn / CHANGES_PER_SECOND - loop.time())
        mark = f"{number:0{_DIGITS}}"
        log.asked[mark.encode()] = time.perf_counter()
        await hold(connection, number, f"change {mark}")


async def measure(served: Served) -> None:
    await settle(served.port)
    log, half = Log(), CHANGES // 2
    alone = served.rss
    listeners = await all_listening(served.port, log)
    connection = await Connection.to(served.port, TOKEN)
    begin = served.rss
    await changes(connection, log, range(half))
    middle = served.rss
    await changes(connection, log, range(half, CHANGES))
    await asyncio.wait_for(log.complete.wait(), PATIENCE)
    end = served.rss
    for listener in listeners:
        assert listener.transport is not None
        listener.transport.close()
    name = f"stream: change to each of {LISTENERS:,} listeners"
    report(f"{name}, p50", percentile(log.delays, 50), "ms")
    report(f"{name}, p99", percentile(log.delays, 99), "ms", aim="100")
    report(f"{name}, longest", max(log.delays), "ms", aim="1,000")
    name = "stream: memory of the server"
    report(f"{name}, nobody listens", alone, "MiB")
    report(f"{name}, all listen", begin, "MiB", beside=f"{(begin - alone) * 1024 / LISTENERS:.0f} KiB each")
    report(f"{name}, after {half} changes", middle, "MiB")
    report(f"{name}, after {CHANGES} changes", end, "MiB", aim=f"{1.02 * middle:.3g}")


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with served_plane() as served:
        asyncio.run(measure(served))
