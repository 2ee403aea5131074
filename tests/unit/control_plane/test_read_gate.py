"""Expensive reads: a few at a time, equal ones are one, and the number of waiting ones is bounded."""

from __future__ import annotations

import asyncio
import gc

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.read_gate import ReadGate, collection_paused
from lcm.model.problems import ProblemCode


class Reads:
    """Counts reads, and how many ran at a time."""

    def __init__(self) -> None:
        self.count = self.running = self.most = 0

    async def read(self) -> int:
        self.count += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(1)
        self.running -= 1
        return self.count


async def test_few_run_at_a_time() -> None:
    gate, reads = ReadGate(max_running=2), Reads()
    await asyncio.gather(*(gate.run(f"{number}", reads.read) for number in range(20)))
    assert (reads.count, reads.most) == (20, 2)


async def test_equal_reads_share_one_result() -> None:
    gate, reads = ReadGate(), Reads()
    assert set(await asyncio.gather(*(gate.run("same", reads.read) for _ in range(500)))) == {1}
    assert await gate.run("same", reads.read) == 2, "a later one reads again"


async def test_the_number_that_waits_is_bounded() -> None:
    gate, reads = ReadGate(max_running=2, max_waiting=3), Reads()
    results = await asyncio.gather(*(gate.run(f"{n}", reads.read) for n in range(9)), return_exceptions=True)
    refused = [each for each in results if isinstance(each, ProblemError)]
    assert (len(refused), reads.count) == (4, 5)
    assert {each.code for each in refused} == {ProblemCode.UNAVAILABLE}
    assert await gate.run("later", reads.read) == 6


async def test_a_failed_read_gives_its_slot_back() -> None:
    gate = ReadGate(max_running=1, max_waiting=0)

    async def fail() -> None:
        raise ValueError("broken")

    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            await gate.run("x", fail)


def test_it_is_paused_until_the_last_one_ends() -> None:
    assert gc.isenabled()
    first, second = collection_paused(), collection_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(ValueError, match="bad"), collection_paused():
        raise ValueError("bad")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
