"""Bookings by status, and those at risk, read from the store when Prometheus scrapes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.control_plane.records.kinds import BOOKINGS, find_all
from lcm.control_plane.store.port import StoreError, Where
from lcm.model.booking.record import BookingStatus
from lcm.model.booking.unreadable import read_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from lcm.control_plane.store.port import Store

_TIMEOUT_SECONDS: Final = 2.0


class BookingCollector(Collector):
    """The number of bookings in each status, and at risk. Without an answer of the store there is no sample."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, int] = {}
        self._at_risk: int | None = None
        self._risks: dict[str, tuple[int, bool]] = {}  # by booking: its revision, and whether it is at risk

    async def refresh(self) -> None:
        """Count them, right before they are collected."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                rows = await self._store.count_by(BOOKINGS, ["status"])
                self._at_risk = await self._count_at_risk()
        except (StoreError, TimeoutError, ValueError):  # ValueError: the store is not open
            self._counts, self._at_risk = {}, None
            return
        self._counts = {status.value: 0 for status in BookingStatus}
        self._counts |= {str(status): count for (status,), count, _ in rows}

    async def _count_at_risk(self) -> int:
        """Only bookings with a class ahead can be at risk, and one is read again only when it has changed."""
        risks: dict[str, tuple[int, bool]] = {}
        async for stored in find_all(self._store, BOOKINGS, Where(any_of={"watched": [True]})):
            known = self._risks.get(stored.id)
            if known is None or known[0] != stored.revision:
                booking = read_known(stored.body, stored.id)
                known = stored.revision, any(each.at_risk is not None for each in booking.occurrences)
            risks[stored.id] = known
        self._risks = risks
        return sum(at_risk for _, at_risk in risks.values())

    def collect(self) -> Iterator[Metric]:
        """One sample for each status, and one for those at risk."""
        family = GaugeMetricFamily("lcm_bookings", "Bookings by status", labels=["status"])
        for status, count in self._counts.items():
            family.add_metric([status], count)
        yield family
        at_risk = GaugeMetricFamily("lcm_bookings_at_risk", "Bookings with a class for which something is missing")
        if self._at_risk is not None:
            at_risk.add_metric([], self._at_risk)
        yield at_risk
