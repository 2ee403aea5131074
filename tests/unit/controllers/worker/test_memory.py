"""What a leader remembers of workers between passes."""

from __future__ import annotations

from lcm.controllers.worker.memory import WorkerMemories
from lcm.core import clock
from tests.support.records.workers import a_worker


async def test_what_is_remembered_of_a_worker_ends_with_it() -> None:
    """Otherwise a leader's memory would grow with every worker that there ever was."""
    memories, alpha, bravo = WorkerMemories(), a_worker(), a_worker(id="w-2", name="bravo")
    kept = memories.get(bravo)
    for number in range(100):
        memories.get(a_worker(id=f"w-{number + 10}"))
    dropped = memories.get(alpha)
    memories.refresh([bravo], clock.boottime())
    assert memories.get(bravo) is kept
    assert memories.get(alpha) is not dropped
    assert len(memories._memories) == 2
