"""The last decision for each worker: beside the record, without moving it and without anybody being told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import DECISIONS, WORKERS
from lcm.control_plane.store.port import Put
from lcm.model.decision import DecisionReport
from lcm.model.worker.metrics import BatchResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store, StoredDocument
    from lcm.model.worker.requests import WorkerDecision


async def read_decisions(store: Store, worker_ids: Sequence[str]) -> Mapping[str, DecisionReport]:
    """The last decisions that controllers reported for these workers; without those for whom there is none."""
    stored = await store.get_many(DECISIONS, worker_ids)
    return {worker_id: DecisionReport.model_validate_json(each.body) for worker_id, each in stored.items()}


async def read_decision(store: Store, worker_id: str) -> DecisionReport | None:
    """The last decision that a controller reported for a worker."""
    return (await read_decisions(store, [worker_id])).get(worker_id)


async def store_decision(change: Transaction, worker_id: str, decision: DecisionReport) -> None:
    """Keep the decision behind a change of the worker's record."""
    _stage_decision(change, worker_id, await change.store.get(DECISIONS, worker_id), decision)


async def store_decisions(change: Transaction, items: Sequence[WorkerDecision]) -> BatchResult:
    """Keep the newest decision for each known worker; the rest is counted."""
    workers = await change.store.get_many(WORKERS, [item.worker_id for item in items])
    newest: dict[str, DecisionReport] = {}
    for item in items:
        before = newest.get(item.worker_id)
        if item.worker_id in workers and (before is None or item.decision.decided_at >= before.decided_at):
            newest[item.worker_id] = item.decision
    stored = await change.store.get_many(DECISIONS, list(newest))
    kept = sum(
        _stage_decision(change, worker_id, stored.get(worker_id), decision) for worker_id, decision in newest.items()
    )
    return BatchResult(kept=kept, dropped=len(items) - kept)


def _stage_decision(
    change: Transaction, worker_id: str, stored: StoredDocument | None, decision: DecisionReport
) -> bool:
    """Have it written unless a later one is known; says whether it counts.

    Decisions travel by two ways, alone and with a status, so that an older one can arrive after a newer.
    """
    known = None if stored is None else DecisionReport.model_validate_json(stored.body)
    if known is not None and decision.decided_at < known.decided_at:
        return False
    if decision != known:
        revision = None if stored is None else stored.revision
        change.write(Put(DECISIONS, worker_id, decision.model_dump_json().encode(), revision))
    return True
