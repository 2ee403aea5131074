"""HTTP calls: our client beside aiohttp and httpx, and servers on uvloop with httptools beside asyncio with h11.

All in one run: the figures differ between machines, their ratios much less. The other side is always another process,
so that only one side is measured.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import uvicorn
import uvloop

from benchmarks.support.http import Connection
from benchmarks.support.output import report
from benchmarks.support.process import cpu_seconds, rss
from lcm.cml.client.tls import Insecure, make_tls_context
from lcm.cml.simulator.listener import make_server_identity
from lcm.http.network import NetworkTransport
from lcm.http.protocol import HttpProtocol
from lcm.http.transport import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

CALLS = 3000
ROUNDS = 3
KEPT = 1000
SERVER_CALLS = 5000
_BODY = b'{"version": "2.9.1+build.7", "ready": true}'
_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def _app(_scope: dict[str, Any], _receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})


def serve(loop: str, protocol: str, tls: str) -> None:
    """Serve in this process, and print the port."""
    http: Any = HttpProtocol if protocol == "httptools" else "h11"
    config = uvicorn.Config(
        _app,
        host="127.0.0.1",
        port=0,
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=600,
    )
    config.load()
    config.ssl = make_server_identity().context if tls == "tls" else None

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    with asyncio.Runner(loop_factory=_LOOPS[loop]) as runner:
        runner.run(Server(config).serve())


@contextmanager
def served(loop: str, protocol: str, tls: str) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its process id and port."""
    command = [sys.executable, "-m", "benchmarks.http_calls", loop, protocol, tls]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _ours(url: str, close_every: int) -> float:
    context = make_tls_context(Insecure())
    async with aclosing(NetworkTransport(idle_seconds=60.0, max_idle=10)) as http:

        async def call(keep: bool) -> None:
            request = HttpRequest("GET", url, {"Accept": "*/*"}, tls=context, keep=keep)
            response = await http.send(request)
            assert b"".join([chunk async for chunk in response.chunks()]) == _BODY
            await response.aclose()

        return await _measured(call, close_every)


async def _aiohttp(url: str, close_every: int) -> float:
    connector = aiohttp.TCPConnector(ssl=make_tls_context(Insecure()), keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def call(keep: bool) -> None:
            async with session.get(url, headers={} if keep else {"Connection": "close"}) as response:
                assert await response.read() == _BODY

        return await _measured(call, close_every)


async def _httpx(url: str, close_every: int) -> float:
    async with httpx.AsyncClient(verify=make_tls_context(Insecure()), trust_env=False) as client:

        async def call(keep: bool) -> None:
            response = await client.get(url, headers={} if keep else {"Connection": "close"})
            assert response.content == _BODY

        return await _measured(call, close_every)


async def _measured(call: Callable[[bool], Awaitable[None]], close_every: int) -> float:
    """CPU milliseconds per call; with `close_every`, every such call is the last of its connection."""
    for _ in range(50):
        await call(True)
    began = time.process_time()
    for number in range(CALLS):
        await call(not close_every or number % close_every != 0)
    return (time.process_time() - began) / CALLS * 1000


CLIENTS = {
    "ours, uvloop": (_ours, "uvloop"),
    "aiohttp, uvloop": (_aiohttp, "uvloop"),
    "httpx, asyncio": (_httpx, "asyncio"),
}


def measure_clients(url: str) -> None:
    """The same calls by each client, in turn."""
    for title, close_every in (("kept alive", 0), ("with a handshake every 3rd", 3)):
        best = dict.fromkeys(CLIENTS, float("inf"))
        for _ in range(ROUNDS):
            for name, (client, loop) in CLIENTS.items():
                with asyncio.Runner(loop_factory=_LOOPS[loop]) as runner:
                    best[name] = min(best[name], runner.run(client(url, close_every)))
        for name, value in best.items():
            ratio = f"{value / best['ours, uvloop']:.1f} times ours" if not name.startswith("ours") else ""
            report(f"HTTPS GET {title}: CPU, {name}", value, "ms", beside=ratio)


async def _keep_open(url: str) -> float:
    """KiB per kept TLS connection."""
    transports = [NetworkTransport(idle_seconds=600.0, max_idle=1) for _ in range(KEPT)]
    context = make_tls_context(Insecure())
    before = rss(os.getpid())
    for http in transports:
        response = await http.send(HttpRequest("GET", url, {}, tls=context))
        assert b"".join([chunk async for chunk in response.chunks()]) == _BODY
        await response.aclose()
    assert all(http.idle_count for http in transports)
    used = (rss(os.getpid()) - before) * 1024 / KEPT
    for http in transports:
        await http.aclose()
    return used


async def _ask_server(port: int, pid: int) -> float:
    connections = [await Connection.to(port, "x") for _ in range(8)]

    async def ask(connection: Connection, times: int) -> None:
        for _ in range(times):
            await connection.ask("GET", "/")

    await asyncio.gather(*(ask(each, 50) for each in connections))
    began = cpu_seconds(pid)
    await asyncio.gather(*(ask(each, SERVER_CALLS // 8) for each in connections))
    used = cpu_seconds(pid) - began
    for each in connections:
        await each.close()
    return used / SERVER_CALLS * 1e6


def measure_servers() -> None:
    """The same trivial app on both stacks."""
    best = {("uvloop", "httptools"): float("inf"), ("asyncio", "h11"): float("inf")}
    for _ in range(ROUNDS):
        for loop, protocol in best:
            with served(loop, protocol, "plain") as (pid, port):
                best[loop, protocol] = min(best[loop, protocol], asyncio.run(_ask_server(port, pid)))
    ours = best["uvloop", "httptools"]
    report("server CPU per request, uvloop and httptools", ours, "µs")
    before = best["asyncio", "h11"]
    report("server CPU per request, asyncio and h11", before, "µs", beside=f"{before / ours:.1f} times ours")


def main() -> None:
    with served("uvloop", "httptools", "tls") as (_, port):
        url = f"https://127.0.0.1:{port}/api/v0/system_information"
        measure_clients(url)
        for loop in ("uvloop", "asyncio"):  # the smaller first: memory that was given back is used again
            with asyncio.Runner(loop_factory=_LOOPS[loop]) as runner:
                report(f"memory of a TLS connection that is kept, {loop}", runner.run(_keep_open(url)), "KiB")
    measure_servers()


if __name__ == "__main__":
    serve(*sys.argv[1:])
