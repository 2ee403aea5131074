"""A few threads for calls that block, and a queue before them that can be left.

A thread cannot be cancelled. So a call waits for its turn on the event loop, where giving up is free, and a turn that a
thread has begun is not over until the thread has ended, whoever still waits for it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from lcm.cloud.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


class Threads:
    """At most `size` calls at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="lcm-aws")
        self._free = asyncio.Semaphore(size)

    async def run(self, prepare: Callable[[], Callable[[], R] | None]) -> R | None:
        """Wait for a thread, ask `prepare` what to do, and do it. None: there is nothing left to do."""
        await self._free.acquire()
        try:
            work = prepare()
            if work is None:
                self._free.release()
                return None
            future = self._submit(work)
        except BaseException:
            self._free.release()
            raise
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda ended: self._ended(loop, ended))
        return await asyncio.wrap_future(future)

    def _submit(self, work: Callable[[], R]) -> Future[R]:
        try:
            return self._pool.submit(work)
        except RuntimeError as error:
            raise Unreachable("not sent: the connection to AWS has been closed") from error

    def _ended(self, loop: asyncio.AbstractEventLoop, _: Future[R]) -> None:
        # The loop may be gone by the time a last call ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._free.release)

    async def close(self, patience: float) -> None:
        """Take no more calls, and wait a while for those under way."""
        taken = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while taken < self._size:
                    await self._free.acquire()
                    taken += 1
        self._pool.shutdown(wait=False, cancel_futures=True)
        # Whoever comes now or has waited all along gets a turn, and with it the news.
        for _ in range(taken):
            self._free.release()
