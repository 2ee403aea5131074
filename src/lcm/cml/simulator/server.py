"""One simulated CML server on the network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.cml.simulator.http.control import make_control_app
from lcm.cml.simulator.http.simulator_app import make_app
from lcm.cml.simulator.listener import ServerIdentity, make_identity
from lcm.cml.simulator.serving import Port, Serving
from lcm.cml.simulator.state.world import World, WorldSettings

if TYPE_CHECKING:
    from lcm.cml.simulator.state.license import SmartAccount

_LOOK_SECONDS = 0.02


class CmlSimulator:
    """A world behind HTTPS. Port 0 is any free one; `control_port` None means no control port.

    The port is ours from the making on, so that its number can be told before the machine is switched on.
    """

    def __init__(
        self,
        settings: WorldSettings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        control_port: int | None = None,
        identity: ServerIdentity | None = None,
        account: SmartAccount | None = None,
    ) -> None:
        self.world = World(settings or WorldSettings(), account)
        self.identity = identity or make_identity()
        self._port = Port(host, port)
        self._serving = Serving(make_app(self.world), self._port, self.identity.context)
        self._control_port: Port | None = None
        self._control: Serving | None = None
        if control_port is not None:
            self._open_control(control_port)
        self._booting: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where CML's clients find it."""
        host = f"[{self._port.host}]" if ":" in self._port.host else self._port.host
        return f"https://{host}:{self._port.number}"

    @property
    def control_url(self) -> str:
        """Where it is controlled."""
        assert self._control_port is not None, "made without a control port"
        return f"http://127.0.0.1:{self._control_port.number}"

    async def start(self) -> None:
        """Switch it on and open its control port."""
        if self._control is not None:
            await self._control.start()
        await self.power_on()

    async def stop(self) -> None:
        """End it and give its ports up."""
        parts = [self.power_off()] if self._control is None else [self.power_off(), self._control.stop()]
        await asyncio.gather(*parts)
        self._port.close()
        if self._control_port is not None:
            self._control_port.close()

    async def power_on(self) -> None:
        """Begin to boot; returns at once, except that a server without a boot time listens when this returns."""
        self.world.power_on()
        if self.world.boot.listens:
            await self._serving.start()
        elif self._booting is None:
            self._booting = asyncio.create_task(self._boot(), name="cml-simulator-boot")

    async def power_off(self) -> None:
        """Pull the plug; labs and licence stay on the disk."""
        if self._booting is not None:
            self._booting.cancel()
            await asyncio.wait([self._booting])
            self._booting = None
        self.world.power_off()
        await self._serving.stop()

    async def _boot(self) -> None:
        while not self.world.boot.listens:  # noqa: ASYNC110 - speed and phase may be changed meanwhile
            await asyncio.sleep(_LOOK_SECONDS)
        await self._serving.start()
        self._booting = None

    def _open_control(self, port: int) -> None:
        try:
            self._control_port = Port("127.0.0.1", port)
        except Exception:
            self._port.close()
            raise
        self._control = Serving(make_control_app(self), self._control_port)
