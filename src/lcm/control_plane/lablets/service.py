"""Operations on lablets that people request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets import lifecycle
from lcm.control_plane.lablets.access import LabletAccessReader
from lcm.control_plane.lablets.definitions import resolve_definition
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import LABLET_HISTORY, LABLETS
from lcm.core import clock
from lcm.model.lablet.record import Lablet
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sort, StoredDocument, Where
    from lcm.model.lablet.access import LabletAccess
    from lcm.model.lablet.record import CreateLabletRequest


class LabletService:
    """Reads and changes lablets on behalf of people. Changes return the lablet's JSON."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._access = LabletAccessReader(context.store)

    async def page(self, where: Where, sort: Sort, after: str | None, limit: int) -> DocumentPage:
        """A page of lablets, undecoded."""
        return await self._context.store.find(LABLETS, where, sort=sort, after=after, limit=limit)

    async def get(self, lablet_id: str) -> StoredDocument:
        """One lablet, undecoded."""
        stored = await self._context.store.get(LABLETS, lablet_id)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no lablet {lablet_id}")
        return stored

    async def access(self, lablet_id: str) -> LabletAccess:
        """How to reach a lablet now."""
        return await self._access.read(Lablet.model_validate_json((await self.get(lablet_id)).body))

    async def history(self, lablet_id: str, after: str | None, limit: int) -> Sequence[JournalEntry]:
        """A lablet's status transitions, oldest first. They are kept longer than the record of an ended lablet."""
        entries = await self._context.store.read_journal(
            topics=[LABLET_HISTORY], subjects=[lablet_id], after=after, limit=limit
        )
        if not entries and after is None:
            await self.get(lablet_id)
        return entries

    async def create(self, caller: Caller, request: CreateLabletRequest, key: IdempotencyKey | None = None) -> bytes:
        if request.aws_region is not None:
            self._context.region(request.aws_region)
        lablet_id = clock.new_id("l")

        async def attempt(tx: Transaction) -> Lablet:
            definition = await resolve_definition(tx.store, request.definition)
            lablet = lifecycle.build_lablet(request, definition, lablet_id=lablet_id, by=caller.name, now=tx.now)
            return tx.save_lablet(lablet, "created", definition=definition.id)

        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)

    async def terminate(
        self,
        caller: Caller,
        lablet_id: str,
        *,
        reason: str | None = None,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Request the end of a lablet. A repeated request changes nothing."""

        async def attempt(tx: Transaction) -> Lablet:
            lablet = await tx.lablet(lablet_id, if_match=if_match)
            after = lifecycle.request_termination(lablet, tx.now, reason or "")
            return await save_and_release(tx, lablet, after, "terminate", reason or "")

        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)


async def save_and_release(tx: Transaction, before: Lablet, after: Lablet, action: str, reason: str) -> Lablet:
    """Save a lablet; if it leaves its worker, its reservation there is released in the same commit."""
    if before.assigned and not after.assigned and before.worker_id is not None:
        worker = await tx.worker(before.worker_id)
        tx.save_worker(
            lifecycle.release_reservations(worker, [before], tx.now), "lablet_released", reason, lablet=before.id
        )
    return tx.save_lablet(after, action, reason, status=after.status.value)
