"""Labs on the simulated CML servers: the real labs client, without a network between it and the servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lcm.cml.client.labs import marker_in_title
from lcm.cml.client.responses import CMLResponse
from lcm.cml.errors import CMLInvalidRequestError, CMLNotFoundError, CMLNotReadyError, CMLOutcomeUnknownError
from lcm.cml.simulator.http.labs import lab_payload
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.world import SimulatorSettings, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lcm.cloud.simulated.machine import Machine
    from lcm.cml.simulator.state.labs import Lab
    from lcm.cml.types import Credentials
    from tests.simulation.invariants.during import Ledger
    from tests.simulation.world.cloud_and_cml import Cml

R = TypeVar("R")
_ADDRESS_SECONDS = 20.0
_SETTINGS = SimulatorSettings(boot_seconds=0.0)


class LabWorlds:
    """The labs on the disks of machines. They stop when their machine stops."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._worlds: dict[str, World] = {}
        self._address: dict[str, str | None] = {}

    def of(self, machine: Machine) -> World:
        """The labs of a running machine. It has another address after each start."""
        world = self._worlds.get(machine.id)
        if world is None:
            world = self._worlds[machine.id] = World(_SETTINGS, read=self._time)
            world.power_on()
        elif self._address[machine.id] != machine.public_ip:
            world.power_off()
            world.power_on()
        self._address[machine.id] = machine.public_ip
        world.time.advance()
        return world

    def labs_of(self, machine_id: str) -> list[Lab]:
        """All labs on a disk."""
        world = self._worlds.get(machine_id)
        return [] if world is None else world.labs.all

    def stop(self, machine_id: str, lab: Lab) -> None:
        """A user stops a lab without LCM."""
        self._worlds[machine_id].labs.stop(lab, lab.owner)

    def remove(self, machine_id: str, lab: Lab) -> None:
        """A user removes a lab without LCM, in any state."""
        world = self._worlds[machine_id]
        world.labs.restore([each for each in world.labs.all if each is not lab], world.labs.imported)


class LabSession:
    """`lcm.cml.client.session.CMLSession` of one node."""

    def __init__(self, cml: Cml, ledger: Ledger, node: str) -> None:
        self._cml = cml
        self._ledger = ledger
        self._node = node

    async def call(
        self,
        operation: str,
        address: str,
        credentials: Credentials,
        method: str,
        path: str,
        *,
        read: Callable[[CMLResponse], R],
        query: Mapping[str, str] | None = None,
        text: str | None = None,
        timeout: float = 10.0,
    ) -> R:
        """Call a server. An accepted request continues even if its caller is gone."""
        machine = await self._cml.reach(address, operation, credentials)
        if operation == "import_lab" and self._cml.land_late:
            await self._land_late(machine, address, query or {}, text or "", timeout)
        content = self._serve(machine, address, method, path, query or {}, text)
        await asyncio.sleep(self._cml.rng.uniform(0.0, 0.05))
        if self._cml.loses_reply():
            cause = "the connection broke"
            raise CMLNotReadyError(address, cause) if method == "GET" else CMLOutcomeUnknownError(address, cause)
        return read(CMLResponse(200, content))

    def trust(self, address: str, certificate: str) -> None:
        """Accept only this certificate."""
        self._cml.trust(address, certificate)

    def forget(self, address: str) -> None:
        """Do nothing: no sessions are kept."""

    async def _land_late(
        self, machine: Machine, address: str, query: Mapping[str, str], text: str, timeout: float
    ) -> NoReturn:
        """A slow server: the request completes after its caller has given up."""
        late, self._cml.land_late = self._cml.land_late, 0.0
        self._cml.later(late, lambda: self._serve(machine, address, "POST", "/import", query, text))
        await asyncio.sleep(min(late, timeout))
        raise CMLOutcomeUnknownError(address, "the response timed out")

    def _serve(
        self, machine: Machine, address: str, method: str, path: str, query: Mapping[str, str], text: str | None
    ) -> Any:
        world = self._cml.labs.of(machine)
        try:
            return self._answer(world, method, path.strip("/").split("/"), query, text or "")
        except SimulatorApiError as refusal:
            raise (CMLNotFoundError if refusal.code == 404 else CMLInvalidRequestError)(
                address, refusal.description
            ) from None

    def _answer(self, world: World, method: str, way: list[str], query: Mapping[str, str], text: str) -> Any:
        owner = world.sessions.accounts[_SETTINGS.username]
        if way == ["labs"]:
            return [lab.id for lab in world.labs.all]
        if way == ["import"] and self._cml.refuse_imports:
            self._cml.refuse_imports -= 1
            raise SimulatorApiError(400, "Topology is not valid")
        if way == ["import"]:
            lab = world.import_lab(text, owner, query["title"])
            marker = marker_in_title(lab.plan.title) or ""
            alike = sum(marker_in_title(each.plan.title) == marker for each in world.labs.all)
            self._ledger.lab_made(marker, alike, self._node)
            return {"id": lab.id, "warnings": []}
        lab = world.labs.get(way[1])
        if len(way) == 2:
            return lab_payload(lab) if method == "GET" else world.labs.remove(lab)
        if method == "PUT":
            change = {"start": world.labs.start, "stop": world.labs.stop, "wipe": world.labs.wipe}[way[2]]
            if self._cml.sluggish:
                return self._cml.later(self._cml.sluggish, lambda: change(lab, owner))
            return change(lab, owner)
        if way[2] == "layer3_addresses":
            return _addresses(lab, world.time.now)
        return _LOOKS[way[2]](lab)


_LOOKS: dict[str, Callable[[Lab], Any]] = {
    "check_if_converged": lambda lab: lab.converged,
    "nodes": lambda lab: [
        {"id": node.id, "label": node.plan.label, "node_definition": node.plan.definition, "state": node.state}
        for node in lab.nodes.values()
    ],
}


def _addresses(lab: Lab, now: float) -> dict[str, Any]:
    """Nodes get addresses some time after they have booted."""
    seen = {"label": "eth0", "ip4": ["10.0.0.7"], "ip6": []}
    return {
        node.id: {"interfaces": {"52:54:00:00:00:01": seen}}
        for node in lab.nodes.values()
        if node.state == "BOOTED" and now > node.due + _ADDRESS_SECONDS
    }
