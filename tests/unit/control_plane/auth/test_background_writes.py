"""Writes beside a request: one a key, and their failures are nobody's but the log's."""

from __future__ import annotations

import asyncio

import structlog

from lcm.control_plane.auth.cache import BackgroundWrites


async def test_one_write_a_key_at_a_time() -> None:
    aside = BackgroundWrites()
    written: list[str] = []

    async def write() -> None:
        await asyncio.sleep(1)
        written.append("once")

    for key in ("a", "a", "b"):
        aside.start(key, write)
    await aside.finish()
    assert written == ["once", "once"]
    aside.start("a", write)
    await aside.finish()
    assert len(written) == 3


async def test_a_failure_is_logged_and_the_key_is_free_again() -> None:
    aside = BackgroundWrites()

    async def fail() -> None:
        raise ValueError("no room")

    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            aside.start("t-1", fail)
            await aside.finish()
    assert [(line["about"], line["error"]) for line in lines] == [("t-1", "no room")] * 2
