"""Background writes: one per key, and a failure is only logged."""

from __future__ import annotations

import asyncio

import structlog

from lcm.control_plane.auth.cache import BackgroundWrites


async def test_at_most_one_write_per_key_at_a_time() -> None:
    background = BackgroundWrites()
    written: list[str] = []

    async def write() -> None:
        await asyncio.sleep(1)
        written.append("once")

    for key in ("a", "a", "b"):
        background.start(key, write)
    await background.finish()
    assert written == ["once", "once"]
    background.start("a", write)
    await background.finish()
    assert len(written) == 3


async def test_a_failed_write_is_logged_and_frees_its_key() -> None:
    background = BackgroundWrites()

    async def fail() -> None:
        raise ValueError("no room")

    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            background.start("t-1", fail)
            await background.finish()
    assert [(line["key"], line["error"]) for line in lines] == [("t-1", "no room")] * 2
