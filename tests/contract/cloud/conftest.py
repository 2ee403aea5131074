"""The clouds for which the contract is tested: the simulated cloud in virtual time, and AWS's API over real HTTP."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

import pytest

from tests.support.virtual.time import VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from tests.support.aws.conformance import CloudBed


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    # The loop depends on the bed: a server in another thread cannot run in virtual time.
    return {"simulated": VirtualTimeLoop, "aws": asyncio.SelectorEventLoop}


@pytest.fixture
async def bed() -> AsyncIterator[CloudBed]:
    virtual = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    # Imported on demand: the simulated cloud is also tested without the AWS dependencies.
    module = importlib.import_module(
        "tests.support.aws.conformance_simulated" if virtual else "tests.support.aws.conformance_aws"
    )
    async with module.open_bed() as opened:
        yield opened
