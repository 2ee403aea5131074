"""The platform with 100, 1,000 and 10,000 workers: resync time, memory, CPU, and delay of requests.

Control plane and worker controller are processes of their own, on SQLite and a real etcd. The simulated cloud is a part
of the controller's process: what it costs is counted as the controller's.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.store import REGIONS
from benchmarks.support import process as proc
from benchmarks.support.cml_server import READY
from benchmarks.support.control_plane import TOKEN, Served, served_plane
from benchmarks.support.fleet import INSTALLATION, instance_id, record, worker_id
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report
from lcm.cml.simulator.state.world import SimulatorSettings
from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from typing import TypeAlias

    Asking: TypeAlias = Callable[[Served, "Controller", list[int], str], Awaitable[list[float]]]

SIZES = (100, 1_000, 10_000)
CYCLE = 30  # seconds between two resyncs, as by default; metrics are collected every second cycle
REST = 2 * CYCLE
RESYNCS = 5
CHANGED = 60  # workers that are stopped and then started
AT_REST = 1.0  # changes a second: one after the other
BETWEEN = 20  # changes between two resyncs
TOGETHER = 5.0  # changes a second, with many in progress at a time: what EC2 allows for starts, in as many regions
POLLERS = 1  # processes that poll CML servers
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
        """Send an order and return the response."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._one_at_a_time:
            self._process.stdin.write(f"{order}\n".encode())
            return json.loads(await asyncio.wait_for(self._process.stdout.readline(), PATIENCE))

    async def end(self) -> None:
        """Let it stop on its own."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


@asynccontextmanager
async def controller(plane: Served, count: int, *cml_port: str, shared: bool = False) -> AsyncIterator[Controller]:
    """A separate process; `cml_port` is that of the CML server of all workers. Reads may be shared with others."""
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
        "CML_POLLER_PROCESSES": str(POLLERS),
        "LOG_LEVEL": "error",
        **({"CML_READER_URL": f"http://127.0.0.1:{port}"} if shared else {}),
    }
    command = [sys.executable, "-m", "benchmarks.support.controller", str(count), *cml_port]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe)
    started = Controller(process, port)
    try:
        yield started
    finally:
        await started.end()


async def resyncs(started: Controller, count: int) -> None:
    """List, sweep and evaluate everything, several times."""
    passes, busy = await started.order("passes"), proc.cpu_seconds(started.pid)
    took = sorted([await started.order("resync") for _ in range(RESYNCS)])
    busy = (proc.cpu_seconds(started.pid) - busy) / RESYNCS
    made = (await started.order("passes") - passes) / RESYNCS
    assert made >= count
    beside = f"{made:,.0f} passes, {busy:.3g} s of processor each"
    report(_name(count, "full resync, median"), took[RESYNCS // 2], "s", aim="2.5", beside=beside)
    report(_name(count, "full resync, longest"), took[-1], "s")


async def at_rest(plane: Served, started: Controller, count: int) -> None:
    """Two cycles without requests."""
    calls = await started.order("calls")
    controller_busy, plane_busy = proc.cpu_seconds(started.pid), proc.cpu_seconds(plane.pid)
    await asyncio.sleep(REST)
    controller_busy = (proc.cpu_seconds(started.pid) - controller_busy) * 100 / REST
    plane_busy = (proc.cpu_seconds(plane.pid) - plane_busy) * 100 / REST
    after = await started.order("calls")
    made = {name: (number - calls.get(name, 0)) * CYCLE / REST for name, number in sorted(after.items())}
    listed = ", ".join(f"{name} {number:.3g}" for name, number in made.items() if number)
    report(_name(count, "CPU at rest, controller"), controller_busy, "% core", aim="12")
    report(_name(count, "CPU at rest, control plane"), plane_busy, "% core")
    report(_name(count, f"AWS calls in {CYCLE} s"), sum(made.values()), "calls", beside=listed)


async def change(plane: Served, started: Controller, numbers: list[int], command: str, pace: float) -> list[float]:
    """Milliseconds from each request until the EC2 call for it, at the given rate per second."""
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
    """Wait until all of them have this status."""
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
    """Make changes one after the other, between two resyncs."""
    took: list[float] = []
    for begin in range(0, len(numbers), BETWEEN):
        await started.order("resync")  # the next one is a whole cycle away
        took += await change(plane, started, numbers[begin : begin + BETWEEN], command, AT_REST)
    return took


async def together(plane: Served, started: Controller, numbers: list[int], command: str) -> list[float]:
    """Make changes while many others are in progress."""
    return await change(plane, started, numbers, command, TOGETHER)


async def stop_and_start(plane: Served, started: Controller, count: int, how: Asking) -> list[float]:
    """Stop some workers, and start them again later."""
    # A step that alternates between regions: each has its own limits.
    step = count // CHANGED // len(REGIONS) * len(REGIONS) + 1
    numbers = [turn * step % count for turn in range(CHANGED)]
    took = await how(plane, started, numbers, "stop")
    await until(plane, numbers, "STOPPED")
    await started.order("resync")
    took += await how(plane, started, numbers, "start")
    await until(plane, numbers, "RUNNING")
    return took


async def people(plane: Served, started: Controller, count: int) -> None:
    """Delay of requests: at rest, under many other requests, and under continuous resyncs as well."""

    async def go_on() -> None:
        while True:
            await started.order("resync")

    name = "a person's change to the cloud call"
    took = await stop_and_start(plane, started, count, at_rest_only)
    report(_name(count, f"{name}, p50"), percentile(took, 50), "ms")
    report(_name(count, f"{name}, p99"), percentile(took, 99), "ms", aim="100")
    took = await stop_and_start(plane, started, count, together)
    report(_name(count, f"{name}, five a second, p99"), percentile(took, 99), "ms", aim="400")
    resyncing = asyncio.create_task(go_on())
    took = await stop_and_start(plane, started, count, together)
    resyncing.cancel()
    report(_name(count, f"{name}, in resyncs, p50"), percentile(took, 50), "ms")
    report(_name(count, f"{name}, in resyncs, p99"), percentile(took, 99), "ms", aim="400")


@contextmanager
def cml_server() -> Iterator[str]:
    """The port of one CML server for all workers, each of which reaches it at a loopback address of its own."""
    port = str(free_ports(1)[0])
    command = [sys.executable, "-m", "benchmarks.support.cml_server", port]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == READY
            yield port
        finally:
            process.kill()


def _name(count: int, what: str) -> str:
    return f"scale {count:,}: {what}"


def scrape(started: Controller, count: int) -> None:
    """Size and time of a scrape."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{started.port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read()
    took = time.perf_counter() - began
    beside = f"{text.count(b'worker_id='):,} series of workers, {len(text) / 2**20:.3g} MiB"
    report(_name(count, "scrape of the controller"), took, "s", aim="0.5", beside=beside)


