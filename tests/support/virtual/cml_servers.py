"""Simulated CML servers under addresses, reached in virtual time and without a socket; and connections that die."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from lcm.cml.client.labs import marker_in_title
from lcm.cml.client.tls import Insecure
from lcm.cml.client.transport import CMLTransport
from lcm.cml.simulator.http.app import make_simulator_app
from lcm.cml.simulator.state.world import SimulatorSettings, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cml.simulator.state.labs import Lab


class LabServers(httpx.AsyncBaseTransport):
    """Servers by address. One that is `down` refuses connections; `lost` requests are done and never answered."""

    def __init__(self) -> None:
        self.worlds: dict[str, World] = {}
        self.down: set[str] = set()
        self.lost: list[str] = []  # the next requests whose method and path end so
        self.landing: float | None = None  # after so many seconds the next import is done, whoever has given up on it
        self.silent = False  # whether no address of any node was seen yet
        self.asked: list[str] = []
        self._wires: dict[str, httpx.ASGITransport] = {}

    def add(self, address: str) -> World:
        """A server that is up. Where one was before, another machine is now."""
        world = self.worlds[address] = World(SimulatorSettings(boot_seconds=0.0))
        world.power_on()
        self._wires[address] = httpx.ASGITransport(app=make_simulator_app(world))
        return world

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        line = f"{request.method} {request.url.path}"
        self.asked.append(f"{request.url.host} {line}")
        if request.url.host in self.down or request.url.host not in self.worlds:
            raise httpx.ConnectError("nobody listens", request=request)
        if self.silent and line.endswith("/layer3_addresses"):
            return httpx.Response(200, json={}, request=request)
        if self.landing is not None and line.endswith("/import"):
            return await self._land(request)
        response = await self._wires[request.url.host].handle_async_request(request)
        for ending in self.lost:
            if line.endswith(ending):
                self.lost.remove(ending)
                raise httpx.ReadError("the answer is lost", request=request)
        return response

    async def _land(self, request: httpx.Request) -> httpx.Response:
        """A slow server: what it was sent it does, also when the connection is gone by then."""
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
        """Labs that were ever made through the API."""
        return sum(world.labs.imported for world in self.worlds.values())


class Life:
    """A process that dies before or after its n-th change of anything."""

    def __init__(self) -> None:
        self.dead = False
        self.changes: list[str] = []
        self.on_death: Callable[[], None] = lambda: None
        self._doom: tuple[str, int] | None = None

    def die(self, when: str, number: int) -> None:
        """`before` or `after` so many changes from now on; the next one is 0."""
        self._doom = (when, len(self.changes) + number)

    def doomed(self, when: str, number: int) -> bool:
        """Whether this is the moment."""
        return self._doom == (when, number)

    def kill(self) -> None:
        """Nothing is heard of the process from now on."""
        self.dead = True
        self.on_death()


class MortalLink(httpx.AsyncBaseTransport):
    """A connection of a process that may die: reads pass, changes are counted."""

    def __init__(self, inner: httpx.AsyncBaseTransport, life: Life) -> None:
        self._inner = inner
        self._life = life

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        life = self._life
        if life.dead:
            raise httpx.ConnectError("the process is dead", request=request)
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


def cml_transport(servers: LabServers, life: Life) -> CMLTransport:
    """The way of one process to the servers."""
    return CMLTransport(Insecure(), wire=lambda _context: MortalLink(servers, life))


def _short(path: str) -> str:
    """Without prefix and ids."""
    last = path.rpartition("/")[2]
    return last if len(last) < 20 else "lab"
