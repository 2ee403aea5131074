"""Client and simulator together in virtual time, without a socket: the application is called directly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.cml_session import Session
from lcm.cml.client.cml_system import CMLSystemClient
from lcm.cml.client.labs import CMLLabsClient
from lcm.cml.client.tls import Insecure
from lcm.cml.client.transport import Transport
from lcm.cml.errors import NotReady
from lcm.cml.licensing import LicensePhase, LicenseProgress
from lcm.cml.simulator.http.simulator_app import make_app
from lcm.cml.simulator.state.world import PERSONS_LAB, World, WorldSettings
from lcm.cml.types import Credentials, Deregistration
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADMIN = Credentials("admin", "simulated")
ADDRESS = "10.0.0.1"


@pytest.fixture
async def world() -> World:
    return World(WorldSettings(boot_seconds=300, token_seconds=3600))


@pytest.fixture
async def session(world: World) -> AsyncIterator[Session]:
    def dial(address: str) -> str:
        if not world.boot.listens:
            raise ConnectionRefusedError("nobody listens")
        return f"https://{address}"

    app = make_app(world)
    transport = Transport(Insecure(), dial=dial, wire=lambda _context: httpx.ASGITransport(app=app))
    yield Session(transport, registry=CollectorRegistry())
    await transport.aclose()


async def test_five_minutes_of_booting_take_five_minutes(world: World, session: Session) -> None:
    """Seed 001 §7: system information."""
    system = CMLSystemClient(session)
    world.power_on()
    began, ready = clock.now(), False
    while not ready:
        await asyncio.sleep(5)
        try:
            ready = (await system.get_system_information(ADDRESS)).ready
        except NotReady:
            ready = False
    assert 295 <= (clock.now() - began).total_seconds() <= 310


async def test_a_day_of_polling_renews_the_session_in_time(world: World, session: Session) -> None:
    """Seed 001 §7: statistics, with an account."""
    world.power_on()
    await asyncio.sleep(300)
    system = CMLSystemClient(session)
    for _ in range(24 * 12):
        assert (await system.get_system_health(ADDRESS, ADMIN)).valid
        await asyncio.sleep(300)
    assert 24 <= world.sessions.logins <= 27


async def test_a_licence_is_believed_when_the_server_says_so(world: World, session: Session) -> None:
    """Seed 001 §7: register and deregister."""
    world.power_on()
    await asyncio.sleep(300)
    system = CMLSystemClient(session)
    asked = clock.now()
    await system.register_license(ADDRESS, ADMIN, "GoodToken")
    phases: list[LicensePhase] = []
    while phases[-1:] != [LicensePhase.REGISTERED]:
        state = await system.get_license(ADDRESS, ADMIN)
        phases.append(LicenseProgress.of(state, clock.now() - asked).phase)
        await asyncio.sleep(1)
    assert set(phases[:-1]) == {LicensePhase.REGISTERING}
    assert await system.deregister_license(ADDRESS, ADMIN) is Deregistration.DONE


async def test_a_lab_boots_in_the_time_of_its_slowest_node(world: World, session: Session) -> None:
    world.power_on()
    await asyncio.sleep(300)
    labs = CMLLabsClient(session)
    lab = (await labs.import_lab(ADDRESS, ADMIN, PERSONS_LAB, title="Exam", marker="m")).id
    await labs.start_lab(ADDRESS, ADMIN, lab)
    began = asyncio.get_running_loop().time()
    while not await labs.has_converged(ADDRESS, ADMIN, lab):
        await asyncio.sleep(0.5)
    assert 9 <= asyncio.get_running_loop().time() - began <= 10
    assert {node.state for node in await labs.nodes(ADDRESS, ADMIN, lab)} == {"BOOTED"}
