"""What people do with lablets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.lablets import lifecycle as commands
from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.lablets.lifecycle import release_reservations
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import LABLET_HISTORY, LABLETS
from lcm.core import clock
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sort, StoredDocument, Where
    from lcm.model.lablet.record import CreateLabletRequest, Lablet


class LabletService:
    """Reads and changes of lablets on behalf of people. Changes answer with the lablet's JSON."""

    def __init__(self, plane: ControlPlaneContext) -> None:
        self._plane = plane

    async def page(self, where: Where, sort: Sort, after: str | None, limit: int) -> DocumentPage:
        """Some lablets, undecoded."""
        return await self._plane.store.find(LABLETS, where, sort=sort, after=after, limit=limit)

    async def get(self, lablet_id: str) -> StoredDocument:
        """One lablet, undecoded."""
        stored = await self._plane.store.get(LABLETS, lablet_id)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no lablet {lablet_id}")
        return stored

    async def history(self, lablet_id: str, after: str | None, limit: int) -> Sequence[JournalEntry]:
        """A lablet's steps, oldest first."""
        await self.get(lablet_id)
        return await self._plane.store.journal(topics=[LABLET_HISTORY], subjects=[lablet_id], after=after, limit=limit)

    async def create(self, caller: Caller, request: CreateLabletRequest, key: IdempotencyKey | None = None) -> bytes:
        """A new lablet."""
        if request.aws_region is not None:
            self._plane.region(request.aws_region)
        lablet_id = clock.new_id("l")

        async def attempt(change: Transaction) -> Lablet:
            definition = await resolve_definition(change.store, request.definition)
            lablet = commands.build_lablet(request, definition, lablet_id=lablet_id, by=caller.name, now=change.now)
            return change.save_lablet(lablet, "created", definition=definition.id)

        return await run_idempotent(self._plane.records, caller.actor, key, attempt)

    async def terminate(
        self,
        caller: Caller,
        lablet_id: str,
        *,
        reason: str | None = None,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Want it ended; asked again it changes nothing."""

        async def attempt(change: Transaction) -> Lablet:
            lablet = await change.lablet(lablet_id)
            if if_match is not None and if_match != lablet.version:
                raise PreconditionFailedError("lablet", lablet.version, if_match)
            after = commands.request_termination(lablet, change.now, reason or "")
            return await save_and_release(change, lablet, after, "terminate", reason or "")

        return await run_idempotent(self._plane.records, caller.actor, key, attempt)


async def save_and_release(change: Transaction, before: Lablet, after: Lablet, action: str, reason: str) -> Lablet:
    """Write a lablet; if it has left its worker with that, what it took there is given back in the same commit."""
    if before.assigned and not after.assigned and before.worker_id is not None:
        worker = await change.worker(before.worker_id)
        change.save(release_reservations(worker, [before], change.now), "lablet_released", reason, lablet=before.id)
    return change.save_lablet(after, action, reason, status=after.status.value)
