"""Whoever makes things go wrong: each fault begins at its moment and is undone when its time is over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lcm.cloud.errors import CloudError
from lcm.cloud.simulated.faults import (
    Action,
    Disturb,
    FailPage,
    HideNew,
    Impair,
    LagReads,
    LoseReplies,
    Outage,
    Refuse,
    Throttle,
)
from lcm.cloud.types import HealthKind, InstanceState, LaunchParameters
from tests.simulation.network import Trouble
from tests.simulation.script import NODES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cloud.simulated.machines import Machine
    from lcm.cml.simulator.labs import Lab
    from tests.simulation.platform import Platform
    from tests.simulation.script import Event, Script
    from tests.support.cml_fake import FakeServer

_CALM = Trouble()
_SETTLED = 400.0  # an instance that is younger may not be seen for other reasons


class Adversary:
    """Strikes, and heals."""

    def __init__(self, platform: Platform, script: Script) -> None:
        self._platform = platform
        self._script = script

    async def do(self, event: Event) -> str:
        """Let it happen; returns when it is undone, or at once if there is nothing to undo."""
        method: Callable[..., Awaitable[str | None]] = getattr(self, "_" + event.kind.replace("-", "_"))
        return await method(**event.facts) or "done"

    async def heal(self) -> None:
        """Everything is as it should be from now on, and everybody is there."""
        platform = self._platform
        for line in platform.network.lines():
            line.cut, line.trouble = False, _CALM
            line.break_watches()
        for region in platform.ec2.regions.values():
            region.faults.outage_until = 0.0
            region.faults.hide_seconds = region.faults.read_lag = 0.0
            region.faults.lost_replies = 0
            region.faults.failing_pages.clear()
            region.faults.refusals.clear()
            region.faults.hold_transitions = False
        platform.cml.lose_replies = platform.cml.land_late = 0.0
        platform.network.deaf_to = ""
        platform.cml.refuse_imports = 0
        platform.cml.sluggish = 0.0
        platform.cml.down.clear()
        platform.ec2.odd.clear()
        platform.ec2.addressless.clear()
        for server in platform.cml.by_machine.values():
            server.hanging.clear()
            server.failures.clear()
            server.seconds = 0.1
            if server.licence.registration == "SUSPENDED":
                server.licence = replace(server.licence, registration="COMPLETED")
        if platform.nodes["plane"].dead:
            await platform.start_plane()
        for name in NODES:
            if platform.nodes[name].dead:
                await self._start(name)

    # Processes

    async def _crash(self, node: str, steps: int, down: float) -> str:
        victim = self._platform.nodes[node]
        if victim.dead:
            return "dead already"
        victim.doomed_at = victim.steps + 1 + steps
        while not victim.dead:
            await asyncio.sleep(0.5)
        await asyncio.sleep(down)
        await self._start(node)
        return f"{node} died and is back"

    async def _start(self, node: str) -> None:
        if self._platform.nodes[node].dead:
            await self._platform.start_controller(
                node, rate=self._script.rates[node], offset=self._script.offsets[node]
            )

    async def _crash_plane(self, steps: int, down: float) -> str:
        victim = self._platform.nodes["plane"]
        if victim.dead:
            return "dead already"
        victim.doomed_at = victim.steps + 1 + steps
        while not victim.dead:
            await asyncio.sleep(0.5)
        await asyncio.sleep(down)
        if self._platform.nodes["plane"].dead:
            await self._platform.start_plane()
        return "the control plane died and is back"

    async def _pause(self, node: str, seconds: float) -> None:
        self._platform.nodes[node].pause(seconds)

    async def _pause_plane(self, seconds: float) -> None:
        self._platform.nodes["plane"].pause(seconds)

    async def _resign(self, node: str) -> str:
        controller = self._platform.controllers.get(node)
        if controller is None or self._platform.nodes[node].dead:
            return "nobody there"
        return f"resigned: {self._platform.nodes[node].call(controller.resign)}"

    # Lines

    async def _cut(self, line: tuple[str, str], seconds: float) -> None:
        broken = self._platform.network.line(*line)
        broken.cut = True
        await asyncio.sleep(seconds)
        broken.cut = False
        broken.break_watches()

    async def _flaky(self, line: tuple[str, str], seconds: float, there: float, back: float, slowest: float) -> None:
        bad = self._platform.network.line(*line)
        bad.trouble = Trouble(there, back, slowest=slowest)
        await asyncio.sleep(seconds)
        bad.trouble = _CALM

    async def _etcd_outage(self, seconds: float) -> None:
        lines = [self._platform.network.line(node, "etcd") for node in (*NODES, "plane")]
        for line in lines:
            line.cut = True
        await asyncio.sleep(seconds)
        for line in lines:
            line.cut = False
            line.break_watches()

    async def _break_watches(self, node: str) -> None:
        self._platform.network.line(node, "etcd").break_watches()

    async def _compact(self, which: float) -> str | None:
        state = self._platform.etcd.state
        with suppress(ValueError):
            self._platform.etcd.do(state.compact, state.revision)
            return None
        return "nothing to compact"

    # AWS

    def _strike(self, region: str, fault: Any) -> None:
        self._platform.ec2.strike(region, fault)

    async def _aws_outage(self, region: str, seconds: float) -> None:
        self._strike(region, Outage(seconds))

    async def _throttle(self, operation: str, times: int, region: str) -> None:
        self._strike(region, Throttle(operation, times))

    async def _refuse(self, operation: str, code: str, times: int, region: str) -> None:
        self._strike(region, Refuse(operation, code, times))

    async def _lose_replies(self, times: int, silent: bool, region: str) -> None:
        self._strike(region, LoseReplies(times, silent))

    async def _hide_new(self, seconds: float, lasting: float, region: str) -> None:
        self._strike(region, HideNew(seconds))
        await asyncio.sleep(lasting)
        self._strike(region, HideNew(0))

    async def _lag_reads(self, seconds: float, lasting: float, region: str) -> None:
        self._strike(region, LagReads(seconds))
        await asyncio.sleep(lasting)
        self._strike(region, LagReads(0))

    async def _fail_page(self, times: int, region: str) -> None:
        self._strike(region, FailPage(1, times))

    def _machines(self) -> list[tuple[str, Machine]]:
        now = self._platform.ec2.time()
        return [
            (name, region.settle(machine, now))
            for name, region in self._platform.ec2.regions.items()
            for machine in region.machines.values()
        ]

    async def _outside(self, which: float, action: Action, states: tuple[InstanceState, ...]) -> str:
        fit = [(region, machine) for region, machine in self._machines() if machine.state in states]
        if not fit:
            return "none fits"
        region, machine = fit[int(which * len(fit))]
        with suppress(CloudError):
            self._strike(region, Disturb(action, machine.id))
        return machine.id

    async def _stop_outside(self, which: float) -> str:
        return await self._outside(which, Action.STOP, (InstanceState.RUNNING,))

    async def _start_outside(self, which: float) -> str:
        return await self._outside(which, Action.START, (InstanceState.STOPPED,))

    async def _terminate_outside(self, which: float) -> str:
        return await self._outside(which, Action.TERMINATE, (InstanceState.RUNNING, InstanceState.STOPPED))

    async def _launch_outside(self, region: str, ours: bool) -> str:
        """Somebody launches a server by hand and tags it so that discovery finds it."""
        place = self._platform.ec2.region(region)
        parameters = LaunchParameters(
            region=region,
            client_token=f"by-hand-{place.serials}",
            image_id=next(iter(place.images)),
            instance_type="t3.medium",
            subnet_id="subnet-a",
            security_group_ids=(),
            key_name=None,
            tags={"Name": f"by-hand-{place.serials}", "cml-managed": "true"} if ours else {"Name": "nobody's"},
        )
        return place.run_instance(parameters, self._platform.ec2.time()).id

    async def _impair(self, which: float) -> str:
        fit = [(region, machine) for region, machine in self._machines() if machine.state is InstanceState.RUNNING]
        if not fit:
            return "none fits"
        region, machine = fit[int(which * len(fit))]
        with suppress(CloudError):
            self._strike(region, Impair(HealthKind.INSTANCE_IMPAIRED, machine.id))
        return machine.id

    async def _freeze_ec2(self, region: str, seconds: float) -> None:
        """No instance gets any further for a while: pending stays pending, stopping stays stopping."""
        faults = self._platform.ec2.regions[region].faults
        faults.hold_transitions = True
        await asyncio.sleep(seconds)
        faults.hold_transitions = False

    async def _odd_state(self, which: float, seconds: float) -> str:
        """EC2 shows an instance in a state that nobody knows."""
        fit = [machine for _, machine in self._machines() if machine.state is not InstanceState.TERMINATED]
        if not fit:
            return "none fits"
        machine = fit[int(which * len(fit))]
        self._platform.ec2.odd.add(machine.id)
        await asyncio.sleep(seconds)
        self._platform.ec2.odd.discard(machine.id)
        return machine.id

    async def _no_address(self, which: float, seconds: float) -> str:
        """EC2 shows an instance without its addresses."""
        fit = [machine for _, machine in self._machines() if machine.state is not InstanceState.TERMINATED]
        if not fit:
            return "none fits"
        machine = fit[int(which * len(fit))]
        self._platform.ec2.addressless.add(machine.id)
        await asyncio.sleep(seconds)
        self._platform.ec2.addressless.discard(machine.id)
        return machine.id

    async def _vanish(self, which: float) -> str:
        """EC2 knows nothing of an instance any more, as an hour after its end."""
        now = self._platform.ec2.time()
        fit = [
            machine
            for region in self._platform.ec2.regions.values()
            for machine in region.machines.values()
            if now - machine.launched_at > _SETTLED
        ]
        if not fit:
            return "none fits"
        machine = fit[int(which * len(fit))]
        machine.state, machine.due, machine.ended_at = InstanceState.TERMINATED, None, 0.0
        return machine.id

    async def _deaf(self, part: str, seconds: float) -> None:
        self._platform.network.deaf_to = part
        await asyncio.sleep(seconds)
        self._platform.network.deaf_to = ""

    # CML

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
        server.licence = replace(server.licence, registration="COMPLETED")
        return "it is registered again"

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
