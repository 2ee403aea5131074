"""Bookings by status, read from the store when Prometheus scrapes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.control_plane.records.kinds import BOOKINGS
from lcm.control_plane.store.port import StoreError
from lcm.model.booking.record import BookingStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from lcm.control_plane.store.port import Store

_TIMEOUT_SECONDS: Final = 2.0


class BookingCollector(Collector):
    """The number of bookings in each status. Without an answer of the store there is no sample."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, int] = {}

    async def refresh(self) -> None:
        """Count them, right before they are collected."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                rows = await self._store.count_by(BOOKINGS, ["status"])
        except (StoreError, TimeoutError, ValueError):  # ValueError: the store is not open
            self._counts = {}
            return
        self._counts = {status.value: 0 for status in BookingStatus}
        self._counts |= {str(status): count for (status,), count, _ in rows}

    def collect(self) -> Iterator[Metric]:
        """One sample for each status."""
        family = GaugeMetricFamily("lcm_bookings", "Bookings by status", labels=["status"])
        for status, count in self._counts.items():
            family.add_metric([status], count)
        yield family
