"""One answer for many, but never one that was begun too early."""

from __future__ import annotations

import asyncio

import pytest

from lcm.core.singleflight import FreshSingleflight


class Counter:
    """Says how often it was called, a second later."""

    def __init__(self) -> None:
        self.calls = 0

    async def call(self) -> int:
        self.calls += 1
        mine = self.calls
        await asyncio.sleep(1)
        return mine


async def test_those_who_ask_while_one_is_under_way_share_the_next() -> None:
    shared: FreshSingleflight[int] = FreshSingleflight()
    counter = Counter()
    first = [asyncio.create_task(shared.ask("q", counter.call)) for _ in range(3)]
    await asyncio.sleep(0.5)
    later = [asyncio.create_task(shared.ask("q", counter.call)) for _ in range(5)]
    other = asyncio.create_task(shared.ask("other", Counter().call))
    assert await asyncio.gather(*first) == [1, 1, 1]
    assert await other == 1
    assert await asyncio.gather(*later) == [2] * 5
    assert await shared.ask("q", counter.call) == 3


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    shared: FreshSingleflight[int] = FreshSingleflight()
    asked = [asyncio.create_task(shared.ask("q", Counter().call)) for _ in range(2)]
    await asyncio.sleep(0.5)
    asked[0].cancel()
    assert await asked[1] == 1


async def test_an_error_is_everybodys_and_the_next_call_is_a_new_one() -> None:
    shared: FreshSingleflight[int] = FreshSingleflight()

    async def fail() -> int:
        await asyncio.sleep(1)
        raise RuntimeError("no answer")

    outcomes = await asyncio.gather(*(shared.ask("q", fail) for _ in range(2)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["no answer", "no answer"]
    assert await shared.ask("q", Counter().call) == 1
    with pytest.raises(RuntimeError):
        await shared.ask("q", fail)
