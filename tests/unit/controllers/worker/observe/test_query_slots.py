"""Slots for queries: a query that lasts long goes on in a slot for slow servers, and others have its own."""

from __future__ import annotations

import asyncio

from lcm.controllers.worker.observe.query_slots import PROMPT_SECONDS, SLOW_FACTOR, QuerySlots
from lcm.core.hosting import cancel_and_wait


class Scene:
    """Two slots, and queries that note when they had one and when they became slow."""

    def __init__(self) -> None:
        self.slots = QuerySlots(2)
        self.began: list[float] = []
        self.slow: list[float] = []
        self.queries: list[asyncio.Task[None]] = []
        self._start = asyncio.get_running_loop().time()

    def query(self, seconds: float, *, is_slow: bool = False) -> None:
        self.queries.append(asyncio.create_task(self._query(seconds, is_slow=is_slow)))

    async def _query(self, seconds: float, *, is_slow: bool) -> None:
        async with self.slots.slot(is_slow=is_slow, on_slow=lambda: self.slow.append(self.now)):
            self.began.append(self.now)
            await asyncio.sleep(seconds)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() - self._start


async def test_prompt_queries_wait_for_each_other() -> None:
    scene = Scene()
    for _ in range(6):
        scene.query(1)
    await asyncio.gather(*scene.queries)
    assert (scene.began, scene.slow) == ([0, 0, 1, 1, 2, 2], [])


async def test_a_slow_query_keeps_its_slot_for_seconds_only() -> None:
    scene = Scene()
    for _ in range(6):
        scene.query(45)
    await asyncio.gather(*scene.queries)
    moved = [turn * PROMPT_SECONDS for turn in range(4)]
    assert scene.began == [at for at in moved[:3] for _ in range(2)]
    assert scene.slow == [at for at in moved[1:] for _ in range(2)]


async def test_slow_queries_wait_for_each_other_when_their_slots_are_taken() -> None:
    scene = Scene()
    for _ in range(2 * SLOW_FACTOR):
        scene.query(45, is_slow=True)
    for _ in range(3):
        scene.query(40)
    await asyncio.gather(*scene.queries)
    assert scene.began == [0] * (2 * SLOW_FACTOR + 2) + [40]
    assert scene.slow == [45], "the others had ended before"


async def test_cancelled_queries_give_their_slots_back() -> None:
    scene = Scene()
    for _ in range(4):
        scene.query(45)
    scene.query(45, is_slow=True)
    await asyncio.sleep(PROMPT_SECONDS + 1)
    await cancel_and_wait(scene.queries)
    again = Scene()
    again.slots = scene.slots
    for _ in range(2):
        again.query(1)
    for _ in range(2 * SLOW_FACTOR):
        again.query(1, is_slow=True)
    await asyncio.gather(*again.queries)
    assert set(again.began) == {0}
