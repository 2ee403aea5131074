"""The first change passes at once, the tail is never lost."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.core.controller.watch import Debouncer
from tests.support.virtual.time import VirtualTimeLoop


class Sink:
    def __init__(self) -> None:
        self.seen: list[tuple[float, str, int]] = []

    def __call__(self, key: str, value: int) -> None:
        self.seen.append((round(asyncio.get_running_loop().time() - 1000.0, 6), key, value))


async def test_a_lone_change_waits_for_nothing() -> None:
    sink = Sink()
    Debouncer(0.5, sink).touch("a", 1)
    assert sink.seen == [(0.0, "a", 1)]


async def test_what_follows_is_gathered_into_one_at_the_end_of_the_window() -> None:
    """controllers.md#watch: debounce."""
    sink = Sink()
    debouncer: Debouncer[int] = Debouncer(0.5, sink)
    for value in range(5):
        debouncer.touch("a", value)
        await asyncio.sleep(0.05)
    await asyncio.sleep(10)
    assert sink.seen == [(0.0, "a", 0), (0.5, "a", 4)]


async def test_a_steady_stream_passes_once_per_window() -> None:
    sink = Sink()
    debouncer: Debouncer[int] = Debouncer(0.5, sink)
    for value in range(101):
        debouncer.touch("a", value)
        await asyncio.sleep(0.03)
    await asyncio.sleep(10)
    assert len(sink.seen) <= 8
    assert sink.seen[-1][2] == 100


async def test_one_busy_key_does_not_delay_another() -> None:
    sink = Sink()
    debouncer: Debouncer[int] = Debouncer(0.5, sink)
    debouncer.touch("a", 1)
    debouncer.touch("a", 2)
    await asyncio.sleep(0.1)
    debouncer.touch("b", 3)
    assert sink.seen == [(0.0, "a", 1), (0.1, "b", 3)]


async def test_without_a_window_everything_passes() -> None:
    sink = Sink()
    debouncer: Debouncer[int] = Debouncer(0.0, sink)
    for value in range(3):
        debouncer.touch("a", value)
    assert [value for _, _, value in sink.seen] == [0, 1, 2]


async def test_cancel_forgets_what_was_gathered() -> None:
    sink = Sink()
    debouncer: Debouncer[int] = Debouncer(0.5, sink)
    debouncer.touch("a", 1)
    debouncer.touch("a", 2)
    debouncer.cancel()
    await asyncio.sleep(5)
    assert [value for _, _, value in sink.seen] == [1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1.5), st.sampled_from("ab")), max_size=20))
def test_the_last_change_of_each_key_always_arrives_within_the_window(script: list[tuple[float, str]]) -> None:
    async def play() -> None:
        sink = Sink()
        debouncer: Debouncer[int] = Debouncer(0.5, sink)
        last: dict[str, tuple[float, int]] = {}
        for value, (pause, key) in enumerate(script):
            await asyncio.sleep(pause)
            debouncer.touch(key, value)
            last[key] = (asyncio.get_running_loop().time() - 1000.0, value)
        await asyncio.sleep(5)
        for key, (at, value) in last.items():
            arrived = [when for when, seen_key, seen in sink.seen if (seen_key, seen) == (key, value)]
            assert len(arrived) == 1
            assert arrived[0] - at <= 0.5 + 1e-5

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
