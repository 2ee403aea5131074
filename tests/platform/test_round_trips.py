"""How often a pass asks the control plane: one read gives it what it needs, and its own writes cost no further pass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.lablet_platform import start_lablet_platform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INTERNAL = "/api/internal"
NOT_OF_A_PASS = ("/leadership", "/metrics", "/decisions", "/report", "/detect-idle")


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet() as fleet:
        await fleet.start()
        await asyncio.sleep(70)  # the startup sweep is over, and no polling cycle is near
        yield fleet


class Requests:
    """The requests of the passes of one controller, from now on."""

    def __init__(self, fleet: Fleet) -> None:
        self._sent = fleet.wires["one"].sent
        self._seen = len(self._sent)

    def of_passes(self) -> list[str]:
        """Without those of the loops beside the passes."""
        lines = [line.replace(INTERNAL, "") for line in self._sent[self._seen :]]
        return [line for line in lines if not line.endswith(NOT_OF_A_PASS)]


async def test_a_launch_takes_four_requests(fleet: Fleet) -> None:
    requests = Requests(fleet)
    worker = await fleet.create()
    await fleet.until(lambda: fleet.calls("RunInstances") == 1, "launched", within=30)
    await fleet.until_status(worker.id, WorkerStatus.PROVISIONING, within=5)
    place = f"/workers/{worker.id}"
    assert requests.of_passes()[:4] == [
        f"GET {place}/context",
        f"POST {place}/launch",
        f"GET {place}/context",
        f"POST {place}/status",
    ]
    await asyncio.sleep(2)
    assert requests.of_passes()[4:] == [], "the own writes come back by the watch"


async def test_a_stop_takes_two_reads(fleet: Fleet) -> None:
    worker = await fleet.running()
    requests = Requests(fleet)
    await fleet.people.workers.stop(worker.id)
    await fleet.until(lambda: fleet.calls("StopInstances") == 1, "stopped", within=30)
    await asyncio.sleep(2)
    lines = requests.of_passes()
    assert len([line for line in lines if line.startswith("GET")]) <= 2, lines
    assert f"POST /workers/{worker.id}/status" in lines
    await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=300)


async def test_a_hold_that_is_placed_during_a_pass_lets_nothing_begin(fleet: Fleet) -> None:
    """The write that announces a launch is rejected by the control plane itself; worker-lifecycle.md#hold."""
    fleet.wires["one"].meanwhile("/launch", lambda: fleet.people.fleet.hold(HoldRequest(reason="stop!")))
    worker = await fleet.create()
    await asyncio.sleep(60)
    worker = await fleet.worker(worker.id)
    assert (worker.status, worker.launch_intent) == (WorkerStatus.PENDING, None)
    assert fleet.calls("RunInstances") == 0
    await fleet.people.fleet.release()
    await fleet.until_ready(worker.id, within=300)
    assert fleet.calls("RunInstances") == 1


async def test_a_hold_between_the_intent_and_the_call_stops_the_call(fleet: Fleet) -> None:
    """The holds are read at the moment of sending; worker-lifecycle.md#hold."""
    wire = fleet.wires["one"]
    wire.meanwhile("/context", lambda: fleet.people.fleet.hold(HoldRequest(reason="stop!")), spare=1)
    worker = await fleet.create()
    await asyncio.sleep(60)
    worker = await fleet.worker(worker.id)
    assert (worker.status, worker.launch_attempt) == (WorkerStatus.PENDING, 1)
    assert fleet.calls("RunInstances") == 0
    await fleet.people.fleet.release()
    await fleet.until_ready(worker.id, within=300)
    assert fleet.calls("RunInstances") == 1


async def test_a_change_by_somebody_else_during_a_pass_is_not_taken_for_an_own_write(fleet: Fleet) -> None:
    worker = await fleet.running()
    wire = fleet.wires["one"]

    async def written() -> None:
        wire.meanwhile("/context", lambda: fleet.people.workers.start(worker.id))

    wire.meanwhile("/status", written)
    requested = asyncio.get_running_loop().time()
    await fleet.people.workers.stop(worker.id)
    await asyncio.sleep(1)
    await fleet.until_status(worker.id, WorkerStatus.RUNNING, within=20)
    assert fleet.calls("StopInstances") == 0
    assert asyncio.get_running_loop().time() - requested < 25, "not found by the next polling cycle only"


async def test_a_lablet_is_started_with_fifteen_requests() -> None:
    """Holds are read again right before each change; its own writes, which come back by the watch, cost no pass."""
    async with start_lablet_platform() as platform:
        worker = await platform.worker()
        await platform.start()
        await asyncio.sleep(40)  # no polling cycle is near
        life = platform.lives["one"]
        life.requests.clear()
        lablet = await platform.lablet(worker)
        await asyncio.sleep(4)  # its lab starts; it is not looked at again yet
        own, place = f"/lablets/{lablet.id}", f"/workers/{worker.id}"
        before_a_write = ["GET /fleet", f"GET {place}"]
        before_a_call = [*before_a_write, f"GET {own}"]
        assert [each.replace(INTERNAL, "") for each in life.requests if INTERNAL in each] == [
            f"GET {own}",  # it is not placed yet
            f"GET {own}",
            "GET /leadership",
            f"GET {place}",
            *before_a_write,
            f"POST {own}/status",
            "GET /lablet-definitions/exercise@1",
            *before_a_call,
            f"POST {own}/status",
            *before_a_call,
        ]
        await platform.until_status(lablet, LabletStatus.RUNNING, within=60)
