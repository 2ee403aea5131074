"""Client and simulator together in virtual time, without sockets: the application is called directly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.labs import CMLLabsClient
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure
from lcm.cml.client.transport import CMLTransport
from lcm.cml.errors import CMLNotReadyError
from lcm.cml.simulator.http.app import make_simulator_app
from lcm.cml.simulator.state.world import SAMPLE_TOPOLOGY, SimulatorSettings, World
from lcm.cml.types import Credentials, DeregistrationResult, LicensePhase, LicenseProgress
from lcm.core import clock
from tests.support.network.httpx_transport import HttpxTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADMIN = Credentials("admin", "simulated")
ADDRESS = "10.0.0.1"


@pytest.fixture
async def world() -> World:
    return World(SimulatorSettings(boot_seconds=300, token_seconds=3600))


@pytest.fixture
async def session(world: World) -> AsyncIterator[CMLSession]:
    def dial(address: str) -> str:
        if not world.boot.is_listening:
            raise ConnectionRefusedError("nothing is listening")
        return f"https://{address}"

    app = make_simulator_app(world)
    transport = CMLTransport(Insecure(), base_url_of=dial, http=HttpxTransport(httpx.ASGITransport(app=app)))
    yield CMLSession(transport, registry=CollectorRegistry())
    await transport.aclose()


async def test_a_boot_of_five_minutes_takes_five_minutes(world: World, session: CMLSession) -> None:
    """System information needs no account and shows readiness."""
    system = CMLSystemClient(session)
    world.power_on()
    began, ready = clock.now(), False
    while not ready:
        await asyncio.sleep(5)
        try:
            ready = (await system.get_system_information(ADDRESS)).ready
        except CMLNotReadyError:
            ready = False
    assert 295 <= (clock.now() - began).total_seconds() <= 310


async def test_the_session_is_renewed_in_time_during_a_day_of_polling(world: World, session: CMLSession) -> None:
    """Statistics need an account."""
    world.power_on()
    await asyncio.sleep(300)
    system = CMLSystemClient(session)
    for _ in range(24 * 12):
        assert (await system.get_system_health(ADDRESS, ADMIN)).valid
        await asyncio.sleep(300)
    assert 24 <= world.sessions.logins <= 27


async def test_a_license_counts_only_when_the_server_reports_it(world: World, session: CMLSession) -> None:
    """Registering and deregistering."""
    world.power_on()
    await asyncio.sleep(300)
    system = CMLSystemClient(session)
    requested_at = clock.now()
    await system.register_license(ADDRESS, ADMIN, "GoodToken")
    phases: list[LicensePhase] = []
    while phases[-1:] != [LicensePhase.REGISTERED]:
        state = await system.get_license(ADDRESS, ADMIN)
        phases.append(LicenseProgress.of(state, clock.now() - requested_at).phase)
        await asyncio.sleep(1)
    assert set(phases[:-1]) == {LicensePhase.REGISTERING}
    assert await system.deregister_license(ADDRESS, ADMIN) is DeregistrationResult.DONE


async def test_a_lab_boots_in_the_time_of_its_slowest_node(world: World, session: CMLSession) -> None:
    world.power_on()
    await asyncio.sleep(300)
    labs = CMLLabsClient(session)
    lab = (await labs.import_lab(ADDRESS, ADMIN, SAMPLE_TOPOLOGY, title="Exam", marker="m")).id
    await labs.start_lab(ADDRESS, ADMIN, lab)
    began = asyncio.get_running_loop().time()
    while not await labs.has_converged(ADDRESS, ADMIN, lab):
        await asyncio.sleep(0.5)
    assert 9 <= asyncio.get_running_loop().time() - began <= 10
    assert {node.state for node in await labs.nodes(ADDRESS, ADMIN, lab)} == {"BOOTED"}
