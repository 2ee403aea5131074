"""The simulated world of `lcm up`: a cloud with a CML server on each machine, saved on disk."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider, Timing, persistence
from lcm.cloud.types import InstanceState
from lcm.cml.simulator.listener import make_server_identity
from lcm.cml.simulator.server import CmlSimulator
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.world import SimulatorSettings
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running
from lcm.wiring.simulated.server_files import ServerFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lcm.cloud.simulated.machine import Machine

log = structlog.get_logger(__name__)

IMAGE_NAME: Final = "cml-2.9.1-simulated"
SERVERS_FOLDER: Final = "simulated-cml"
_SYNC_SECONDS: Final = 0.5
_BASE_TIMING: Final = Timing(pending=(4.0, 9.0), stopping=(6.0, 15.0), shutting_down=(5.0, 12.0), metal_factor=6.0)


def scaled_timing(speed: float) -> Timing:
    """The delays of the cloud at this speed; request times are unchanged."""
    brisk = _BASE_TIMING
    return replace(
        brisk,
        pending=(brisk.pending[0] / speed, brisk.pending[1] / speed),
        stopping=(brisk.stopping[0] / speed, brisk.stopping[1] / speed),
        shutting_down=(brisk.shutting_down[0] / speed, brisk.shutting_down[1] / speed),
    )


class SimulatedWorldError(Exception):
    """The file of the simulated world cannot be used; the message gives the reason and a remedy."""


class SimulatedWorld(HostedService):
    """The cloud and its CML servers. Construct it within the running loop; overdue events are applied."""

    def __init__(self, path: Path, regions: Sequence[str], *, speed: float = 1.0, password: str = "") -> None:
        super().__init__("simulated world")
        self.cloud = (
            _load_cloud(path, speed) if path.exists() else SimulatedCloud(seed=_new_seed(), timing=scaled_timing(speed))
        )
        self.provider = SimulatedProvider(self.cloud)
        self.account = SmartAccount()
        self.servers: dict[str, CmlSimulator] = {}  # by machine id
        self._path = path
        self._kept = ServerFiles(path.with_name(SERVERS_FOLDER))
        self._settings = SimulatorSettings(
            speed=speed, boot_seconds=8.0, password=password or SimulatorSettings.password
        )
        self._identity = make_server_identity()
        self._addresses: dict[str, str] = {}  # machine id by address
        self._powered: set[str] = set()
        self._saved = ""
        self._tending: asyncio.Task[None] | None = None
        for region in regions:
            if region not in self.cloud.regions:
                self.cloud.add_region(region)
                self.cloud.add_image(region, IMAGE_NAME, created_at=clock.now())

    async def start(self) -> None:
        """Start the servers of running machines, and keep servers and machines in sync."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        await self._restore_servers()
        await self._tend()
        self._save()
        self._tending = self._spawn(keep_running("simulated world", self._tend_on), "tend")

    async def stop(self) -> None:
        """Save the world for the next start."""
        if self._tending is not None:
            await cancel_and_wait([self._tending])
        self._save()
        await asyncio.gather(*(server.stop() for server in self.servers.values()))
        self.servers.clear()

    def dial(self, address: str) -> str:
        """The base URL of the server at an address, for the CML transport."""
        machine_id = self._addresses.get(address)
        server = self.servers.get(machine_id) if machine_id is not None else None
        if server is None or machine_id not in self._powered:
            raise OSError(f"no machine at {address}")
        return server.url

    def running(self) -> list[tuple[str, Machine, CmlSimulator]]:
        """Region, machine and server of all running machines."""
        return [
            (region, machine, self.servers[machine.id])
            for region, machine in self._machines()
            if machine.state is InstanceState.RUNNING and machine.id in self.servers
        ]

    def _machines(self) -> Iterator[tuple[str, Machine]]:
        now = self.cloud.time()
        for name, region in self.cloud.regions.items():
            for machine in list(region.machines.values()):
                yield name, region.settle(machine, now)

    async def _restore_servers(self) -> None:
        """Restore the servers, with the power state that their machines have now."""
        machines = {machine.id: machine for _, machine in self._machines()}
        there = {name for name, machine in machines.items() if machine.state is not InstanceState.TERMINATED}
        self._kept.open(there)
        self._kept.restore_account(self.account)
        for machine_id in sorted(there):
            if not self._kept.has(machine_id):
                continue
            server = self._new_server(machines[machine_id])
            if not self._kept.restore(machine_id, server.world):
                await server.stop()
                continue
            if machines[machine_id].state is not InstanceState.RUNNING:
                server.world.power_off()
            self.servers[machine_id] = server

    def _new_server(self, machine: Machine) -> CmlSimulator:
        settings = replace(self._settings, kvm=machine.has_kvm)
        return CmlSimulator(settings, identity=self._identity, account=self.account)

    async def _tend_on(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_SECONDS)
            await self._tend()
            self._save()

    async def _tend(self) -> None:
        """Power servers on and off with their machines, and stop those whose machine is gone."""
        addresses: dict[str, str] = {}
        present = set()
        for _, machine in self._machines():
            if machine.state is InstanceState.TERMINATED:
                continue
            present.add(machine.id)
            if machine.state is InstanceState.RUNNING:
                addresses.update({ip: machine.id for ip in (machine.public_ip, machine.private_ip) if ip})
                await self._power_on(machine)
            elif machine.state is not InstanceState.PENDING:
                await self._power_off(machine.id)
        self._addresses = addresses
        for machine_id in self.servers.keys() - present:
            self._powered.discard(machine_id)
            await self.servers.pop(machine_id).stop()

    async def _power_on(self, machine: Machine) -> None:
        machine_id = machine.id
        if machine_id in self._powered:
            return
        self._powered.add(machine_id)
        server = self.servers.get(machine_id)
        if server is None:
            server = self.servers[machine_id] = self._new_server(machine)
            await server.start()
        else:
            await server.power_on()

    async def _power_off(self, machine_id: str) -> None:
        if machine_id in self._powered:
            self._powered.discard(machine_id)
            await self.servers[machine_id].power_off()

    def _save(self) -> None:
        """Save changes at once, so that a killed process finds its machines again."""
        picture = self.cloud.to_json()
        text = json.dumps(picture, sort_keys=True)
        if text != self._saved:
            persistence.save(self._path, picture)
            self._saved = text
        self._kept.save({name: server.world for name, server in self.servers.items()}, self.account)


def _load_cloud(path: Path, speed: float) -> SimulatedCloud:
    try:
        return SimulatedCloud.from_json(persistence.load(path), timing=scaled_timing(speed))
    except (ValueError, KeyError, TypeError) as error:
        raise SimulatedWorldError(
            f"{path} is not a simulated cloud of this version ({error}); remove it to start over"
        ) from None


def _new_seed() -> int:
    return clock.rng().randrange(2**31)
