"""Whether the store takes writes is known within two seconds, whatever happens to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.port import StoreUnavailableError
from lcm.control_plane.store.write_probe import WriteProbe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WITHIN = 2.0


class Disk:
    """A store of which only the check is used."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.hangs = False
        self.checks = 0

    async def check(self) -> None:
        self.checks += 1
        if self.hangs:
            await asyncio.sleep(20)
            raise StoreUnavailableError("no response within 20 s")
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise StoreUnavailableError(self.error)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def probe(disk: Disk) -> AsyncIterator[WriteProbe]:
    probe = WriteProbe(disk.check)
    task = asyncio.create_task(probe.run())
    await asyncio.sleep(0.1)
    yield probe
    task.cancel()


async def test_a_store_that_works_is_available(disk: Disk, probe: WriteProbe) -> None:
    for _ in range(600):
        await asyncio.sleep(0.1)
        assert probe.problem() == ""
    assert 30 <= disk.checks <= 120


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.7, 0.99])
async def test_an_error_is_known_within_two_seconds(disk: Disk, probe: WriteProbe, moment: float) -> None:
    await asyncio.sleep(moment)
    disk.error = "the disk is full"
    await asyncio.sleep(WITHIN)
    assert probe.problem() == "the disk is full"
    disk.error = None
    await asyncio.sleep(WITHIN)
    assert probe.problem() == ""


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.7, 0.99])
async def test_silence_is_known_within_two_seconds(disk: Disk, probe: WriteProbe, moment: float) -> None:
    await asyncio.sleep(moment)
    disk.hangs = True
    await asyncio.sleep(WITHIN)
    assert probe.problem().startswith("no response to a write for ")
    await asyncio.sleep(60)
    assert probe.problem() == "no response within 20 s"
    disk.hangs = False
    await asyncio.sleep(20 + WITHIN)
    assert probe.problem() == ""


async def test_before_the_first_check_it_is_not_available() -> None:
    assert WriteProbe(Disk().check).problem() == "not checked yet"
