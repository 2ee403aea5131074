"""Simulated CML servers by address, in virtual time and without sockets, and connections that break."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from lcm.cml.client.labs import marker_in_title
from lcm.cml.client.tls import Insecure
from lcm.cml.client.transport import CMLTransport
from lcm.cml.simulator.http.app import make_simulator_app
from lcm.cml.simulator.state.world import SimulatorSettings, World
from tests.support.network.httpx_transport import HttpxTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cml.simulator.state.labs import Lab


class FakeCmlNetwork(httpx.AsyncBaseTransport):
    """Servers by address. One that is `down` refuses connections; `lost` requests are processed without a response."""

    def __init__(self) -> None:
        self.worlds: dict[str, World] = {}
        self.down: set[str] = set()
        self.lost: list[str] = []  # the next requests whose method and path end like this
        self.landing: float | None = None  # delay of the next import, even if its caller has given up
        self.silent = False  # whether no node addresses have been observed yet
        self.requests: list[str] = []
        self._wires: dict[str, httpx.ASGITransport] = {}

    def add(self, address: str) -> World:
        """Start a server. It replaces any server at the same address."""
        world = self.worlds[address] = World(SimulatorSettings(boot_seconds=0.0))
        world.power_on()
        self._wires[address] = httpx.ASGITransport(app=make_simulator_app(world))
        return world

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        line = f"{request.method} {request.url.path}"
        self.requests.append(f"{request.url.host} {line}")
        if request.url.host in self.down or request.url.host not in self.worlds:
            raise httpx.ConnectError("nothing is listening", request=request)
        if self.silent and line.endswith("/layer3_addresses"):
            return httpx.Response(200, json={}, request=request)
        if self.landing is not None and line.endswith("/import"):
            return await self._land(request)
        response = await self._wires[request.url.host].handle_async_request(request)
        for ending in self.lost:
            if line.endswith(ending):
                self.lost.remove(ending)
                raise httpx.ReadError("the response is lost", request=request)
        return response

    async def _land(self, request: httpx.Request) -> httpx.Response:
        """A slow server: it processes the request even if the connection is gone by then."""
        seconds, self.landing = self.landing or 0.0, None

        async def serve() -> httpx.Response:
            await asyncio.sleep(seconds)
            return await self._wires[request.url.host].handle_async_request(request)

        return await asyncio.shield(asyncio.ensure_future(serve()))

    def labs(self) -> list[Lab]:
        """All labs of all servers."""
        for world in self.worlds.values():
            world.time.advance()
        return [lab for world in self.worlds.values() for lab in world.labs.all]

    def markers(self) -> list[str]:
        """The markers of all labs that have one."""
        return sorted(marker for lab in self.labs() if (marker := marker_in_title(lab.plan.title)) is not None)

    def imports(self) -> int:
        """The number of labs ever created through the API."""
        return sum(world.labs.imported for world in self.worlds.values())


class ProcessLife:
    """A process that dies before or after its n-th mutating request."""

    def __init__(self) -> None:
        self.dead = False
        self.changes: list[str] = []
        self.requests: list[str] = []
        self.on_death: Callable[[], None] = lambda: None
        self._doom: tuple[str, int] | None = None

    def die(self, when: str, number: int) -> None:
        """Die `before` or `after` the n-th mutating request from now on; the next one is 0."""
        self._doom = (when, len(self.changes) + number)

    def doomed(self, when: str, number: int) -> bool:
        """Whether to die now."""
        return self._doom == (when, number)

    def kill(self) -> None:
        """The process sends nothing from now on."""
        self.dead = True
        self.on_death()


class MortalLink(httpx.AsyncBaseTransport):
    """A connection of a process that may die: reads pass, mutating requests are counted."""

    def __init__(self, inner: httpx.AsyncBaseTransport, life: ProcessLife) -> None:
        self._inner = inner
        self._life = life

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        life = self._life
        if life.dead:
            raise httpx.ConnectError("the process is dead", request=request)
        life.requests.append(f"{request.method} {request.url.path}")
        changes = request.method != "GET" and not request.url.path.endswith(("/authenticate", "/leadership", "/report"))
        number = len(life.changes)
        if changes:
            if life.doomed("before", number):
                life.kill()
                raise httpx.ConnectError("the process is dead", request=request)
            life.changes.append(f"{request.method} {_short(request.url.path)}")
        response = await self._inner.handle_async_request(request)
        if changes and life.doomed("after", number):
            life.kill()
        if life.dead:
            raise httpx.ReadError("the process is dead", request=request)
        return response


def cml_transport(servers: FakeCmlNetwork, life: ProcessLife) -> CMLTransport:
    """The transport of one process."""
    return CMLTransport(Insecure(), http=HttpxTransport(MortalLink(servers, life)))


def _short(path: str) -> str:
    """The path without prefix and ids."""
    last = path.rpartition("/")[2]
    return last if len(last) < 20 else "lab"
