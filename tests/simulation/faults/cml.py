"""Faults of CML servers and of the labs on them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcm.cml.simulator.state.labs import Lab
    from tests.simulation.world.platform import Platform
    from tests.support.virtual.fake_cml import FakeServer


class HarmToCml:
    """Injects faults into CML servers."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def heal(self) -> None:
        """End all faults."""
        cml = self._platform.cml
        cml.lose_replies = cml.land_late = cml.sluggish = 0.0
        cml.refuse_imports = 0
        cml.license_server_silent = False
        cml.down.clear()
        cml.refusing.clear()
        cml.zones.clear()
        cml.long_lists.clear()
        cml.without_kvm.clear()
        self._platform.ledger.sick_servers.clear()
        for server in cml.by_machine.values():
            server.seconds = 0.1
            if server.license.registration == "SUSPENDED":
                server.license = replace(server.license, registration="COMPLETED")

    def _server(self, which: float) -> FakeServer | None:
        machine = self._machine(which)
        return None if machine is None else self._platform.cml.by_machine[machine]

    def _machine(self, which: float | str) -> str | None:
        """The instance of a server by its place in the list, or by the name of its worker."""
        machines = sorted(self._platform.cml.by_machine)
        if isinstance(which, str):
            found = (each["instance_id"] for each in self._platform.ledger.records.values() if each["name"] == which)
            return next((each for each in found if each in machines), None)
        return machines[int(which * len(machines))] if machines else None

    async def _cml_zone(self, which: float, hours: float) -> str:
        """The clock of a server has another zone, and its events do not say so."""
        machine = self._machine(which)
        if machine is None:
            return "no server"
        self._platform.cml.zones[machine] = timedelta(hours=hours)
        return machine

    async def _cml_long_list(self, which: float) -> str:
        """A server has kept its events for years."""
        machine = self._machine(which)
        if machine is None:
            return "no server"
        self._platform.cml.long_lists.add(machine)
        return machine

    async def _no_kvm(self, instance_type: str, seconds: float) -> None:
        """CML cannot use KVM on this instance type for a while, although EC2 offers it."""
        self._platform.cml.without_kvm.add(instance_type)
        await asyncio.sleep(seconds)
        self._platform.cml.without_kvm.discard(instance_type)

    async def _cml_refuses(self, which: float, seconds: float, watched: bool) -> str:
        """A server answers 401 to every authenticated call. In a quiet world that must show."""
        machine = self._machine(which)
        if machine is None:
            return "no server"
        self._platform.cml.refusing.add(machine)
        await asyncio.sleep(seconds)
        if watched:
            self._platform.ledger.must_not_be_ready(machine)
        self._platform.cml.refusing.discard(machine)
        return machine

    async def _cml_certificate(self, which: float) -> str:
        """A server is reinstalled: it presents another certificate, until a user trusts it nobody signs in."""
        machine = self._machine(which)
        if machine is None or not self._platform.ledger.certificate_changes(machine):
            return "none fits"
        server = self._platform.cml.by_machine[machine]
        server.certificate = f"{int(server.certificate[:8], 16) + 1:08x}" * 8
        return machine

    async def _cml_slow(self, which: float | str, seconds: float, late: float = 9.0) -> str:
        """A server responds, after so many seconds each time."""
        machine = self._machine(which)
        if machine is None:
            return "no server"
        server, sick = self._platform.cml.by_machine[machine], self._platform.ledger.sick_servers
        server.seconds = late
        sick.add(machine)
        await asyncio.sleep(seconds)
        server.seconds = 0.1
        sick.discard(machine)
        return "it is fast again"

    async def _cml_sluggish(self, late: float, seconds: float) -> None:
        self._platform.cml.sluggish = late
        await asyncio.sleep(seconds)
        self._platform.cml.sluggish = 0.0

    async def _odd_license(self, which: float, seconds: float) -> str:
        """CML reports an unrecognized license status."""
        server = self._server(which)
        if server is None or server.license.registration != "COMPLETED":
            return "none fits"
        server.license = replace(server.license, registration="SUSPENDED")
        await asyncio.sleep(seconds)
        if server.license.registration == "SUSPENDED":  # otherwise it was deregistered in the meantime
            server.license = replace(server.license, registration="COMPLETED")
        return "it can be understood again"

    async def _license_server_silent(self, seconds: float) -> None:
        """Cisco's license service does not respond: CML keeps trying, and reports neither success nor failure."""
        self._platform.cml.license_server_silent = True
        await asyncio.sleep(seconds)
        self._platform.cml.license_server_silent = False

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
        """A user reinstalls a server: it is no longer registered, but Cisco still counts the license."""
        servers = sorted(self._platform.cml.by_machine)
        if not servers:
            return "no server"
        return self._platform.cml.forget_license(servers[int(which * len(servers))])

    async def _lab_lands_late(self, seconds: float) -> None:
        self._platform.cml.land_late = seconds

    async def _lab_refused(self, which: float) -> None:
        self._platform.cml.refuse_imports = 1

    def _labs(self) -> list[tuple[str, Lab]]:
        cml = self._platform.cml
        return [(machine, lab) for machine in sorted(cml.by_machine) for lab in cml.labs.labs_of(machine)]

    async def _lab_vanishes(self, which: float) -> str:
        """A user deletes one of our labs."""
        found = self._labs()
        if not found:
            return "no lab"
        machine, lab = found[int(which * len(found))]
        self._platform.cml.labs.remove(machine, lab)
        return lab.plan.title

    async def _lab_stopped(self, which: float) -> str:
        """A user stops one of our labs: it must not be restarted."""
        found = self._labs()
        if not found:
            return "no lab"
        machine, lab = found[int(which * len(found))]
        self._platform.ledger.lablets.touched.add(lab.id)
        self._platform.cml.labs.stop(machine, lab)
        return lab.plan.title
