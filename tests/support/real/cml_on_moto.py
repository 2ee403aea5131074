"""CML servers on the instances of patched moto: each is at its instance's address, and only while that runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lcm.cml.simulator import SimulatorFarm
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.world import SimulatorSettings
from tests.support.aws.ec2_rules import RULES
from tests.support.network.connect_proxy import ConnectProxy
from tests.support.network.http_gate import Holds

if TYPE_CHECKING:
    from lcm.cml.simulator import CmlSimulator
    from lcm.cml.simulator.state.labs import Lab
    from lcm.cml.simulator.state.sessions import CMLAccount

DEREGISTRATION = "deregistration"
_LOOK_SECONDS = 0.05
_SETTINGS = SimulatorSettings(boot_seconds=0.0, login_seconds=0.0, register_seconds=0.0, deregister_seconds=0.0)


class CountingAccount(SmartAccount):
    """Counts the registrations and deregistrations of each license."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: Counter[str] = Counter()
        self.given_back: Counter[str] = Counter()

    def register(self, product_uuid: str) -> None:
        self.taken[product_uuid] += 1
        super().register(product_uuid)

    def release(self, product_uuid: str) -> None:
        self.given_back[product_uuid] += product_uuid in self.holders
        super().release(product_uuid)


@dataclass(frozen=True, slots=True)
class _Seen:
    instance_id: str
    state: str
    address: str | None


class Machines:
    """Follows the instances and maps their addresses to servers. Deregistrations can be held, by instance."""

    def __init__(self, speed: float = 1.0) -> None:
        self.account = CountingAccount()
        self.proxy = ConnectProxy({})
        self.holds = Holds()
        self.products: dict[str, str] = {}  # by instance: the id of its license
        self.sessions: dict[str, set[str]] = {}  # by instance: those that were used since a test cleared this
        self._farm = SimulatorFarm(replace(_SETTINGS, speed=speed))
        self._farm.account = self.account
        self._on: set[str] = set()
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start to follow the instances."""
        await self.proxy.__aenter__()
        self._following = asyncio.create_task(self._follow_on())

    async def close(self) -> None:
        """Stop all servers."""
        assert self._following is not None
        self.holds.clear()
        self._following.cancel()
        with suppress(asyncio.CancelledError):
            await self._following
        await self.proxy.__aexit__(None, None, None)
        await self._farm.stop()

    async def start_user_lab(self, instance_id: str) -> str:
        """A user starts to work on the server."""
        world = self._farm[instance_id].world
        world.time.advance()
        return world.start_user_lab("student").id

    async def person_stops_lab(self, instance_id: str, lab_id: str) -> None:
        """The user has finished."""
        world = self._farm[instance_id].world
        world.time.advance()
        lab = world.labs.get(lab_id)
        world.labs.stop(lab, lab.owner)

    async def nodes_running(self, instance_id: str) -> int:
        """The number of running nodes on the server."""
        return int(self._farm[instance_id].world.state()["nodes_running"])

    async def labs(self) -> list[Lab]:
        """All labs on instances that still exist, running or not."""
        worlds = [self._farm[instance_id].world for instance_id in self._farm.addresses]
        for world in worlds:
            world.time.advance()
        return [lab for world in worlds for lab in world.labs.all]

    def holds_license(self, instance_id: str) -> bool:
        """Whether the account counts a license for the instance, also if that no longer exists."""
        return self.products.get(instance_id) in self.account.holders

    def times_given_back(self, instance_id: str) -> int:
        """How often the license of the instance was deregistered."""
        return self.account.given_back[self.products[instance_id]]

    async def _follow_on(self) -> None:
        while True:
            for seen in _look():
                await self._follow(seen)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _follow(self, seen: _Seen) -> None:
        if seen.state == "running":
            await self._switch_on(seen.instance_id)
            if seen.address:
                place = urlsplit(self._farm[seen.instance_id].url)
                assert place.hostname is not None
                assert place.port is not None
                self.proxy.routes[f"{seen.address}:443"] = (place.hostname, place.port)
        elif seen.instance_id in self._on and seen.state != "pending":
            self._on.discard(seen.instance_id)
            await self._farm[seen.instance_id].power_off()
        if seen.state in ("shutting-down", "terminated") and seen.instance_id in self._farm:
            await self._farm.remove(seen.instance_id)

    async def _switch_on(self, instance_id: str) -> None:
        if instance_id in self._on:
            return
        if instance_id in self._farm:
            await self._farm[instance_id].power_on()
        else:
            server = await self._farm.add(instance_id)
            self.products[instance_id] = server.world.licensing.product_uuid
            self._guard(instance_id, server)
            self._note_sessions(instance_id, server)
        self._on.add(instance_id)

    def _guard(self, instance_id: str, server: CmlSimulator) -> None:
        licensing = server.world.licensing
        deregister = licensing.deregister
        name = f"{DEREGISTRATION} {instance_id}"

        async def guarded() -> bool:
            before = self.holds.take(name, after=False)
            try:
                if before is not None and not await before.reached():
                    raise SimulatorApiError(503, "it never came so far")
                reached = await deregister()
            finally:
                if before is not None:
                    before.ended()
            after = self.holds.take(name, after=True)
            if after is not None:
                await after.reached()
                after.ended()
            return reached

        licensing.deregister = guarded  # type: ignore[method-assign]

    def _note_sessions(self, instance_id: str, server: CmlSimulator) -> None:
        """Each controller has its own session with a server."""
        check = server.world.sessions.check

        def noted(token: str) -> CMLAccount:
            self.sessions.setdefault(instance_id, set()).add(token)
            return check(token)

        server.world.sessions.check = noted  # type: ignore[method-assign]


def _look() -> list[_Seen]:
    with RULES.lock:
        shown = [(instance, str(instance.state)) for instance in RULES.instances.values()]
        return [_Seen(one.id, state, one.public_ip if state == "running" else None) for one, state in shown]
