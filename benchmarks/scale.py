"""The platform with 100, 1,000 and 10,000 workers: a resync, memory, processor, and how soon people are heard.

Control plane and worker controller are processes of their own, on SQLite and a real etcd. The simulated cloud is a part
of the controller's process: what it costs is counted as the controller's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.store import REGIONS
from benchmarks.support import process as proc
from benchmarks.support.control_plane import TOKEN, Served, served_plane
from benchmarks.support.fleet import INSTALLATION, instance_id, record, worker_id
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, say
from lcm.cml.simulator.state.world import SimulatorSettings
from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import ROOT, LcmProcess, wait_until

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    Asking: TypeAlias = Callable[[Served, "Controller", list[int], str], Awaitable[list[float]]]

SIZES = (100, 1_000, 10_000)
CYCLE = 30  # seconds between two resyncs, as by default; figures are gathered every second cycle
REST = 2 * CYCLE
RESYNCS = 5
CHANGED = 60  # workers that people stop, and then start again
AT_REST = 1.0  # changes a second: one after the other
BETWEEN = 20  # changes between two resyncs, none of which is under way meanwhile
TOGETHER = 5.0  # changes a second, each while many others are under way: what EC2 allows for starts, in as many regions
PATIENCE = 600.0
CONTROLLER_TOKEN = "controller-token-for-benchmarks-0123456789"


class Controller:
    """A worker controller that takes orders, one at a time; see `benchmarks.support.controller`."""

    def __init__(self, process: Process, port: int) -> None:
        self.port = port
        self._process = process
        self._one_at_a_time = asyncio.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def order(self, order: str) -> Any:
        """Its answer to an order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._one_at_a_time:
            self._process.stdin.write(f"{order}\n".encode())
            return json.loads(await asyncio.wait_for(self._process.stdout.readline(), PATIENCE))

    async def end(self) -> None:
        """Let it stop by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


@asynccontextmanager
async def controller(plane: Served, count: int, *url: str) -> AsyncIterator[Controller]:
    """A process of its own; `url` is where the CML servers of all workers are asked."""
    port = free_ports(1)[0]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ETCD_", "LCM_"))},
        "ETCD_ENDPOINTS": plane.etcd,
        "CONTROL_PLANE_API_URL": f"http://127.0.0.1:{plane.port}",
        "LCM_CONTROLLER_TOKEN": CONTROLLER_TOKEN,
        "WORKER_CONTROLLER_PORT": str(port),
        "CML_DEFAULT_PASSWORD": SimulatorSettings.password,
        "LCM_DATA_DIR": str(plane.folder / "controller"),
        "RECONCILE_INTERVAL": str(CYCLE),
        "METRICS_COLLECT_INTERVAL": str(2 * CYCLE),
        "LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "benchmarks.support.controller", str(count), *url]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe)
    started = Controller(process, port)
    try:
        yield started
    finally:
        await started.end()


async def resyncs(started: Controller, count: int) -> None:
    """Everything is listed, swept and looked at, several times."""
    passes, busy = await started.order("passes"), proc.cpu_seconds(started.pid)
    took = sorted([await started.order("resync") for _ in range(RESYNCS)])
    busy = (proc.cpu_seconds(started.pid) - busy) / RESYNCS
    made = (await started.order("passes") - passes) / RESYNCS
    assert made >= count
    beside = f"{made:,.0f} passes, {busy:.3g} s of processor each"
    say(_name(count, "full resync, median"), took[RESYNCS // 2], "s", aim="10", beside=beside)
    say(_name(count, "full resync, longest"), took[-1], "s")


async def at_rest(plane: Served, started: Controller, count: int) -> None:
    """Two cycles in which nobody asks for anything."""
    calls = await started.order("calls")
    controller_busy, plane_busy = proc.cpu_seconds(started.pid), proc.cpu_seconds(plane.pid)
    await asyncio.sleep(REST)
    controller_busy = (proc.cpu_seconds(started.pid) - controller_busy) * 100 / REST
    plane_busy = (proc.cpu_seconds(plane.pid) - plane_busy) * 100 / REST
    after = await started.order("calls")
    made = {name: (number - calls.get(name, 0)) * CYCLE / REST for name, number in sorted(after.items())}
    listed = ", ".join(f"{name} {number:.3g}" for name, number in made.items() if number)
    say(_name(count, "CPU at rest, controller"), controller_busy, "% core", aim="25")
    say(_name(count, "CPU at rest, control plane"), plane_busy, "% core")
    say(_name(count, f"AWS calls in {CYCLE} s"), sum(made.values()), "calls", beside=listed)


async def change(plane: Served, started: Controller, numbers: list[int], command: str, pace: float) -> list[float]:
    """Milliseconds from each request of a person, so many a second, until EC2 was called for it."""
    connection = await Connection.to(plane.port, TOKEN)
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked: dict[str, float] = {}
    for turn, number in enumerate(numbers):
        await asyncio.sleep(began + turn / pace - loop.time())
        asked[instance_id(number)] = loop.time()
        await connection.ask("POST", f"/api/workers/{worker_id(number)}/{command}", b"{}")
    await connection.close()
    arrived: dict[str, float] = {}
    while len(arrived) < len(asked):
        assert loop.time() - began < PATIENCE, f"{command}: only {len(arrived)} of {len(asked)} arrived"
        await asyncio.sleep(0.5)
        arrived |= await started.order("arrivals")
    return [(arrived[one] - moment) * 1000 for one, moment in asked.items()]


async def until(plane: Served, numbers: list[int], status: str) -> None:
    """All of them are in this status."""
    connection = await Connection.to(plane.port, TOKEN)
    left = list(numbers)
    while left:
        worker = json.loads(await connection.ask("GET", f"/api/workers/{worker_id(left[-1])}"))
        if worker["status"] == status:
            left.pop()
        else:
            await asyncio.sleep(0.5)
    await connection.close()


async def at_rest_only(plane: Served, started: Controller, numbers: list[int], command: str) -> list[float]:
    """Changes one after the other, each between two resyncs."""
    took: list[float] = []
    for begin in range(0, len(numbers), BETWEEN):
        await started.order("resync")  # the next is a whole cycle away
        took += await change(plane, started, numbers[begin : begin + BETWEEN], command, AT_REST)
    return took


async def together(plane: Served, started: Controller, numbers: list[int], command: str) -> list[float]:
    """Changes that are asked for while many others are under way."""
    return await change(plane, started, numbers, command, TOGETHER)


async def stop_and_start(plane: Served, started: Controller, count: int, how: Asking) -> list[float]:
    """People stop some workers and start them again some time later."""
    # A step that takes turns between the regions: each has limits of its own.
    step = count // CHANGED // len(REGIONS) * len(REGIONS) + 1
    numbers = [turn * step % count for turn in range(CHANGED)]
    took = await how(plane, started, numbers, "stop")
    await until(plane, numbers, "STOPPED")
    await started.order("resync")
    took += await how(plane, started, numbers, "start")
    await until(plane, numbers, "RUNNING")
    return took


async def people(plane: Served, started: Controller, count: int) -> None:
    """How soon they are heard: at rest, while others ask for much, and while one resync follows the other as well."""

    async def go_on() -> None:
        while True:
            await started.order("resync")

    name = "a person's change to the cloud call"
    took = await stop_and_start(plane, started, count, at_rest_only)
    say(_name(count, f"{name}, p50"), percentile(took, 50), "ms")
    say(_name(count, f"{name}, p99"), percentile(took, 99), "ms", aim="250")
    took = await stop_and_start(plane, started, count, together)
    say(_name(count, f"{name}, five a second, p99"), percentile(took, 99), "ms")
    resyncing = asyncio.create_task(go_on())
    took = await stop_and_start(plane, started, count, together)
    resyncing.cancel()
    say(_name(count, f"{name}, in resyncs, p50"), percentile(took, 50), "ms")
    say(_name(count, f"{name}, in resyncs, p99"), percentile(took, 99), "ms", aim="1,000")


@contextmanager
def cml_server(folder: Path) -> Iterator[str]:
    """One simulated CML server, which stands for those of all workers."""
    port, control = free_ports(2)
    options = ("--port", str(port), "--control-port", str(control), "--speed", "1000")
    process = LcmProcess(folder, "cml", "cml-simulator", *options, env={}).start()
    try:
        wait_until(lambda: "Ctrl-C" in process.log_path.read_text(), "the CML server is up")
        yield f"https://127.0.0.1:{port}"
    finally:
        process.end()


def _name(count: int, what: str) -> str:
    return f"scale {count:,}: {what}"


def scrape(started: Controller, count: int) -> None:
    """What Prometheus gets."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{started.port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read()
    took = time.perf_counter() - began
    beside = f"{text.count(b'worker_id='):,} series of workers, {len(text) / 2**20:.3g} MiB"
    say(_name(count, "scrape of the controller"), took, "s", beside=beside)


