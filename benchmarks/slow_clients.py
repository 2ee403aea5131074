"""Anonymous clients that want to stop a control plane: 2,000 slow ones for a minute, and an upload of 100 MB.

Other clients ask at the same pace before and meanwhile; their times are compared within one run. The slow clients are
a process of their own: they send a byte a second, of headers or of a body, and come back when they are thrown out.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress

from benchmarks.support import process as proc
from benchmarks.support.control_plane import TOKEN, Served, record, served_plane
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report

SLOW_CLIENTS = 2_000
SECONDS = 60.0
BEFORE_SECONDS = 30.0
CLIENTS = 4
PAUSE = 0.05
WORKERS = 1_000
UPLOAD = 100_000_000
CHUNK = bytes(64 * 1024)
_FILES = 4_096
_HEAD = b"POST /api/workers HTTP/1.1\r\nHost: lcm\r\nContent-Length: 1000\r\n\r\n"
_ENDLESS_HEAD = b"GET /api/workers HTTP/1.1\r\nHost: lcm\r\nX-Slow: "


async def ask_for(port: int, seconds: float) -> list[float]:
    """The times in ms of clients that ask for a page of workers, each after a pause, and for /health in turn."""
    until = time.monotonic() + seconds

    async def client() -> list[float]:
        connection, took = await Connection.to(port, TOKEN), []
        while time.monotonic() < until:
            for path in ("/api/workers?limit=20", "/health"):
                began = time.perf_counter()
                await connection.ask("GET", path)
                took.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(PAUSE)
        await connection.close()
        return took

    return [each for found in await asyncio.gather(*(client() for _ in range(CLIENTS))) for each in found]


async def trouble(port: int, count: int, seconds: float) -> tuple[int, int]:
    """Slow clients; returns how many connections were opened, and how many the server closed."""
    until, opened, closed = time.monotonic() + seconds, 0, 0

    async def client(number: int) -> None:
        nonlocal opened, closed
        await asyncio.sleep(number / count * 5.0)
        while time.monotonic() < until:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened, is_closed = opened + 1, False
                writer.write(_HEAD if number % 2 else _ENDLESS_HEAD)
                while time.monotonic() < until and not (is_closed := _is_closed(reader, writer)):
                    writer.write(b"x")
                    await asyncio.sleep(1.0)
                closed += is_closed
                writer.close()

    await asyncio.gather(*(client(number) for number in range(count)))
    return opened, closed


def _is_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the server has ended the connection; a connection that was reset has no end of its input."""
    return reader.at_eof() or reader.exception() is not None or writer.transport.is_closing()


def upload(port: int) -> tuple[float, bytes]:
    """Send 100 MB without a token; returns the seconds until the response began, and its status line."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        began = time.perf_counter()
        head = f"POST /api/workers HTTP/1.1\r\nHost: lcm\r\nContent-Length: {UPLOAD}\r\n\r\n"
        connection.sendall(head.encode())
        connection.setblocking(False)
        while True:
            try:
                received = connection.recv(4096)
                return time.perf_counter() - began, received.partition(b"\r\n")[0]
            except BlockingIOError:
                pass
            except ConnectionError:
                return time.perf_counter() - began, b"connection closed"
            with suppress(BlockingIOError, ConnectionError):
                connection.send(CHUNK)


async def measure_uploads(plane: Served) -> None:
    before = proc.peak(plane.pid)
    asking = asyncio.create_task(ask_for(plane.port, 5.0))
    answers = [await asyncio.to_thread(upload, plane.port) for _ in range(20)]
    report("100 MB without a token: refused within", max(seconds for seconds, _ in answers), "s", aim="1")
    report("100 MB without a token: peak of memory", proc.peak(plane.pid) - before, "MiB", aim="10")
    report("100 MB without a token: others, slowest", max(await asking), "ms")
    statuses = {status.decode() for _, status in answers}
    assert statuses <= {"HTTP/1.1 413 Request Entity Too Large", "connection closed"}, statuses


async def measure(plane: Served) -> None:
    await ask_for(plane.port, 3.0)
    before = await ask_for(plane.port, BEFORE_SECONDS)
    memory = plane.rss
    command = (sys.executable, "-m", "benchmarks.slow_clients", str(plane.port))
    attack = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    await asyncio.sleep(6.0)  # all of them are there
    during = await ask_for(plane.port, SECONDS)
    answer, _ = await attack.communicate()
    opened, closed = map(int, answer.split())
    ratio = percentile(during, 99) / percentile(before, 99)
    report("slow clients: others' p99 before", percentile(before, 99), "ms")
    report(f"slow clients: others' p99 beside {SLOW_CLIENTS:,}", percentile(during, 99), "ms")
    report("slow clients: others' p99 beside them, as a multiple", ratio, "x", aim="2")
    report("slow clients: connections opened", opened, "", beside=f"{closed:,} closed by the server")
    report("slow clients: memory of the control plane", plane.rss - memory, "MiB")
    await measure_uploads(plane)


def main() -> None:
    with served_plane(record, WORKERS) as plane:
        asyncio.run(measure(plane))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    found = asyncio.run(trouble(int(sys.argv[1]), SLOW_CLIENTS, SECONDS + 10))
    print(*found)
