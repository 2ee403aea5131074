"""The simulation's event loop: time, order, and the life of nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lcm.core import clock
from tests.simulation.world.loop import HaltedError, Node, SeededLoop, StalledError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


KEPT: list[SeededLoop] = []  # garbage collection would run the `finally` blocks of dead nodes


def play(seed: int, scene: Callable[[SeededLoop], Coroutine[Any, Any, Any]]) -> tuple[Any, SeededLoop]:
    loop = SeededLoop(seed)
    KEPT.append(loop)
    return loop.run_until_complete(Node(loop, "world").run(scene(loop))), loop


async def _order(_: SeededLoop) -> list[int]:
    seen: list[int] = []

    async def note(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)

    await asyncio.gather(*(note(number) for number in range(8)))
    return seen


def test_the_seed_decides_the_order() -> None:
    orders = {tuple(play(seed, _order)[0]) for seed in range(20)}
    assert len(orders) > 10
    assert play(3, _order)[0] == play(3, _order)[0]
    assert play(3, _order)[1].trace == play(3, _order)[1].trace


def test_a_dead_node_runs_nothing_more_and_no_finally() -> None:
    async def scene(loop: SeededLoop) -> list[str]:
        steps: list[str] = []

        async def work() -> None:
            try:
                steps.append("began")
                await asyncio.sleep(10)
                steps.append("went on")
            finally:
                steps.append("cleaned up")

        node = Node(loop, "victim")
        node.run(work())
        await asyncio.sleep(1)
        node.kill()
        await asyncio.sleep(60)
        return steps

    assert play(1, scene)[0] == ["began"]


def test_a_node_dies_at_the_step_it_is_doomed_to() -> None:
    async def scene(loop: SeededLoop) -> int:
        node, steps = Node(loop, "victim"), 0

        async def work() -> None:
            nonlocal steps
            while True:
                steps += 1
                await asyncio.sleep(0)

        node.doomed_at = 7
        node.run(work())
        await asyncio.sleep(1)
        assert node.dead
        return steps

    assert play(1, scene)[0] == 6


def test_a_paused_node_resumes_later() -> None:
    async def scene(loop: SeededLoop) -> list[float]:
        node, moments = Node(loop, "sleeper"), []

        async def work() -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                moments.append(loop.now - 1000)

        node.run(work())
        await asyncio.sleep(1.5)
        node.pause(20)
        await asyncio.sleep(60)
        return moments

    first, second, third = play(1, scene)[0]
    assert first == pytest.approx(1.0)
    assert second == pytest.approx(21.5)
    assert third == pytest.approx(22.5)


def test_timers_of_a_fast_clock_are_shorter() -> None:
    async def scene(loop: SeededLoop) -> tuple[float, float]:
        node = Node(loop, "hasty", rate=2.0)

        async def work() -> tuple[float, float]:
            began = clock.boottime()
            await asyncio.sleep(10)
            return clock.boottime() - began, loop.now - 1000

        return await node.run(work())  # type: ignore[no-any-return]

    by_its_clock, in_the_world = play(1, scene)[0]
    assert by_its_clock == pytest.approx(10.0)
    assert in_the_world == pytest.approx(5.0)


def test_a_deadlock_is_detected() -> None:
    async def scene(_: SeededLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError):
        play(1, scene)


def test_threads_are_rejected() -> None:
    async def scene(loop: SeededLoop) -> None:
        await loop.run_in_executor(None, lambda: None)

    with pytest.raises(AssertionError, match="threads"):
        play(1, scene)


def test_a_run_that_is_halted_ends_at_once() -> None:
    async def scene(loop: SeededLoop) -> None:
        while True:
            await asyncio.sleep(1)
            if loop.now > 1010:
                loop.halted = "a worker is in a hot loop"

    with pytest.raises(HaltedError, match="a worker is in a hot loop"):
        play(1, scene)