async def without_cml(plane: Served, count: int) -> None:
    """Everything but CML, whose servers answer inside the controller without a wire."""
    async with controller(plane, count) as started:
        say(_name(count, "start-up sweep"), await started.order("settle"), "s")
        await resyncs(started, count)
        await at_rest(plane, started, count)
        await people(plane, started, count)
        await asyncio.to_thread(scrape, started, count)
        say(_name(count, "memory, controller"), proc.rss(started.pid), "MiB", aim="400")
        say(_name(count, "memory, control plane"), plane.rss, "MiB")


async def with_cml(plane: Served, count: int, url: str) -> None:
    """CML servers are asked over HTTPS, once a minute."""
    async with controller(plane, count, url) as started:
        await started.order("second round")  # in the first each server is signed in to
        asked = await started.order("cml")
        busy = proc.cpu_seconds(started.pid)
        await asyncio.sleep(REST)
        busy = (proc.cpu_seconds(started.pid) - busy) * 100 / REST
        calls = (await started.order("cml") - asked) / REST
        say(_name(count, "CPU at rest with CML polling, controller"), busy, "% core", beside=f"{calls:,.0f} calls/s")
        say(_name(count, "memory with CML polling, controller"), proc.rss(started.pid), "MiB")


def main() -> None:
    env = {
        "LCM_CONTROLLER_TOKEN": CONTROLLER_TOKEN,
        "LCM_INSTALLATION_ID": INSTALLATION,
        # Idleness is found out by reading telemetry, and the one CML server here would have that of all workers.
        "IDLE_DETECTION_INTERVAL": "86400",
    }
    for count in SIZES:
        with served_plane(record, count, **env) as plane:
            asyncio.run(without_cml(plane, count))
    for count in SIZES:
        with served_plane(record, count, **env) as plane, cml_server(plane.folder) as url:
            asyncio.run(with_cml(plane, count, url))
