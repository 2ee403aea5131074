"""Tasks that never wait leave the event loop to others after a few of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from lcm.core.controller.turns import Turns


async def test_a_few_tasks_continue_in_each_iteration_of_the_loop_and_in_order() -> None:
    turns, order = Turns(3), list[int]()

    async def compute(number: int) -> None:
        for _ in range(2):
            await turns.next()
            order.append(number)

    tasks = [asyncio.create_task(compute(number)) for number in range(7)]
    most, before = 0, 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        most, before = max(most, len(order) - before), len(order)
    assert most == 3
    assert order == [*range(7), *range(7)]


async def test_who_gives_up_does_not_take_a_turn() -> None:
    turns, went = Turns(1), list[str]()

    async def go(name: str) -> None:
        await turns.next()
        went.append(name)

    first, second = asyncio.create_task(go("first")), asyncio.create_task(go("second"))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    await second
    third = asyncio.create_task(go("third"))
    await third
    assert went == ["second", "third"]
