"""What the scheduler and the lablet controller read and write of lablets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, InternalGroup, Page, asked, path_to
from lcm.model.lablet.record import Lablet, LabletDefinition, ScheduledBatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lcm.client.base import Leader
    from lcm.model.lablet.record import LabletRelease, LabletStatusWrite, ScheduleBatch, Scheduled
    from lcm.model.lablet.status import LabletStatus


class InternalLablets(InternalGroup):
    """Lablets, for the role `controller` alone."""

    def lablets(
        self,
        *,
        exclude_statuses: Iterable[LabletStatus] = (),
        worker: Iterable[str] = (),
        page_size: int = PAGE,
    ) -> AsyncIterator[Lablet]:
        """Lablets that fit all filters."""
        query = asked(exclude_statuses=exclude_statuses, worker=worker)
        return self._pages("internal.lablets", path_to("internal", "lablets"), Page[Lablet], query, page_size)

    async def lablet(self, lablet_id: str) -> Lablet:
        """One lablet."""
        return await self._read("lablet", Lablet, "lablets", lablet_id)

    async def definition(self, definition_id: str) -> LabletDefinition:
        """What a lablet is made from, by its `definition`: name@version."""
        return await self._read("definition", LabletDefinition, "lablet-definitions", definition_id)

    async def schedule(self, leader: Leader, body: ScheduleBatch) -> tuple[Scheduled, ...]:
        """Workers for many lablets; each is reserved or refused on its own. The answers are in the order asked."""
        return (await self._write("schedule", leader, body, ScheduledBatch, "lablets", "schedule")).items

    async def lablet_status(self, leader: Leader, lablet_id: str, body: LabletStatusWrite) -> Lablet:
        """What was found or done."""
        return await self._write("lablet-status", leader, body, Lablet, "lablets", lablet_id, "status")

    async def release_lablet(self, leader: Leader, lablet_id: str, body: LabletRelease) -> Lablet:
        """Give its reservation back."""
        return await self._write("lablet-release", leader, body, Lablet, "lablets", lablet_id, "release")
