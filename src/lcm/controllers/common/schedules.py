"""Schedules as a controller keeps them: read again only when the state of the fleet says that one has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcm.client.resources.internal import InternalApi
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.fleet.state import FleetState


class ScheduleCache:
    """All schedules of the fleet. Without any, nothing is ever requested."""

    def __init__(self, internal: InternalApi) -> None:
        self._internal = internal
        self._version = ""
        self.schedules: tuple[Schedule, ...] = ()

    async def refresh(self, fleet: FleetState) -> tuple[Schedule, ...]:
        """Read them if they differ from those that are kept. They are at least as new as the state of the fleet."""
        version = fleet.schedules_version
        if version != self._version:
            self.schedules = await self._internal.schedules() if version else ()
            self._version = version
        return self.schedules
