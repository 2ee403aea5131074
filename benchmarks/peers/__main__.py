"""`python -m benchmarks.peers [queue] [reconcile] [api]`: our figures beside those of peers, and their ratios.

The peers are the work queue of client-go (Kubernetes' own, from Debian's source package), the queueing of Kopf, and a
handler of FastAPI on SQLite without anything else. They are installed below `.peers/`, which is not committed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import queue, reconcile
from benchmarks.api import CLIENTS, PAGE
from benchmarks.peers import install
from benchmarks.store import REGIONS, waits
from benchmarks.support.control_plane import TOKEN, served_plane
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report
from benchmarks.support.process import cpu_seconds
from lcm.core.logs import configure_logging
from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import ROOT, wait_until

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 1_000
CYCLES = 300_000
RESOURCES = 10_000
ROUNDS = 3
EACH = 50  # pages of each client
WARM_UP = 5


def compare(name: str, ours: float, peer: str, theirs: float, unit: str) -> None:
    """One line: our figure, and the peer's with the ratio."""
    report(name, ours, unit, beside=f"{peer} {theirs:,.3g} {unit}, ratio {ours / theirs:.3g}")


def compare_queues() -> None:
    """Add, get and done of the same keys, one after the other, with the queue's metrics on."""
    program = install.build_client_go()
    theirs = max(_number(str(program), str(KEYS), str(CYCLES)) for _ in range(ROUNDS))
    keys = [f"w-{number}" for number in range(KEYS)] * (CYCLES // KEYS)
    ours = max(asyncio.run(queue.nobody_waits(keys)) for _ in range(ROUNDS))
    compare(f"queue add+get+done, {KEYS:,} keys", ours, "client-go", theirs, "/s")


def compare_reconciles() -> None:
    """The same number of resources, each of which needs nothing. Neither side has a cluster or a network."""
    python, script = install.kopf_environment(), ROOT / "benchmarks" / "peers" / "kopf_queueing.py"
    theirs = max(_number(str(python), str(script), str(RESOURCES)) for _ in range(ROUNDS))
    reconcile.RESOURCES = RESOURCES
    ours = max(asyncio.run(reconcile.one_resync()) for _ in range(ROUNDS))
    compare(f"no-op reconciles of {RESOURCES:,}", ours, "Kopf", theirs, "/s")


def compare_pages() -> None:
    """A filtered page of 100 workers from 10,000, with 8 clients; both servers run on uvloop and httptools."""
    with served_plane() as plane:
        ours = asyncio.run(_pages(plane.port, plane.pid))
        theirs = _bare_pages(plane.folder)
    name = f"API page of {PAGE} from 10,000, {CLIENTS} clients"
    for part, unit, mine, other in zip(
        ("", ", p50", ", p99", ", CPU"), ("/s", "ms", "ms", "ms"), ours, theirs, strict=True
    ):
        compare(f"{name}{part}", mine, "bare FastAPI + sqlite", other, unit)


def _bare_pages(folder: Path) -> tuple[float, float, float, float]:
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "benchmarks.peers.bare_api", str(folder / "bare.db"), str(port)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            wait_until(lambda: _listens(port), "the bare server is up")
            return asyncio.run(_pages(port, process.pid))
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        asyncio.run(_first_page(port))
    except OSError:
        return False
    return True


async def _first_page(port: int) -> None:
    connection = await Connection.to(port, TOKEN)
    await connection.ask("GET", _path(0))
    await connection.close()


def _path(number: int) -> str:
    return f"/api/workers?status=RUNNING,STOPPED&limit={PAGE}&aws_region={REGIONS[number % len(REGIONS)]}"


async def _pages(port: int, pid: int) -> tuple[float, float, float, float]:
    """Pages per second, milliseconds at p50 and p99, and milliseconds of the server's CPU for each."""
    connections = [await Connection.to(port, TOKEN) for _ in range(CLIENTS)]

    async def page(number: int) -> None:
        content = await connections[number // EACH].ask("GET", _path(number))
        assert content.count(b'"aws_region"') == PAGE

    await waits(lambda number: page(number // WARM_UP * EACH), CLIENTS, WARM_UP)
    busy, began = cpu_seconds(pid), time.perf_counter()
    took = await waits(page, CLIENTS, EACH)
    seconds, busy = time.perf_counter() - began, cpu_seconds(pid) - busy
    for connection in connections:
        await connection.close()
    return len(took) / seconds, percentile(took, 50), percentile(took, 99), busy * 1000 / len(took)


def _number(*command: str) -> float:
    """What a program prints on its last line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise install.PeerMissingError(f"{command[0]} failed:\n{done.stderr}")
    return float(done.stdout.splitlines()[-1])


ALL = {"queue": compare_queues, "reconcile": compare_reconciles, "api": compare_pages}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no comparison {', '.join(unknown)}; must be one of {', '.join(ALL)}", file=sys.stderr)
        return 2
    configure_logging("error", "console")
    failed = 0
    for name in names or ALL:
        try:
            ALL[name]()
        except install.PeerMissingError as error:
            failed = 1
            print(f"{name}: not compared: {error}", file=sys.stderr)
    return failed


sys.exit(main(sys.argv[1:]))
