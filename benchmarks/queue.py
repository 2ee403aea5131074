"""The work queue compared with a bare deque and dictionary, in the same run."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.support.output import report
from lcm.core.controller.metrics import controller_metrics
from lcm.core.workqueue import WorkQueue

CYCLES = 300_000
WAKE_UPS = 100_000
ROUNDS = 3


class Controller:
    """Enough of a controller for its queue to be scraped."""

    name = "bench"
    is_leader = True
    term = 1

    def __init__(self) -> None:
        self.queue: WorkQueue[str] = WorkQueue(promote_after=30.0)


def bare(keys: list[str]) -> float:
    order: deque[str] = deque()
    waiting: dict[str, bool] = {}
    began = time.perf_counter()
    for key in keys:
        if key not in waiting:
            waiting[key] = True
            order.append(key)
        del waiting[order.popleft()]
    return len(keys) / (time.perf_counter() - began)


async def nobody_waits(keys: list[str]) -> float:
    controller, registry = Controller(), CollectorRegistry()
    controller_metrics("bench", registry).attach(controller)
    add, get, done = controller.queue.add, controller.queue.get, controller.queue.done
    began = time.perf_counter()
    for key in keys:
        add(key)
        done(await get())
    rate = len(keys) / (time.perf_counter() - began)
    assert f'bench_queue_wait_seconds_count{{controller="bench"}} {len(keys)}.0' in generate_latest(registry).decode()
    return rate


async def wake_up_each() -> float:
    """The consumer waits for every key; the producer yields after each."""
    queue: WorkQueue[int] = WorkQueue(promote_after=30.0)

    async def consume() -> None:
        for _ in range(WAKE_UPS):
            queue.done(await queue.get())

    consumer = asyncio.create_task(consume())
    await asyncio.sleep(0)
    began = time.perf_counter()
    for key in range(WAKE_UPS):
        queue.add(key)
        await asyncio.sleep(0)
    await consumer
    return WAKE_UPS / (time.perf_counter() - began)


def main() -> None:
    for count in (1, 1_000, 100_000):
        keys = [f"w-{number}" for number in range(count)] * (CYCLES // count)
        ours = max(asyncio.run(nobody_waits(keys)) for _ in range(ROUNDS))
        beside = max(bare(keys) for _ in range(ROUNDS))
        note = f"bare deque+dict {beside:,.0f}/s, ratio {beside / ours:.1f}"
        report(f"queue add+get+done, {count:,} keys, nobody waits", ours, "/s", aim="500,000", beside=note)
    report("queue producer to consumer, a wake-up each", asyncio_best(), "/s", aim="100,000")


def asyncio_best() -> float:
    return max(asyncio.run(wake_up_each()) for _ in range(ROUNDS))
