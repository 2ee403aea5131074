"""Whether the store takes writes now: a write is tried every second, and the result is known within two."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_PAUSE_SECONDS = 0.9
_MAX_SILENCE = 1.0  # a write that takes longer counts as refused, long before the store's own timeout


class WriteProbe:
    """Tries a write again and again. `check` raises the reason why it failed; it has a timeout of its own."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._problem = "not checked yet"
        self._waiting_since: float | None = None

    async def run(self) -> None:
        """Probe until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._waiting_since = loop.time()
            try:
                await self._check()
                self._problem = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, the store took no write
                self._problem = str(error)
            self._waiting_since = None
            await asyncio.sleep(_PAUSE_SECONDS)

    def problem(self) -> str:
        """Why the store takes no writes; empty if the last one succeeded and none has been waiting for long."""
        if self._problem or self._waiting_since is None:
            return self._problem
        silence = asyncio.get_running_loop().time() - self._waiting_since
        return f"no response to a write for {silence:.0f} s" if silence >= _MAX_SILENCE else ""
