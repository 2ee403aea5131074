"""Many simulated servers in one process, found by the addresses of the machines they stand for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.cml.simulator.listener import ServerIdentity, make_identity
from lcm.cml.simulator.server import CmlSimulator
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.world import WorldSettings

if TYPE_CHECKING:
    from types import TracebackType


class SimulatorFarm:
    """Servers that share a certificate and an account at Cisco.

    A server that is removed without having given its licence back stays in the account: that is a leak.
    """

    def __init__(self, settings: WorldSettings | None = None, *, identity: ServerIdentity | None = None) -> None:
        self.settings = settings or WorldSettings()
        self.identity = identity or make_identity()
        self.account = SmartAccount()
        self._servers: dict[str, CmlSimulator] = {}

    async def __aenter__(self) -> SimulatorFarm:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __getitem__(self, address: str) -> CmlSimulator:
        return self._servers[address]

    def __contains__(self, address: object) -> bool:
        return address in self._servers

    @property
    def addresses(self) -> list[str]:
        """Where servers stand."""
        return list(self._servers)

    async def add(self, address: str, *, version: str | None = None, control_port: int | None = None) -> CmlSimulator:
        """Put a server at an address and switch it on."""
        if address in self._servers:
            raise ValueError(f"there is a simulated CML at {address} already")
        settings = self.settings if version is None else replace(self.settings, version=version)
        server = CmlSimulator(settings, identity=self.identity, account=self.account, control_port=control_port)
        self._servers[address] = server
        await server.start()
        return server

    async def remove(self, address: str) -> None:
        """The machine is gone, with all that was on it."""
        server = self._servers.pop(address, None)
        if server is not None:
            await server.stop()

    async def stop(self) -> None:
        """End all of them."""
        servers = list(self._servers.values())
        self._servers.clear()
        await asyncio.gather(*(server.stop() for server in servers))

    def dial(self, address: str) -> str:
        """The base URL of the server at an address, for `lcm.cml.client.transport.Transport`."""
        server = self._servers.get(address)
        if server is None:
            raise OSError(f"no machine at {address}")
        return server.url
