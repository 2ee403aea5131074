"""Calls that change the world outside.

Such a call cannot be taken back once it is sent, so it is never cancelled: whoever waits for it may give up, but the
key on whose behalf it runs stays busy until it has really ended. Otherwise a second pass would act on what the first
one is still changing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")
log = structlog.get_logger(__name__)


class EffectTimeoutError(TimeoutError):
    """The call did not end in time. It may still take effect: look before trying again."""


class EffectTracker:
    """The calls under way, by key."""

    def __init__(self) -> None:
        self._running: dict[str, set[asyncio.Future[Any]]] = {}

    async def run(self, key: str, call: Callable[[], Awaitable[R]], limit: float) -> R:
        """Make the call and wait for it at most `limit` seconds."""
        task = asyncio.ensure_future(call())
        self._running.setdefault(key, set()).add(task)
        task.add_done_callback(lambda ended: self._ended(key, ended))
        done, _ = await asyncio.wait([task], timeout=limit)
        if not done:
            log.warning("call outlives its deadline", key=key, limit_seconds=limit)
            raise EffectTimeoutError(f"no answer within {limit:g} s; the call may still take effect")
        return task.result()

    def pending(self, key: str) -> bool:
        """Whether a call on behalf of the key is still under way."""
        return key in self._running

    async def settled(self, key: str) -> None:
        """Returns once no call on behalf of the key is under way."""
        while key in self._running:
            await asyncio.wait(self._running[key])

    def _ended(self, key: str, task: asyncio.Future[Any]) -> None:
        running = self._running[key]
        running.discard(task)
        if not running:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # looked at: whoever gave up waiting does not ask any more
