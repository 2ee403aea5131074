"""Concurrent callers share one call, but never one that started before their request."""

from __future__ import annotations

import asyncio

import pytest

from lcm.core.singleflight import FreshSingleflight


class Counter:
    """Returns the number of calls so far, one second later."""

    def __init__(self) -> None:
        self.calls = 0

    async def call(self) -> int:
        self.calls += 1
        mine = self.calls
        await asyncio.sleep(1)
        return mine


async def test_callers_during_a_call_share_the_next_one() -> None:
    shared: FreshSingleflight[int] = FreshSingleflight()
    counter = Counter()
    first = [asyncio.create_task(shared.run("q", counter.call)) for _ in range(3)]
    await asyncio.sleep(0.5)
    later = [asyncio.create_task(shared.run("q", counter.call)) for _ in range(5)]
    other = asyncio.create_task(shared.run("other", Counter().call))
    assert await asyncio.gather(*first) == [1, 1, 1]
    assert await other == 1
    assert await asyncio.gather(*later) == [2] * 5
    assert await shared.run("q", counter.call) == 3


async def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    shared: FreshSingleflight[int] = FreshSingleflight()
    tasks = [asyncio.create_task(shared.run("q", Counter().call)) for _ in range(2)]
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    assert await tasks[1] == 1


async def test_all_callers_get_the_error_and_the_next_call_is_new() -> None:
    shared: FreshSingleflight[int] = FreshSingleflight()

    async def fail() -> int:
        await asyncio.sleep(1)
        raise RuntimeError("failed")

    outcomes = await asyncio.gather(*(shared.run("q", fail) for _ in range(2)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["failed", "failed"]
    assert await shared.run("q", Counter().call) == 1
    with pytest.raises(RuntimeError):
        await shared.run("q", fail)
