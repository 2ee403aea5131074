"""Simulated servers on the network, and clients for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.labs import CMLLabsClient
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure, PinnedCertificate, TrustPolicy
from lcm.cml.client.transport import CMLTransport
from lcm.cml.simulator import CmlSimulator, SimulatorFarm, SimulatorSettings
from lcm.cml.simulator.listener import ServerIdentity, make_server_identity
from lcm.cml.types import Credentials

if TYPE_CHECKING:
    from lcm.cml.spi import CMLSystemSPI

ADMIN = Credentials("admin", "simulated")
ADDRESS = "10.0.0.1"
FAST = 500.0
PATIENCE = 180.0

Ready = Callable[[], Awaitable[bool]]


@dataclass
class Clients:
    """Both clients over one network."""

    system: CMLSystemSPI
    labs: CMLLabsClient
    transport: CMLTransport
    registry: CollectorRegistry


@asynccontextmanager
async def clients(trust: TrustPolicy, dial: Callable[[str], str], *, seconds: float = 30.0) -> AsyncIterator[Clients]:
    registry = CollectorRegistry()
    transport = CMLTransport(trust, base_url_of=dial, connect_seconds=min(5.0, seconds), read_seconds=seconds)
    session = CMLSession(transport, registry=registry)
    try:
        yield Clients(CMLSystemClient(session), CMLLabsClient(session), transport, registry)
    finally:
        await transport.aclose()


async def eventually(condition: Ready, what: str) -> None:
    """Wait for a condition. The timeout is generous because test machines are busy."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)
    assert await condition(), what


async def control(simulator: CmlSimulator, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """A request to the control port: status and JSON."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, simulator.control_url + path, json=body)
    return answer.status_code, answer.json()


@pytest.fixture(scope="session")
def identity() -> ServerIdentity:
    return make_server_identity()


@pytest.fixture
async def simulator(identity: ServerIdentity) -> AsyncIterator[CmlSimulator]:
    """A fast server that is ready at once."""
    made = CmlSimulator(SimulatorSettings(speed=FAST, boot_seconds=0), identity=identity, control_port=0)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def cml(simulator: CmlSimulator) -> AsyncIterator[Clients]:
    """Clients that trust this server's certificate."""
    async with clients(PinnedCertificate(simulator.identity.pem), lambda _address: simulator.url) as made:
        yield made


@pytest.fixture
async def farm(identity: ServerIdentity) -> AsyncIterator[SimulatorFarm]:
    async with SimulatorFarm(SimulatorSettings(speed=FAST, boot_seconds=0), identity=identity) as made:
        yield made


@pytest.fixture
async def farm_cml(farm: SimulatorFarm) -> AsyncIterator[Clients]:
    async with clients(Insecure(), farm.base_url_of) as made:
        yield made
