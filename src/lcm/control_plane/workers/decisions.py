"""The last decision for each worker. It is stored apart from the record: no version changes, no event is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import DECISIONS, WORKERS
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Put
from lcm.model.audit import DecisionReport
from lcm.model.worker.metrics import BatchResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.records.unit_of_work import Leader, Transaction
    from lcm.control_plane.store.port import Store, StoredDocument
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import WorkerDecision


async def read_decisions(store: Store, worker_ids: Sequence[str]) -> Mapping[str, DecisionReport]:
    """The last reported decisions for these workers; a worker without one that can be read is left out."""
    stored = await store.get_many(DECISIONS, worker_ids)
    found = {worker_id: read_or_skip(each, DecisionReport, "decision") for worker_id, each in stored.items()}
    return {worker_id: decision for worker_id, decision in found.items() if decision is not None}


async def read_decision(store: Store, worker_id: str) -> DecisionReport | None:
    """The last reported decision for a worker."""
    return (await read_decisions(store, [worker_id])).get(worker_id)


async def store_decision(tx: Transaction, leader: Leader, after: Worker, decision: DecisionReport) -> None:
    """Store the decision behind a change of the worker's record: it belongs to the record after that change."""
    decision = decision.model_copy(update={"version": after.version, "generation": after.generation})
    _stage_decision(tx, leader, after.id, await tx.store.get(DECISIONS, after.id), decision)


async def store_decisions(tx: Transaction, leader: Leader, items: Sequence[WorkerDecision]) -> BatchResult:
    """Store the newest decision for each known worker; the others are counted as dropped."""
    workers = await tx.store.get_many(WORKERS, [item.worker_id for item in items])
    newest: dict[str, DecisionReport] = {}
    for item in items:
        before = newest.get(item.worker_id)
        if item.worker_id in workers and (before is None or item.decision.decided_at >= before.decided_at):
            newest[item.worker_id] = item.decision
    stored = await tx.store.get_many(DECISIONS, list(newest))
    kept = sum(
        _stage_decision(tx, leader, worker_id, stored.get(worker_id), decision)
        for worker_id, decision in newest.items()
    )
    return BatchResult(kept=kept, dropped=len(items) - kept)


def _stage_decision(
    tx: Transaction, leader: Leader, worker_id: str, stored: StoredDocument | None, decision: DecisionReport
) -> bool:
    """Stage the decision unless a newer one is stored; returns whether it is the newest.

    Decisions arrive in two ways, alone and with a status write, so an older one can arrive after a newer one.
    """
    decision = decision.model_copy(update={"term": leader.term})
    current = None if stored is None else read_or_skip(stored, DecisionReport, "decision")
    if current is not None and leader.is_outdated(decision.decided_at, current.decided_at, tx.now):
        return False
    if decision != current:
        revision = None if stored is None else stored.revision
        tx.stage(Put(DECISIONS, worker_id, decision.model_dump_json().encode(), revision))
    return True
