"""Whatever happens in whatever order: when the faults stop, coordination equals the store within a stated time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.control_plane.store.memory.store import MemoryDisk
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.coordination import NO_LEASE
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.records.workers import a_worker
from tests.support.virtual.mirror_world import PREFIX, Plane, expected_keys, read_value
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# A key that was changed by hand is found by the next comparison, at most 300 s after a call that may hang for 6 s and a
# pause of 11 s; a key newer than its record is then overwritten after 60 s; a retry comes 33 s after the last attempt.
POLL = 5.0
BOUND = POLL + 300.0 + 17.0 + 60.0 + 33.0
# Without manual changes of keys, only retries and probes have to come round.
BOUND_OF_OUTAGES = POLL + 6.0 + 33.0 + 6.0

WORKERS = [f"w-{number}" for number in range(3)]
PLANES = range(2)
BY_HAND = {"garbage": b"\xff", "older": b'{"version":0}', "newer": b'{"version":1000}', "list": b"[1]"}


class Storm:
    """Two control planes, three workers and one etcd, and everything that can happen to them."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.server = MemoryServer()
        self.networks = [FaultyCoordination(MemoryCoordination(self.server)) for _ in PLANES]
        self.planes = [Plane(self.disk, network, poll=POLL) for network in self.networks]
        self.existing: dict[str, str] = {}

    async def change(self, worker_id: str, plane: int, how: str) -> None:
        at = self.planes[plane]
        if worker_id not in self.existing:
            await at.add(a_worker(id=worker_id, name=worker_id, status="RUNNING"))
            self.existing[worker_id] = "RUNNING"
        elif how == "activity":
            await at.edit(worker_id, moves=False, last_activity_at=clock.now())
        elif how == "terminate":
            self.existing[worker_id] = "TERMINATED"
            await at.edit(worker_id, status="TERMINATED")
        else:
            await at.edit(worker_id, desired_status=how)

    async def fault(self, plane: int, how: str) -> None:
        network = self.networks[plane]
        if how == "restart":
            await self.planes[plane].stop()
            self.planes[plane] = await Plane(self.disk, network, poll=POLL).start()
        elif how == "lose":
            network.lose_next_reply = True
        elif how == "slow":
            network.delay = 0.0 if network.delay else 2.0
        else:
            setattr(network, how, not getattr(network, how))

    async def by_hand(self, worker_id: str, how: str) -> None:
        if how != "delete":
            self.server.put(PREFIX + worker_id, BY_HAND[how], NO_LEASE)
        elif self.server.get(PREFIX + worker_id):
            self.server.delete(PREFIX + worker_id)

    async def in_sync(self) -> bool:
        keys = {item.key.removeprefix(PREFIX): read_value(item.value) for item in self.server.items(PREFIX)}
        return keys == await expected_keys(self.disk)

    async def run(self, steps: list[tuple[str, tuple[Any, ...], float]], bound: float) -> None:
        for plane in self.planes:
            await plane.start()
        for name, arguments, pause in steps:
            await getattr(self, name)(*arguments)
            await asyncio.sleep(pause)
        for network in self.networks:
            network.cut = network.hang = network.lose_next_reply = network.fail_watches = False
            network.delay = 0.0
        await asyncio.sleep(bound)
        assert await self.in_sync()
        revision = self.server.revision
        await asyncio.sleep(310)
        assert self.server.revision == revision, "there was nothing left to do"
        assert [plane.mirror.degradation() for plane in self.planes] == [[], []]
        for plane in self.planes:
            await plane.stop()


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualTimeLoop()
    try:
        with clock.use(VirtualClock(loop)):
            loop.run_until_complete(work())
    finally:
        loop.close()


a_worker_id, a_plane = st.sampled_from(WORKERS), st.sampled_from(PLANES)
changes = st.tuples(
    st.just("change"),
    st.tuples(a_worker_id, a_plane, st.sampled_from(["STOPPED", "RUNNING", "activity", "terminate"])),
)
faults = st.tuples(
    st.just("fault"), st.tuples(a_plane, st.sampled_from(["cut", "hang", "lose", "slow", "restart", "fail_watches"]))
)
hands = st.tuples(st.just("by_hand"), st.tuples(a_worker_id, st.sampled_from([*BY_HAND, "delete"])))
pauses = st.sampled_from([0.0, 0.0, 0.001, 0.3, 2.0, 7.0, 61.0, 301.0])


def steps(*what: st.SearchStrategy[tuple[str, tuple[Any, ...]]]) -> st.SearchStrategy[Any]:
    step = st.tuples(st.one_of(*what), pauses).map(lambda both: (*both[0], both[1]))
    return st.lists(step, min_size=1, max_size=25)


@given(steps(changes, faults, hands))
@settings(max_examples=60, deadline=None)
def test_keys_equal_records_after_any_changes_faults_and_tampering(
    happenings: list[tuple[str, tuple[Any, ...], float]],
) -> None:
    in_virtual_time(lambda: Storm().run(happenings, BOUND))


@given(steps(changes, faults))
@settings(max_examples=60, deadline=None)
def test_keys_equal_records_soon_after_any_changes_and_faults(
    happenings: list[tuple[str, tuple[Any, ...], float]],
) -> None:
    in_virtual_time(lambda: Storm().run(happenings, BOUND_OF_OUTAGES))
