"""Chores that a control plane does now and then, each failing alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import structlog

from lcm.core.hosting import HostedService, cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    MaintenanceTask: TypeAlias = Callable[[], Awaitable[int]]

log = structlog.get_logger(__name__)

MAINTENANCE_INTERVAL = 600.0


class MaintenanceService(HostedService):
    """Does all chores in turn; what one of them could not do it tries again the next time."""

    def __init__(self, chores: Mapping[str, MaintenanceTask], *, every: float = MAINTENANCE_INTERVAL) -> None:
        """A chore says how many things it has removed."""
        super().__init__("tidying")
        self._chores = chores
        self._every = every

    async def start(self) -> None:
        """The first time after a while: whoever has just started has better things to do."""
        self._spawn(self._run(), "chores")

    async def stop(self) -> None:
        """Give up a chore that is under way: each is one that can be left at any point."""
        await cancel_and_wait(list(self._background))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            for name, chore in self._chores.items():
                try:
                    removed = await chore()
                except Exception:
                    log.exception("a chore failed and is tried again later", chore=name, in_seconds=self._every)
                else:
                    log.debug("chore done", chore=name, removed=removed)
