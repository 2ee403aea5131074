"""Calls with external effects.

Such a call cannot be undone once it is sent, so it is never cancelled: the caller may stop waiting for it, but the key
it runs for stays busy until it has really ended. Otherwise a second pass would act on what the first one is still
changing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from lcm.core.authorization import authorized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.core.authorization import SendAuthorization

R = TypeVar("R")
log = structlog.get_logger(__name__)


class EffectTimeoutError(TimeoutError):
    """The call did not end in time. It may still take effect: read the current state before retrying."""

    condition_reason = "EffectTimeout"


class EffectTracker:
    """The calls in flight, by key."""

    def __init__(self) -> None:
        self._running: dict[str, set[asyncio.Future[Any]]] = {}

    async def run(self, key: str, call: Callable[[], Awaitable[R]], authorization: SendAuthorization) -> R:
        """Make the call under this authorization, and wait for its response until its deadline."""
        authorization.check()
        limit = authorization.response_seconds()
        with authorized(authorization):
            task = asyncio.ensure_future(call())
        self._running.setdefault(key, set()).add(task)
        task.add_done_callback(lambda ended: self._ended(key, ended))
        done, _ = await asyncio.wait([task], timeout=limit)
        if not done:
            log.warning("call exceeded its deadline", key=key, limit_seconds=round(limit, 1))
            raise EffectTimeoutError(f"no response within {limit:.1f} s; the call may still take effect")
        return task.result()

    def pending(self, key: str) -> bool:
        """Whether a call for the key is in flight."""
        return key in self._running

    async def wait_settled(self, key: str) -> None:
        """Return once no call for the key is in flight."""
        while key in self._running:
            await asyncio.wait(self._running[key])

    def _ended(self, key: str, task: asyncio.Future[Any]) -> None:
        running = self._running[key]
        running.discard(task)
        if not running:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved: the caller may have stopped waiting
