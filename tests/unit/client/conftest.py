"""A control plane, and clients of it in every role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from lcm.client import Client
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import TestPlane, serving_plane
from tests.unit.client.fakes import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

    from lcm.client import Limits
    from lcm.model.access import Role


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


@pytest.fixture
async def connect(registry: CollectorRegistry) -> AsyncIterator[Callable[..., Client]]:
    """A client over this wire; closed at the end."""
    made: list[Client] = []

    def connect(wire: httpx.AsyncBaseTransport, token: str | None = None, limits: Limits | None = None) -> Client:
        made.append(Client(URL, token, wire=HttpxTransport(wire), limits=limits, registry=registry))
        return made[-1]

    yield connect
    for client in made:
        await client.aclose()


@pytest.fixture
def as_role(plane: TestPlane, connect: Callable[..., Client]) -> Callable[[Role], Client]:
    """A client of the real app in a role."""
    return lambda role: connect(httpx.ASGITransport(plane.app, raise_app_exceptions=False), plane.tokens[role])
