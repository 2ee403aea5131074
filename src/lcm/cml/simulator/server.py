"""Simulated CML servers on the network: one, or many in one process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from lcm.cml.simulator.http.app import make_simulator_app
from lcm.cml.simulator.http.control import make_control_app
from lcm.cml.simulator.listener import HttpListener, ReservedPort, ServerIdentity, make_server_identity
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.world import SimulatorSettings, World

if TYPE_CHECKING:
    from types import TracebackType


_BOOT_POLL_SECONDS = 0.02


class CmlSimulator:
    """A simulated server behind HTTPS. Port 0 selects any free port; `control_port` None means no control port.

    The port is reserved at construction, so its number is known before the server is switched on.
    """

    def __init__(
        self,
        settings: SimulatorSettings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        control_port: int | None = None,
        identity: ServerIdentity | None = None,
        account: SmartAccount | None = None,
    ) -> None:
        self.world = World(settings or SimulatorSettings(), account)
        self.identity = identity or make_server_identity()
        self._port = ReservedPort(host, port)
        self._app = make_simulator_app(self.world)
        self._serving = HttpListener(self._app, self._port, self.identity.context)
        self._control_port: ReservedPort | None = None
        self._control: HttpListener | None = None
        if control_port is not None:
            self._open_control(control_port)
        self._booting: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The base URL for CML clients."""
        host = f"[{self._port.host}]" if ":" in self._port.host else self._port.host
        return f"https://{host}:{self._port.number}"

    @property
    def control_url(self) -> str:
        """The base URL of the control port."""
        assert self._control_port is not None, "created without a control port"
        return f"http://127.0.0.1:{self._control_port.number}"

    async def start(self) -> None:
        """Switch the server on and open its control port."""
        if self._control is not None:
            await self._control.start()
        await self.power_on()

    async def stop(self) -> None:
        """Stop the server and release its ports."""
        parts = [self.power_off()] if self._control is None else [self.power_off(), self._control.stop()]
        await asyncio.gather(*parts)
        self._port.close()
        if self._control_port is not None:
            self._control_port.close()

    async def power_on(self) -> None:
        """Begin to boot. Returns at once; a server with a boot time of 0 is listening when this returns."""
        self.world.power_on()
        if self.world.boot.is_listening:
            await self._serving.start()
        elif self._booting is None:
            self._booting = asyncio.create_task(self._boot(), name="cml-simulator-boot")

    async def power_off(self) -> None:
        """Cut the power. Labs and license stay on the disk."""
        if self._booting is not None:
            self._booting.cancel()
            await asyncio.wait([self._booting])
            self._booting = None
        self.world.power_off()
        await self._serving.stop()

    async def replace_certificate(self) -> None:
        """Present a new certificate, as after the first boot or a reinstallation. Connections are closed."""
        self.identity = make_server_identity()
        was_serving = self._serving.is_running
        await self._serving.stop()
        self._serving = HttpListener(self._app, self._port, self.identity.context)
        if was_serving:
            await self._serving.start()

    async def _boot(self) -> None:
        while not self.world.boot.is_listening:  # noqa: ASYNC110 - speed and phase may change in the meantime
            await asyncio.sleep(_BOOT_POLL_SECONDS)
        await self._serving.start()
        self._booting = None

    def _open_control(self, port: int) -> None:
        try:
            self._control_port = ReservedPort("127.0.0.1", port)
        except Exception:
            self._port.close()
            raise
        self._control = HttpListener(make_control_app(self), self._control_port)


class SimulatorFarm:
    """Servers that share a certificate and a Smart Account.

    A server that is removed without deregistering its license stays in the account: that license has leaked.
    """

    def __init__(self, settings: SimulatorSettings | None = None, *, identity: ServerIdentity | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.identity = identity or make_server_identity()
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
        """The addresses of all servers."""
        return list(self._servers)

    async def add(self, address: str, *, version: str | None = None, control_port: int | None = None) -> CmlSimulator:
        """Add a server at an address and switch it on."""
        if address in self._servers:
            raise ValueError(f"there is already a simulated CML at {address}")
        settings = self.settings if version is None else replace(self.settings, version=version)
        server = CmlSimulator(settings, identity=self.identity, account=self.account, control_port=control_port)
        self._servers[address] = server
        await server.start()
        return server

    async def remove(self, address: str) -> None:
        """Remove a server with everything on it."""
        server = self._servers.pop(address, None)
        if server is not None:
            await server.stop()

    async def stop(self) -> None:
        """Stop all servers."""
        servers = list(self._servers.values())
        self._servers.clear()
        await asyncio.gather(*(server.stop() for server in servers))

    def base_url_of(self, address: str) -> str:
        """The base URL of the server at an address, for `lcm.cml.client.transport.CMLTransport`."""
        server = self._servers.get(address)
        if server is None:
            raise OSError(f"no machine at {address}")
        return server.url
