"""Retention of lablets: the records of those that ended long ago are removed. Their history stays in the journal."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog
from prometheus_client import Counter

from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.store.port import Delete, Sort, Where
from lcm.core import clock
from lcm.core.text import single_line
from lcm.model.audit import Actor, ActorKind
from lcm.model.base import Record
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.control_plane.store.port import DocumentPage, Store, StoredDocument

R = TypeVar("R", bound=Record)
log = structlog.get_logger(__name__)

LABLETS_REMOVED = Counter("lcm_lablets_removed_total", "Ended lablets whose record was removed")

RETENTION_ACTOR = Actor(kind=ActorKind.SYSTEM, name="retention")
_BATCH_SIZE = 100
_MAX_BATCHES = 100  # a run: the rest follows in the next one, so that commits of users never wait for long


async def remove_ended_lablets(unit_of_work: UnitOfWork, days: float) -> int:
    """Remove lablets that ended so many days ago, in small batches, each with an audit entry; returns the number."""
    if not days:
        return 0
    before = (clock.earliest_now() - timedelta(days=days)).isoformat()
    ended = Where(any_of={"status": sorted(FINAL_LABLET_STATUSES)}, below={"updated_at": before})
    reason, removed, after = f"ended more than {days:g} days ago", 0, None
    for _ in range(_MAX_BATCHES):
        page = await _page(unit_of_work.store, ended, after)
        removable = await _removable(unit_of_work.store, page.items)
        count = await unit_of_work.run(RETENTION_ACTOR, partial(_remove, removable, reason))
        LABLETS_REMOVED.inc(count)
        removed, after = removed + count, page.next_cursor
        if after is None:
            break
    return removed


async def _page(store: Store, where: Where, after: str | None) -> DocumentPage:
    """By the time of the last change, so that only the index of this field is read up to the first younger one."""
    return await store.find(LABLETS, where, sort=Sort("updated_at"), after=after, limit=_BATCH_SIZE)


async def _removable(store: Store, items: Sequence[StoredDocument]) -> list[StoredDocument]:
    """Those that are needed no more.

    A lab left behind is removed later, which needs the record of its lablet. And a class makes seats without a record.
    """
    readable = [(item, lablet) for item, lablet in _readable(items, Lablet) if not _is_in_class(lablet)]
    left = {item.id: {lab.worker_id for lab in lablet.left_behind} for item, lablet in readable}
    stored = await store.get_many(WORKERS, sorted(set().union(*left.values())))
    ended = {item.id for item, worker in _readable(stored.values(), Worker) if worker.status is WorkerStatus.TERMINATED}
    return [item for item in items if item.id in left and not left[item.id] & (stored.keys() - ended)]


def _is_in_class(lablet: Lablet) -> bool:
    return lablet.booking_id is not None and lablet.ends_at is not None and lablet.ends_at > clock.earliest_now()


def _readable(items: Iterable[StoredDocument], model: type[R]) -> Iterator[tuple[StoredDocument, R]]:
    """The records that can be read. The others stay: one that cannot be read must not stop the removal of all."""
    for item in items:
        try:
            yield item, model.model_validate_json(item.body)
        except ValueError as error:
            log.error("record cannot be read and stays", record=item.id, error=single_line(str(error), 300))


async def _remove(batch: Sequence[StoredDocument], reason: str, tx: Transaction) -> int:
    """Remove those that are still as they were read: another control plane may remove the same ones at once."""
    present = await tx.store.get_many(LABLETS, [item.id for item in batch])
    unchanged = [item for item in batch if item.id in present and present[item.id].revision == item.revision]
    for item in unchanged:
        tx.stage(Delete(LABLETS, item.id, item.revision))
    if unchanged:
        lablets = [item.id for item in unchanged]
        tx.audit("lablets_removed", "lablets", reason, count=len(lablets), lablets=lablets)
    return len(unchanged)
