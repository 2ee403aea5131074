"""HTTP is tested on both event loops: processes run on uvloop, commands on asyncio's own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
import uvloop

from lcm.cml.simulator.listener import make_server_identity
from lcm.http.network import NetworkTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from lcm.cml.simulator.listener import ServerIdentity


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def http() -> AsyncIterator[NetworkTransport]:
    async with aclosing(NetworkTransport(idle_seconds=60.0, max_idle=10)) as made:
        yield made


@pytest.fixture(scope="session")
def identity() -> ServerIdentity:
    return make_server_identity()
