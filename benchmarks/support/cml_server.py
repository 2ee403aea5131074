"""`python -m benchmarks.support.cml_server PORT`: a CML server that answers every read at once.

It takes the bodies of its responses from a simulated server when it starts, and then sends them without computing
anything: ten thousand servers must not cost more than the controller that is measured. It listens on all addresses,
because every worker reaches it at a loopback address of its own.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from lcm.cli.processes.services import raise_descriptor_limit
from lcm.cml.client.tls import Insecure, make_tls_context
from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from lcm.cml.simulator.listener import make_server_identity
from lcm.core.hosting import run_process
from lcm.http.network import NetworkTransport
from lcm.http.transport import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

READY = "ready"
_PATHS = (
    "system_information",
    "labs?show_all=true",
    "system_stats",
    "licensing",
    "system_health",
    "node_definitions",
)
_BACKLOG = 1024


async def canned_responses() -> dict[bytes, bytes]:
    """The responses of a simulated server, by the first line of the request."""
    settings = SimulatorSettings(speed=1000.0, boot_seconds=0)
    simulator = CmlSimulator(settings)
    await simulator.start()
    try:
        async with aclosing(NetworkTransport(idle_seconds=10.0, max_idle=1)) as http:
            account = f'{{"username": "{settings.username}", "password": "{settings.password}"}}'.encode()
            token = await _read(http, simulator.url, "POST", "authenticate", {}, account)
            found = {_line("POST", "authenticate"): _response(token)}
            headers = {"authorization": f"Bearer {token.decode().strip().strip(chr(34))}"}
            for path in _PATHS:
                found[_line("GET", path)] = _response(await _read(http, simulator.url, "GET", path, headers, None))
            return found
    finally:
        await simulator.stop()


async def _read(
    http: NetworkTransport, url: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    sent = {**headers, "content-type": "application/json"} if body else headers
    tls = make_tls_context(Insecure())
    response = await http.send(HttpRequest(method, f"{url}/api/v0/{path}", sent, body, tls=tls))
    content = b"".join([chunk async for chunk in response.chunks()])
    assert response.status == 200, (path, content)
    return content


def _line(method: str, path: str) -> bytes:
    return f"{method} /api/v0/{path} HTTP/1.1".encode()


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class CannedServer(asyncio.Protocol):
    """One connection. Requests are small and come one at a time, each in one piece or two."""

    def __init__(self, responses: Mapping[bytes, bytes]) -> None:
        self._responses = responses
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or (head.startswith(b"POST") and not body.endswith(b"}")):
            return
        self._received = b""
        self._transport.write(self._responses[head.partition(b"\r\n")[0]])


async def serve(port: int) -> None:
    responses = await canned_responses()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: CannedServer(responses), "0.0.0.0", port, ssl=make_server_identity().context, backlog=_BACKLOG
    )
    print(READY, flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    raise_descriptor_limit()
    run_process(serve(int(sys.argv[1])))
