"""The simulated world of `lcm up` in this process: its CML servers across restarts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.types import InstanceState
from lcm.cml.simulator.state.world import BootPhase
from lcm.wiring.simulated.world import SERVERS_FOLDER, SimulatedWorld
from tests.support.aws.conformance_simulated import launch_of
from tests.support.servers.processes import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

REGION = "us-east-1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "simulated-cloud.json"


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[SimulatedWorld]:
    world = SimulatedWorld(path, [REGION], speed=50)
    await world.start()
    try:
        yield world
    finally:
        await world.stop()


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}") from None


async def launch(world: SimulatedWorld) -> str:
    """A machine whose CML is ready and runs a lab."""
    image = next(iter(world.cloud.region(REGION).images))
    machine = await world.provider.launch_instance(launch_of("w1", 1, region=REGION, image_id=image, subnet_id=None))
    await until(lambda: machine.id in world.servers, "it runs")
    shown_at = world.cloud.region(REGION).machines[machine.id].visible_at
    await until(lambda: world.cloud.time() > shown_at, "EC2 shows it")
    server = world.servers[machine.id].world
    await until(lambda: server.boot.phase is BootPhase.READY, "CML is ready")
    server.start_user_lab("ada")
    return machine.id


async def test_a_server_that_ran_runs_on_without_booting_again(path: Path) -> None:
    async with running(path) as world:
        machine = await launch(world)
        kept = world.servers[machine].world
        compute = kept.compute_id
        await until(lambda: kept.state()["nodes_running"] == 2, "the lab runs")
    async with running(path) as world:
        server = world.servers[machine]
        assert (server.world.compute_id, server.world.boot.phase) == (compute, BootPhase.READY)
        assert server.world.state()["nodes_running"] == 2
        address = next(each.private_ip for _, each, _ in world.running() if each.id == machine)
        assert world.dial(address) == server.url
        _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.close()


async def test_a_machine_that_was_stopped_meanwhile_finds_its_labs_stopped(path: Path) -> None:
    async with running(path) as world:
        machine = await launch(world)
        await world.provider.stop_instance(REGION, machine)  # complete before the next start
    await asyncio.sleep(1)
    async with running(path) as world:
        server = world.servers[machine].world
        assert (server.boot.phase, server.state()["nodes_running"], len(server.labs.all)) == (BootPhase.OFF, 0, 1)
        await world.provider.start_instance(REGION, machine)
        await until(lambda: server.boot.phase is BootPhase.READY, "it has booted again")
        assert server.labs.all[0].state == "STOPPED"


async def test_a_server_with_a_damaged_file_starts_empty_and_others_do_not(path: Path) -> None:
    async with running(path) as world:
        machine = await launch(world)
    file = path.parent / SERVERS_FOLDER / f"{machine}.json"
    file.write_text(file.read_text()[:-20])
    async with running(path) as world:
        await until(lambda: machine in world.servers, "it has a server")
        server = world.servers[machine].world
        assert server.labs.all == []
        await until(lambda: server.boot.phase is BootPhase.READY, "it has booted")


async def test_what_is_terminated_is_forgotten(path: Path) -> None:
    async with running(path) as world:
        machine = await launch(world)
        file = path.parent / SERVERS_FOLDER / f"{machine}.json"
        await until(file.exists, "it is kept")
        await world.provider.terminate_instance(REGION, machine)
        region = world.cloud.region(REGION)
        await until(lambda: region.machines[machine].state is InstanceState.TERMINATED, "it has ended")
        await until(lambda: not file.exists(), "its file is dropped")
    async with running(path) as world:
        assert machine not in world.servers
