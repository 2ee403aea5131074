"""Sweeps of regions, whenever the workers were listed, and waking those that are not as their record says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.core.hosting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lcm.controllers.worker.discovery.region_monitor import RegionWatch
    from lcm.controllers.worker.fleet_cache import Known


class Sweeping:
    """One loop for each region. `every`: seconds between sweeps that nobody asks for; None: all are asked for."""

    def __init__(
        self,
        regions: Mapping[str, RegionWatch],
        known: Known,
        wake: Callable[[str], None],
        every: float | None,
    ) -> None:
        self._regions = regions
        self._known = known
        self._wake = wake
        self._every = every
        self._asked = {region: asyncio.Event() for region in regions}

    def ask(self) -> None:
        """Sweep all regions now."""
        for event in self._asked.values():
            event.set()

    async def run(self, region: str) -> None:
        """Sweep one region for ever."""
        watch, asked = self._regions[region], self._asked[region]
        await watch.observer.start()
        try:
            while True:
                await wait_for(asked, self._every)
                asked.clear()
                if self._every is not None:
                    await self._known.read_fleet()  # nobody lists the workers, which would bring it along
                review = await watch.sweep(self._known.in_region(region))
                for worker_id in sorted(review.mismatched if review is not None else ()):
                    self._wake(worker_id)
        finally:
            await watch.observer.stop()
