"""Kopf's queueing on resources that need nothing; run with Kopf's own environment. Prints resources per second.

Kopf's watch is replaced by a list of events, so that there is neither a cluster nor a network.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import kopf  # type: ignore[import-not-found]
from kopf._cogs.clients import watching  # type: ignore[import-not-found]
from kopf._cogs.structs.references import Resource  # type: ignore[import-not-found]
from kopf._core.reactor import queueing  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def measure(count: int) -> float:
    """Resources per second, from the first event until the last resource was processed."""
    left, all_done = count, asyncio.Event()

    async def events(**_: Any) -> AsyncIterator[dict[str, Any]]:
        for number in range(count):
            yield {"type": "ADDED", "object": {"metadata": {"uid": f"w-{number}", "resourceVersion": "1"}}}
        await all_done.wait()

    async def process(**_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    watching.infinite_watch = events
    settings = kopf.OperatorSettings()
    resource = Resource("bench.example", "v1", "workers", namespaced=True)
    began = time.perf_counter()
    task = asyncio.create_task(
        queueing.watcher(namespace=None, settings=settings, resource=resource, processor=process)
    )
    await asyncio.wait([task, asyncio.create_task(all_done.wait())], return_when=asyncio.FIRST_COMPLETED)
    rate = count / (time.perf_counter() - began)
    await task
    return rate


print(asyncio.run(measure(int(sys.argv[1]))))
