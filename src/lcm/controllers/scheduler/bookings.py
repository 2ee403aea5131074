"""Has bookings carried out: at each of their boundaries, and often while a class warms up or takes place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.scheduler.controller import SchedulerCounters

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5.0
MIN_SECONDS = 1.0


class BookingLoop:
    """The bookings of one leader. What is due follows from the records, so a request that fails is simply repeated."""

    def __init__(self, internal: InternalApi, leader: Callable[[], Leader], counters: SchedulerCounters) -> None:
        self._internal = internal
        self._leader = leader
        self._counters = counters

    async def run(self) -> None:
        """Run until the term ends."""
        delay = 0.0
        while True:
            await asyncio.sleep(delay)
            delay = await self._advance()

    async def _advance(self) -> float:
        """One step; returns the seconds until the next one."""
        try:
            progress = await self._internal.advance_bookings(self._leader())
        except ClientError as error:
            log.warning("bookings could not be carried out; trying again", error=str(error))
            return RETRY_SECONDS
        self._counters.booking_under_way_count = progress.under_way
        self._counters.skipped_booking_count = progress.skipped
        return max(MIN_SECONDS, progress.next_in)
