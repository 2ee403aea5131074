"""Tasks of the running loop: one that outlives its test fails that test."""

from __future__ import annotations

import asyncio

# A call under way may end by itself. On a virtual loop a minute costs nothing.
patience = 60.0


async def assert_none_is_left() -> None:
    """Wait for tasks that are about to end."""
    left = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=patience)
    assert not left, f"tasks outlive the test: {left}"
