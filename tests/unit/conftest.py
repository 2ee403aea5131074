"""Unit tests own time: every async test here runs on a virtual-time loop with a seeded clock.

In other tests time stands still: they are half of all, and making a loop costs more than most of them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog
from prometheus_client import CollectorRegistry

from lcm.core import clock, logs
from tests.support.run import tasks
from tests.support.virtual.time import StandingTime, VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and "virtual_clock" in item.fixturenames  # not yet removed: the cases of a test share the list
            and HERE in item.path.parents
            and not _needs_a_loop(item)
        ):
            item.fixturenames.remove("virtual_clock")


def _needs_a_loop(item: pytest.Function) -> bool:
    """Whether the test is async, asks for the clock of its loop, or has an async fixture."""
    if pytest_asyncio.is_async_test(item):
        return True
    made = [
        definitions[-1].func
        for name, definitions in item._fixtureinfo.name2fixturedefs.items()
        if name != "virtual_clock" or name in inspect.signature(item.function).parameters
    ]
    own_loop = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(is_async(each) for each in made for is_async in own_loop)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def clock_is_reset() -> Iterator[None]:
    """If the end of an async fixture fails, pytest-asyncio leaves its context variables set, for all later tests."""
    with clock.use(VirtualClock(StandingTime())):
        yield


@pytest.fixture(autouse=True)
async def virtual_clock(clock_is_reset: None) -> AsyncIterator[VirtualClock]:
    virtual = VirtualClock(asyncio.get_running_loop())
    with clock.use(virtual):
        yield virtual
        await tasks.assert_none_is_left()  # while the clock is virtual


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """`configure_logging` is for a whole process; other tests of this one must not see it."""
    root = logging.getLogger()
    level, configured = root.level, structlog.get_config()
    yield
    logging.captureWarnings(capture=False)
    for handler in [handler for handler in root.handlers if isinstance(handler, logs._Handler)]:
        root.removeHandler(handler)
    root.setLevel(level)
    structlog.configure(**configured)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()
