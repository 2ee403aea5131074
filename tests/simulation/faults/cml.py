"""What goes wrong with CML servers and the labs on them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcm.cml.simulator.state.labs import Lab
    from tests.simulation.world.platform import Platform
    from tests.support.virtual.fake_cml import FakeServer


class HarmToCml:
    """The adversary's hand in CML servers."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def heal(self) -> None:
        """Everything is as it should be from now on."""
        cml = self._platform.cml
        cml.lose_replies = cml.land_late = cml.sluggish = 0.0
        cml.refuse_imports = 0
        cml.down.clear()
        for server in cml.by_machine.values():
            server.seconds = 0.1
            if server.licence.registration == "SUSPENDED":
                server.licence = replace(server.licence, registration="COMPLETED")

    def _server(self, which: float) -> FakeServer | None:
        servers = sorted(self._platform.cml.by_machine)
        return self._platform.cml.by_machine[servers[int(which * len(servers))]] if servers else None

    async def _cml_slow(self, which: float, seconds: float) -> str:
        server = self._server(which)
        if server is None:
            return "no server"
        server.seconds = 9.0
        await asyncio.sleep(seconds)
        server.seconds = 0.1
        return "it is fast again"

    async def _cml_sluggish(self, late: float, seconds: float) -> None:
        self._platform.cml.sluggish = late
        await asyncio.sleep(seconds)
        self._platform.cml.sluggish = 0.0

    async def _odd_licence(self, which: float, seconds: float) -> str:
        """CML says something of its licence that nobody has heard of."""
        server = self._server(which)
        if server is None or server.licence.registration != "COMPLETED":
            return "none fits"
        server.licence = replace(server.licence, registration="SUSPENDED")
        await asyncio.sleep(seconds)
        if server.licence.registration == "SUSPENDED":  # else it was given back meanwhile
            server.licence = replace(server.licence, registration="COMPLETED")
        return "it can be understood again"

    async def _cml_down(self, which: float, seconds: float) -> str:
        servers = sorted(self._platform.cml.by_machine)
        if not servers:
            return "no server"
        machine = servers[int(which * len(servers))]
        self._platform.cml.down.add(machine)
        await asyncio.sleep(seconds)
        self._platform.cml.down.discard(machine)
        return machine

    async def _cml_loses(self, share: float, seconds: float) -> None:
        self._platform.cml.lose_replies = share
        await asyncio.sleep(seconds)
        self._platform.cml.lose_replies = 0.0

    async def _cml_forgets(self, which: float) -> str:
        """Somebody sets a server up anew: it is no longer registered, though Cisco still counts the licence."""
        servers = sorted(self._platform.cml.by_machine)
        if not servers:
            return "no server"
        return self._platform.cml.forget_licence(servers[int(which * len(servers))])

    async def _lab_lands_late(self, seconds: float) -> None:
        self._platform.cml.land_late = seconds

    async def _lab_refused(self, which: float) -> None:
        self._platform.cml.refuse_imports = 1

    def _labs(self) -> list[tuple[str, Lab]]:
        cml = self._platform.cml
        return [(machine, lab) for machine in sorted(cml.by_machine) for lab in cml.labs.labs_of(machine)]

    async def _lab_vanishes(self, which: float) -> str:
        """Somebody removes a lab of ours by hand."""
        found = self._labs()
        if not found:
            return "no lab"
        machine, lab = found[int(which * len(found))]
        self._platform.cml.labs.remove(machine, lab)
        return lab.plan.title

    async def _lab_stopped(self, which: float) -> str:
        """Somebody stops a lab of ours by hand: that is left to them."""
        found = self._labs()
        if not found:
            return "no lab"
        machine, lab = found[int(which * len(found))]
        self._platform.ledger.lablets.touched.add(lab.id)
        self._platform.cml.labs.stop(machine, lab)
        return lab.plan.title
