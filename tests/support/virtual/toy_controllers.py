"""Simple resources and controllers for tests of the controller machinery. They are unrelated to workers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.core.controller.leader_election import LeaderElectedHostedService
from lcm.core.controller.reconciliation import ReconciliationHostedService, ReconciliationResult
from lcm.core.controller.watch import WatchTriggeredHostedService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from prometheus_client import CollectorRegistry

    from lcm.core.coordination import Coordination

PREFIX = "/things/"


@dataclass(frozen=True)
class Thing:
    """A resource."""

    id: str
    generation: int = 1
    note: str = ""
    version: int | None = None


@dataclass(frozen=True)
class Pass:
    """A recorded pass."""

    key: str
    at: float
    generation: int
    controller: str = ""
    term: int = 0


@dataclass
class World:
    """The resources and the recorded passes. `behave` decides the result of a pass."""

    things: dict[str, Thing] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    behave: Callable[[Thing], Awaitable[ReconciliationResult]] | None = None
    fail_lists: str = ""
    list_takes: float = 0.0
    running: set[str] = field(default_factory=set)
    most_running: int = 0

    def put(self, *things: Thing) -> None:
        for thing in things:
            self.things[thing.id] = thing

    def passes_of(self, key: str) -> list[Pass]:
        return [done for done in self.passes if done.key == key]

    def times_of(self, key: str) -> list[float]:
        return [done.at for done in self.passes_of(key)]

    async def list(self) -> Sequence[Thing]:
        self.lists.append(asyncio.get_running_loop().time())
        found = list(self.things.values())
        if self.list_takes:
            await asyncio.sleep(self.list_takes)
        if self.fail_lists:
            raise RuntimeError(self.fail_lists)
        return found

    async def fetch(self, key: str) -> Thing | None:
        self.fetches.append(key)
        return self.things.get(key)

    async def reconcile(self, thing: Thing, controller: str, term: int) -> ReconciliationResult:
        assert thing.id not in self.running, "two passes over one key at once"
        self.running.add(thing.id)
        self.most_running = max(self.most_running, len(self.running))
        self.passes.append(Pass(thing.id, asyncio.get_running_loop().time(), thing.generation, controller, term))
        try:
            if self.behave is None:
                return ReconciliationResult.success()
            return await self.behave(thing)
        finally:
            self.running.discard(thing.id)


class Poller(ReconciliationHostedService[Thing]):
    """Polls the world."""

    def __init__(self, world: World, config: ReconciliationConfig, registry: CollectorRegistry) -> None:
        super().__init__("poller", config, registry=registry)
        self.world = world

    async def list_resources(self) -> Sequence[Thing]:
        return await self.world.list()

    async def fetch_single_resource(self, resource_id: str) -> Thing | None:
        return await self.world.fetch(resource_id)

    async def reconcile_resource(self, resource: Thing) -> ReconciliationResult:
        return await self.world.reconcile(resource, self.name, 0)

    def get_resource_id(self, resource: Thing) -> str:
        return resource.id

    def get_generation(self, resource: Thing) -> int | None:
        return resource.generation


class Elected(LeaderElectedHostedService[Thing]):
    """Polls the world while it leads."""

    def __init__(
        self,
        world: World,
        coordination: Coordination,
        instance: str,
        registry: CollectorRegistry,
        config: ReconciliationConfig | None = None,
        *,
        lease_ttl: int = 15,
        retry_interval: float = 5.0,
    ) -> None:
        election = LeaderElectionConfig(
            election_key_prefix="/lcm",
            service_name="toy",
            instance_id=instance,
            lease_ttl=lease_ttl,
            retry_interval=retry_interval,
        )
        super().__init__(coordination, election, config or ReconciliationConfig(initial_delay=0.0), registry=registry)
        self.world = world
        self.announced: list[int] = []
        self.announce: Callable[[int], Awaitable[None]] | None = None
        self.began_leading: list[bool] = []  # for each pass, whether it began while leading

    async def announce_leadership(self, term: int) -> None:
        self.announced.append(term)
        if self.announce is not None:
            await self.announce(term)

    async def list_resources(self) -> Sequence[Thing]:
        return await self.world.list()

    async def fetch_single_resource(self, resource_id: str) -> Thing | None:
        return await self.world.fetch(resource_id)

    async def reconcile_resource(self, resource: Thing) -> ReconciliationResult:
        self.began_leading.append(self.is_leader)
        return await self.world.reconcile(resource, self.election.instance_id, self.term)

    def get_resource_id(self, resource: Thing) -> str:
        return resource.id

    def get_generation(self, resource: Thing) -> int | None:
        return resource.generation


class Watcher(WatchTriggeredHostedService[Thing]):
    """Watches and polls the world while it leads."""

    def __init__(
        self,
        world: World,
        coordination: Coordination,
        registry: CollectorRegistry,
        config: ReconciliationConfig | None = None,
        watch: WatchConfig | None = None,
        *,
        instance: str = "one",
    ) -> None:
        election = LeaderElectionConfig(election_key_prefix="/lcm", service_name="toy", instance_id=instance)
        super().__init__(coordination, election, watch or WatchConfig(prefix=PREFIX), config, registry=registry)
        self.world = world
        self.order: list[str] = []
        self.sweeps_done: list[float] = []
        self.sweep_active_at_list: list[bool] = []

    async def announce_leadership(self, term: int) -> None:
        self.order.append("announced")

    def start_leader_loops(self) -> None:
        self._spawn_loop("own-loop", self._own_loop)

    async def _own_loop(self) -> None:
        self.order.append("own loop")
        await asyncio.sleep(1e9)

    async def on_startup_sweep_done(self) -> None:
        self.order.append("sweep done")
        self.sweeps_done.append(asyncio.get_running_loop().time())

    async def list_resources(self) -> Sequence[Thing]:
        self.order.append("list")
        self.sweep_active_at_list.append(self._startup_sweep_active)
        return await self.world.list()

    async def fetch_single_resource(self, resource_id: str) -> Thing | None:
        return await self.world.fetch(resource_id)

    async def reconcile_resource(self, resource: Thing) -> ReconciliationResult:
        return await self.world.reconcile(resource, self.name, self.term)

    def get_resource_id(self, resource: Thing) -> str:
        return resource.id

    def get_generation(self, resource: Thing) -> int | None:
        return resource.generation

    def get_version(self, resource: Thing) -> int | None:
        return resource.version


async def change(world: World, coordination: Coordination, thing: Thing) -> None:
    """Change a record and mirror the change, as the owner of the records does."""
    world.put(thing)
    mirrored = {"id": thing.id, "generation": thing.generation, "version": thing.version}
    await coordination.put(PREFIX + thing.id, json.dumps(mirrored).encode())


async def until(condition: Callable[[], bool], limit: float = 1000.0) -> float:
    """Wait until a condition holds; returns the moment. Steps are fine enough to time things by."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while not condition():
        assert loop.time() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)
    return loop.time()
