"""Fields that came with a newer version, filled in for records that an older one wrote.

What a store is asked by stands beside each document. A field that is new is empty for all that were written before, so
they would be missing from a list that is sorted or filtered by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.records.kinds import (
    LABLETS,
    WORKERS,
    lablet_fields,
    lablet_unique_keys,
    worker_fields,
    worker_unique_keys,
)
from lcm.control_plane.store.port import Put, RevisionConflictError, Where
from lcm.model.lablet.record import Lablet
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.control_plane.store.port import Kind, Store, StoredDocument

log = structlog.get_logger(__name__)

_NEWEST_FIELD = "urgency"
_PAGE = 100


async def backfill_fields(store: Store) -> int:
    """Write the fields of records that lack the newest one; says how many. Bodies and versions stay as they are."""
    workers = await _backfill_kind(store, WORKERS, _worker_put)
    lablets = await _backfill_kind(store, LABLETS, _lablet_put)
    if workers or lablets:
        log.info("filled in fields that are new in this version", workers=workers, lablets=lablets)
    return workers + lablets


async def _backfill_kind(store: Store, kind: Kind, anew: Callable[[StoredDocument], Put]) -> int:
    refilled = 0
    lacking = Where(any_of={_NEWEST_FIELD: [None]})
    while True:
        page = await store.find(kind, lacking, limit=_PAGE)
        if not page.items:
            return refilled
        for stored in page.items:
            refilled += await _try_commit(store, anew(stored))


def _worker_put(stored: StoredDocument) -> Put:
    worker = Worker.model_validate_json(stored.body)
    return Put(WORKERS, stored.id, stored.body, stored.revision, worker_fields(worker), worker_unique_keys(worker))


def _lablet_put(stored: StoredDocument) -> Put:
    lablet = Lablet.model_validate_json(stored.body)
    return Put(LABLETS, stored.id, stored.body, stored.revision, lablet_fields(lablet), lablet_unique_keys(lablet))


async def _try_commit(store: Store, put: Put) -> bool:
    try:
        await store.commit([put])
    except RevisionConflictError:
        return False  # somebody wrote it meanwhile, and the fields with it
    return True
