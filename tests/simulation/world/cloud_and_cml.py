"""EC2 and CML of the simulation: they belong to no node, and may lose responses."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lcm.cloud.error_codes import error_class
from lcm.cloud.errors import CloudAuthenticationError
from lcm.cloud.simulated import SimulatedCloud, SimulatedProvider
from lcm.cloud.simulated.region import DescribePage
from lcm.cloud.types import WORKER_TAG, Instance, InstanceState
from lcm.cml.client.bodies import BodyEnds
from lcm.cml.client.telemetry import MAX_LIST_BYTES, parse_list_ends
from lcm.cml.errors import CMLConflictError, CMLError, CMLNotReadyError, CMLUnauthorizedError
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.types import CMLActivity, CMLActivityEvent, Credentials, DeregistrationResult
from lcm.core.authorization import check_may_send
from tests.simulation.invariants.during import CHANGING
from tests.simulation.world.labs import LabWorlds
from tests.simulation.world.loop import Node, current_node
from tests.support.virtual.fleet import ParkedCml

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cloud.errors import CloudError
    from lcm.cloud.simulated.machine import Machine
    from lcm.cloud.simulated.region import SimulatedRegion
    from lcm.cloud.types import LaunchParameters
    from tests.simulation.invariants.during import Ledger
    from tests.simulation.world.loop import SeededLoop
    from tests.simulation.world.network import Line
    from tests.support.virtual.fake_cml import FakeServer


T = TypeVar("T")
_PROMPT = 0.1
_SUBJECT: ContextVar[tuple[str | None, str]] = ContextVar("worker_and_instance", default=(None, ""))
_LICENSE_RETRY_SECONDS = 30.0
_HEAD_BYTES, _TAIL_BYTES = 512, 8 * 1024
_OLD_EVENTS = b'{"category": "system_stats", "timestamp": "2020-01-01T00:00:00", "data": {}}, ' * 100
_OLD_CHUNKS = 1_200  # together more than the 8 MiB that were read at most
NODE_DEFINITIONS = ("alpine", "cat8000v")


class Ec2(SimulatedCloud):
    """The simulated cloud. It always uses the time of the world, not of a node."""

    def __init__(self, loop: SeededLoop, ledger: Ledger, seed: int) -> None:
        super().__init__(seed=seed)
        self.world = Node(loop, "ec2")
        self._world_loop = loop
        self._ledger = ledger
        self.odd: set[str] = set()  # instances that are reported in an unrecognized state
        self.addressless: set[str] = set()  # instances that are reported without an address
        self.unauthenticated: dict[str, str] = {}  # nodes whose calls are rejected, and the error code

    def time(self) -> float:
        return self._epoch + self._world_loop.now

    def worker_of(self, instance_id: str) -> str | None:
        """The worker that an instance was launched for."""
        for region in self.regions.values():
            if instance_id in region.machines:
                return region.machines[instance_id].tags.get(WORKER_TAG)
        return None

    def _done(
        self,
        region: SimulatedRegion,
        operation: str,
        work: Callable[[SimulatedRegion, float], T],
        instances: int,
        now: float,
    ) -> T | CloudError:
        result = super()._done(region, operation, work, instances, now)
        if operation == "RunInstances" and isinstance(result, Instance) and WORKER_TAG in result.tags:
            self._ledger.launched(self, result.tags[WORKER_TAG])
        return result


class Aws(SimulatedProvider):
    """One node's client of EC2."""

    def __init__(self, world: Ec2, line: Line, node: str, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._line = line
        self._leads = leads
        self._ec2 = world
        self._node = node
        self._ledger = ledger
        super().__init__(world)

    async def launch_instance(self, parameters: LaunchParameters) -> Instance:
        _SUBJECT.set((parameters.tags.get(WORKER_TAG), ""))
        return await super().launch_instance(parameters)

    async def start_instance(self, region: str, instance_id: str) -> InstanceState:
        _SUBJECT.set((self._ec2.worker_of(instance_id), instance_id))
        return await super().start_instance(region, instance_id)

    async def stop_instance(self, region: str, instance_id: str) -> InstanceState:
        _SUBJECT.set((self._ec2.worker_of(instance_id), instance_id))
        return await super().stop_instance(region, instance_id)

    async def terminate_instance(self, region: str, instance_id: str) -> InstanceState:
        _SUBJECT.set((self._ec2.worker_of(instance_id), instance_id))
        return await super().terminate_instance(region, instance_id)

    async def _wait_for_turn(self, region: str, operation: str, instances: int) -> None:
        await super()._wait_for_turn(region, operation, instances)
        if operation in CHANGING and self._line.queueing:
            await asyncio.sleep(self._line.queue_seconds())

    async def _send(
        self, region: str, operation: str, work: Callable[[SimulatedRegion, float], T], instances: int = 0
    ) -> T:
        if not operation.endswith(("Instances",)) or operation == "DescribeInstances":
            self._note(operation, region, None)
        if operation in CHANGING:
            check_may_send()
            self._note(operation, region, *_SUBJECT.get())
        code = self._ec2.unauthenticated.get(self._node)
        if code is not None:
            kind = error_class(code, operation, "") or CloudAuthenticationError  # without credentials there is no code
            raise kind(f"{operation} in {region}: {code}", code=code, operation=operation)
        if operation in CHANGING and self._line.quality.slowest > _PROMPT:
            return await asyncio.shield(self._ec2.world.run(self._land(region, operation, work, instances), operation))
        result = await super()._send(region, operation, work, instances)
        if isinstance(result, DescribePage) and (self._ec2.odd or self._ec2.addressless):
            return cast("T", result._replace(instances=[self._shown(each) for each in result.instances]))
        return result

    async def _land(
        self, region: str, operation: str, work: Callable[[SimulatedRegion, float], T], instances: int
    ) -> T:
        """Calls are delayed, and are processed even if the caller no longer waits for the response."""
        await asyncio.sleep(self._line.delay())
        self._ledger.landed(operation, self._node, leads=self._leads())
        return await super()._send(region, operation, work, instances)

    def _shown(self, instance: Instance) -> Instance:
        if instance.id in self._ec2.odd:
            return replace(instance, state=InstanceState.UNKNOWN)
        if instance.id in self._ec2.addressless:
            return replace(instance, public_ip=None, private_ip=None)
        return instance

    def _note(self, operation: str, region: str, worker_id: str | None, instance_id: str = "") -> None:
        if not self._line.cut:
            self._ledger.called(operation, worker_id, instance_id, self._node, leads=self._leads())

    @property
    def cut(self) -> bool:
        return self._line.cut

    @cut.setter
    def cut(self, value: bool) -> None:
        """The fault of the node's link, if any."""


class Cml(ParkedCml):
    """All CML servers. Accepted requests continue even if their caller is gone."""

    def __init__(self, world: Ec2, loop: SeededLoop, ledger: Ledger) -> None:
        super().__init__(world)
        self._loop = loop
        self._ledger = ledger
        self.rng = loop.stream("cml")
        self.labs = LabWorlds(world.time)
        self.lose_replies = 0.0
        self.sluggish = 0.0  # the delay of lab operations
        self.license_server_silent = False
        self.refuse_imports = 0  # the number of imports to reject
        self.land_late = 0.0  # the next import completes after this many seconds, even if its caller gave up
        self.down: set[str] = set()
        self.refusing: set[str] = set()  # machines whose CML answers 401 to every authenticated call
        self.zones: dict[str, timedelta] = {}  # machines whose CML writes local times without a zone
        self.long_lists: set[str] = set()  # machines whose CML has more events than anybody wants to read
        self.without_kvm: set[str] = set()  # instance types
        self._pins_of_nodes: dict[str, dict[str, str]] = {}
        self.registered_total = 0
        self.given_back_total = 0
        self.forgotten_total = 0
        self.unconfirmed_total = 0

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        check_may_send()
        server = await self._at(address, "register", credentials)
        if server.license.registration == "COMPLETED" and not reregister:
            raise CMLConflictError(address, "it is registered already")
        good = token == server.good_token
        server.license = replace(server.license, registration="IN_PROGRESS")
        self._loop.call_globally(server.registers_in, lambda: self._finish(server, good))
        self._maybe_lose(address)

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        server = self.servers.get(address)
        if server is not None and server.license.registration == "SUSPENDED":
            server.license = replace(server.license, registration="COMPLETED")
        result = await super().deregister_license(address, credentials)
        if result is DeregistrationResult.DONE:
            self.given_back_total += 1
            self._ledger.note(f"CML at {address} deregistered its license")
        if self.loses_reply():
            self.unconfirmed_total += result is DeregistrationResult.DONE
            raise CMLNotReadyError(address, "the connection broke")
        return result

    @property
    def pins(self) -> dict[str, str]:
        """The pins of the process that calls: another one, or the same after a restart, has none."""
        node = current_node()
        return self._pins_of_nodes.setdefault("" if node is None else node.name, {})

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        """As the real client reads it: JSON, of which only both ends are kept."""
        server = await self._at(address, "activity", credentials)
        machine = self._machine(address)
        if machine is None or not (server.events or machine.id in self.zones):
            return CMLActivity((), 0, 0)
        self._ledger.idle.events_read(machine.id)
        ends = BodyEnds(_HEAD_BYTES, _TAIL_BYTES, MAX_LIST_BYTES)
        ends.add(b"[")
        if machine.id in self.long_lists:
            for _ in range(_OLD_CHUNKS):
                ends.add(_OLD_EVENTS)
        zone = self.zones.get(machine.id)
        now = self._loop.wall_time
        own = CMLActivityEvent("system_stats", now - timedelta(seconds=self._loop.now % 60))
        ends.add(json.dumps([_written(event, zone) for event in (*server.events, own)])[1:].encode())
        return parse_list_ends(ends)

    def forget_license(self, machine_id: str) -> str:
        """A server is reinstalled: it is no longer registered, but Cisco still counts the license."""
        server = self.by_machine[machine_id]
        if server.license.registration != "COMPLETED":
            return "it has none"
        server.license = replace(server.license, registration="NOT_REGISTERED")
        self.forgotten_total += 1
        return machine_id

    def _finish(self, server: FakeServer, good: bool) -> None:
        if self.license_server_silent:
            self._loop.call_globally(_LICENSE_RETRY_SECONDS, lambda: self._finish(server, good))
            return
        if good and server.license.registration != "COMPLETED":
            self.registered_total += 1
            self._ledger.note("a CML registered a license")
        self._settle(server, *(("COMPLETED", "") if good else ("FAILED", "no such token")))

    def loses_reply(self) -> bool:
        """Whether a response gets lost."""
        return self.lose_replies > 0 and self.rng.random() < self.lose_replies

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Let a server do something later, independently of the caller."""
        self._loop.call_globally(seconds, lambda: _whatever(action))

    async def reach(self, address: str, operation: str, credentials: Credentials) -> Machine:
        """The machine whose CML is at an address."""
        server = await self._at(address, operation, credentials)
        machine = self._machine(address)
        if machine is None or not server.ready:
            raise CMLNotReadyError(address, "nothing is listening")
        return machine

    def _maybe_lose(self, address: str) -> None:
        if self.loses_reply():
            raise CMLNotReadyError(address, "the connection broke")

    async def _at(self, address: str, operation: str, credentials: Any = None) -> FakeServer:
        await asyncio.sleep(self.rng.uniform(0.0, 0.05))
        machine = self._machine(address)
        if machine is not None and machine.id in self.down:
            await asyncio.sleep(2)
            raise CMLNotReadyError(address, "502 from its web server")
        server = await super()._at(address, operation, credentials)
        server.definitions = NODE_DEFINITIONS
        if machine is not None:
            server.kvm = machine.has_kvm and machine.instance_type not in self.without_kvm
        if machine is not None and credentials is not None:
            self._ledger.signed_in(machine.id)
            if machine.id in self.refusing:
                raise CMLUnauthorizedError(address, "HTTP 401: no reason given")
        return server


def _written(event: CMLActivityEvent, zone: timedelta | None) -> dict[str, Any]:
    at = event.at if zone is None else (event.at + zone).replace(tzinfo=None)
    return {"category": event.category, "timestamp": at.isoformat(), "data": {"user_id": event.user_id}}


def _whatever(action: Callable[[], object]) -> None:
    with suppress(CMLError, SimulatorApiError):
        action()
