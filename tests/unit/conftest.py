"""Unit tests own time: every async test here runs on a virtual-time loop with a seeded clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import structlog
from prometheus_client import CollectorRegistry

from lcm.core import clock
from tests.support.run import tasks
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def clock_is_reset() -> Iterator[None]:
    """If the end of an async fixture fails, pytest-asyncio leaves its context variables set, for all later tests."""
    with clock.use(clock.SystemClock()):
        yield


@pytest.fixture(autouse=True)
async def virtual_clock(clock_is_reset: None) -> AsyncIterator[VirtualClock]:
    virtual = VirtualClock(asyncio.get_running_loop())
    with clock.use(virtual):
        yield virtual
        await tasks.assert_none_is_left()  # while the clock is virtual


@pytest.fixture(autouse=True, scope="session")
def plain_tracebacks() -> None:
    """Rendering rich tracebacks takes seconds each."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()
