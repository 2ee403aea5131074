"""Reads what EC2 reports about the health of a region's instances: announced maintenance, and failed status checks.

Three calls a region, however many instances it has. Each region has a loop of its own, so that one that does not
respond delays no other. A read that failed changes nothing: what is not known is not healthy.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from lcm.controllers.worker.observe.observation import HealthObservation
from lcm.core import clock
from lcm.core.logs import FailureLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import HealthNotice
    from lcm.model.worker.record import Worker

READ_INTERVAL: Final = 300.0
READ_TIMEOUT: Final = 120.0
OUTDATED_AFTER: Final = 3 * READ_INTERVAL
"""Seconds after which a read says nothing about the present any more."""


class HealthMonitor:
    """The health of one region's instances, for one leader at a time. Times are of `clock.boottime()`."""

    def __init__(
        self,
        cloud: CloudProviderSPI,
        region: str,
        workers: Callable[[], Iterable[Worker]],
        wake: Callable[[str], None],
    ) -> None:
        self.region = region
        self._cloud = cloud
        self._what = f"reading the health of instances in {region}"
        self._workers = workers
        self._wake = wake
        self._failures = FailureLog()
        self._began_at = float("-inf")
        self._notices: Mapping[str, tuple[HealthNotice, ...]] = {}

    async def run(self) -> None:
        """Read every five minutes, until cancelled."""
        while True:
            await self.read()
            await asyncio.sleep(READ_INTERVAL)

    async def read(self) -> bool:
        """Read once; returns whether that succeeded. Workers with something to record are woken."""
        began_at = clock.boottime()
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                notices = await self._cloud.health(self.region)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the region, the next read may succeed
            self._failures.note(self._what, error)
            return False
        self._failures.note(self._what, None)
        by_instance: defaultdict[str, list[HealthNotice]] = defaultdict(list)
        for notice in notices:
            by_instance[notice.instance_id].append(notice)
        self._began_at = began_at
        self._notices = {instance_id: tuple(found) for instance_id, found in by_instance.items()}
        for worker in list(self._workers()):
            if self._concerns(worker):
                self._wake(worker.id)
        return True

    def observation(self, instance_id: str, not_before: float) -> HealthObservation | None:
        """What the last read says about an instance; None if it began before `not_before`, or too long ago."""
        if self._began_at < max(not_before, clock.boottime() - OUTDATED_AFTER):
            return None
        return HealthObservation(self._notices.get(instance_id, ()))

    def _concerns(self, worker: Worker) -> bool:
        """Whether a pass over the worker may have something to record, or to do."""
        recorded = worker.maintenance is not None or worker.is_impaired or bool(worker.maintenance_restarts)
        return worker.instance_id is not None and (recorded or worker.instance_id in self._notices)
