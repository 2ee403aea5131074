"""Wakes the workers that a schedule wants to be stopped or started, also those at rest, which are not polled."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.core import clock
from lcm.model.calendar.schedule import due_change, first_boundary

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.controllers.worker.fleet_cache import FleetCache

_PER_TURN = 100
_AFTER_BOUNDARY = timedelta(milliseconds=10)
"""A timer may fire a little early: then the boundary would be missed until the next check."""


class ScheduleWatch:
    """Compares all workers with their schedules in every cycle, and when the next window opens or closes."""

    def __init__(self, cache: FleetCache, wake: Callable[[str], None], interval: float) -> None:
        self._cache = cache
        self._wake = wake
        self._interval = interval

    async def run(self, is_polling: bool) -> None:
        """Check until cancelled. Polling reads the state of the fleet in every cycle; without it this does."""
        while True:
            await asyncio.sleep(self._next_check(clock.earliest_now()))
            if not is_polling:
                await self._cache.read_fleet()
            await self.check(clock.earliest_now())

    async def check(self, now: datetime) -> None:
        """Queue the workers for which something is due."""
        schedules = self._cache.schedules
        if not any(each.enabled for each in schedules):
            return
        for number, worker in enumerate(list(self._cache.records.values()), start=1):
            if due_change(worker, schedules, now) is not None:
                self._wake(worker.id)
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)

    def _next_check(self, now: datetime) -> float:
        boundary = first_boundary(self._cache.schedules, now)
        if boundary is None:
            return self._interval
        return min(self._interval, (boundary + _AFTER_BOUNDARY - now).total_seconds())