async def without_cml(plane: Served, count: int) -> float:
    """Everything but CML, which is simulated inside the controller without a network. Returns its memory at rest."""
    async with controller(plane, count) as started:
        report(_name(count, "startup sweep"), await started.order("settle"), "s")
        await resyncs(started, count)
        await at_rest(plane, started, count)
        resting = proc.rss(started.pid)
        await people(plane, started, count)
        await asyncio.to_thread(scrape, started, count)
        report(_name(count, "memory, controller"), proc.rss(started.pid), "MiB", aim="300")
        report(_name(count, "memory, control plane"), plane.rss, "MiB")
        return resting


async def with_cml(plane: Served, count: int, cml_port: str, without: float) -> None:
    """CML servers are polled over HTTPS once a minute. `without` is the memory of a controller without them."""
    async with controller(plane, count, cml_port) as started:
        await started.order("two rounds")  # the first one signs in to each server
        calls, polled = await started.order("cml"), await started.order("polled")
        busy = await asyncio.to_thread(_cpu_seconds_of_all, started.pid)
        alone = proc.cpu_seconds(started.pid)
        await asyncio.sleep(REST)
        alone = (proc.cpu_seconds(started.pid) - alone) * 100 / REST
        busy = (await asyncio.to_thread(_cpu_seconds_of_all, started.pid) - busy) * 100 / REST
        calls, polled = (await started.order("cml") - calls) / REST, await started.order("polled") - polled
        made = f"{_polled(polled, count)}, {calls:,.0f} calls/s"
        report(_name(count, "CPU at rest with CML polling, all processes"), busy, "% core", aim="75", beside=made)
        report(_name(count, "CPU at rest with CML polling, controller"), alone, "% core")
        everything = sum(proc.rss(pid) for pid in proc.family(started.pid))
        report(_name(count, "memory with CML polling, all processes"), everything, "MiB")
        report(_name(count, "more memory with CML polling"), everything - without, "MiB", aim="250")
        report(_name(count, "memory with CML polling, controller"), proc.rss(started.pid), "MiB")


async def several_replicas(plane: Served, count: int, cml_port: str, replicas: int) -> None:
    """The same with a leader and standbys that share the reads."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(controller(plane, count, cml_port, shared=True))
        await leader.order("lead")  # before there is another that could win the election
        all_of_them = {"leader": leader}
        for number in range(1, replicas):
            started = await stack.enter_async_context(controller(plane, count, cml_port, shared=True))
            all_of_them["standby" if replicas == 2 else f"standby {number}"] = started
        await leader.order(f"shared by {replicas}")
        await leader.order("two rounds")
        polled = {name: await one.order("polled") for name, one in all_of_them.items()}
        busy = {name: await asyncio.to_thread(_cpu_seconds_of_all, one.pid) for name, one in all_of_them.items()}
        await asyncio.sleep(REST)
        for name, one in all_of_them.items():
            used = (await asyncio.to_thread(_cpu_seconds_of_all, one.pid) - busy[name]) * 100 / REST
            made = _polled(await one.order("polled") - polled[name], count)
            what = f"CPU at rest, {replicas} replicas, {name} with its pollers"
            report(_name(count, what), used, "% core", beside=made)


def _polled(polled: float, count: int) -> str:
    return f"{polled:,.0f} of {count:,} servers polled in {REST} s"


def _cpu_seconds_of_all(pid: int) -> float:
    return sum(proc.cpu_seconds(each) for each in proc.family(pid))


def main(sizes: Sequence[int] = SIZES) -> None:
    env = {
        "LCM_CONTROLLER_TOKEN": CONTROLLER_TOKEN,
        "LCM_INSTALLATION_ID": INSTALLATION,
        # Idle checks read telemetry, and the one CML server here would return that of all workers.
        "IDLE_DETECTION_INTERVAL": "86400",
    }
    without = {}
    for count in sizes:
        with served_plane(record, count, **env) as plane:
            without[count] = asyncio.run(without_cml(plane, count))
    for count in sizes:
        with served_plane(record, count, **env) as plane, cml_server() as cml_port:
            asyncio.run(with_cml(plane, count, cml_port, without[count]))
    for replicas in (2, 3):
        with served_plane(record, sizes[-1], **env) as plane, cml_server() as cml_port:
            asyncio.run(several_replicas(plane, sizes[-1], cml_port, replicas))
