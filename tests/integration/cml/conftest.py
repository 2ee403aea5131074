"""Simulated servers on the network and clients that dial them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cml.client.cml_session import Session
from lcm.cml.client.cml_system import CMLSystemClient
from lcm.cml.client.labs import CMLLabsClient
from lcm.cml.client.tls import Insecure, Pinned, Trust
from lcm.cml.client.transport import Transport
from lcm.cml.simulator import CmlSimulator, SimulatorFarm, WorldSettings
from lcm.cml.simulator.listener import ServerIdentity, make_identity
from lcm.cml.types import Credentials

if TYPE_CHECKING:
    from lcm.cml.spi import CMLSystemSPI

ADMIN = Credentials("admin", "simulated")
ADDRESS = "10.0.0.1"
FAST = 500.0
PATIENCE = 60.0

Ready = Callable[[], Awaitable[bool]]


@dataclass
class Clients:
    """Both clients over one network."""

    system: CMLSystemSPI
    labs: CMLLabsClient
    transport: Transport
    registry: CollectorRegistry


@asynccontextmanager
async def clients(trust: Trust, dial: Callable[[str], str], *, seconds: float = 30.0) -> AsyncIterator[Clients]:
    registry = CollectorRegistry()
    transport = Transport(trust, dial=dial, connect_seconds=min(5.0, seconds), read_seconds=seconds)
    session = Session(transport, registry=registry)
    try:
        yield Clients(CMLSystemClient(session), CMLLabsClient(session), transport, registry)
    finally:
        await transport.aclose()


async def eventually(condition: Ready, what: str) -> None:
    """Wait for a condition; the patience is generous because machines are busy."""
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
    return make_identity()


@pytest.fixture
async def simulator(identity: ServerIdentity) -> AsyncIterator[CmlSimulator]:
    """A server that is ready at once and quick."""
    made = CmlSimulator(WorldSettings(speed=FAST, boot_seconds=0), identity=identity, control_port=0)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def cml(simulator: CmlSimulator) -> AsyncIterator[Clients]:
    """Clients that trust this server's certificate."""
    async with clients(Pinned(simulator.identity.pem), lambda _address: simulator.url) as made:
        yield made


@pytest.fixture
async def farm(identity: ServerIdentity) -> AsyncIterator[SimulatorFarm]:
    async with SimulatorFarm(WorldSettings(speed=FAST, boot_seconds=0), identity=identity) as made:
        yield made


@pytest.fixture
async def farm_cml(farm: SimulatorFarm) -> AsyncIterator[Clients]:
    async with clients(Insecure(), farm.dial) as made:
        yield made
