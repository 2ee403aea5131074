"""Fields that came with a newer version, filled in for records that an older one wrote.

What a store is asked by stands beside each document. A field that is new is empty for all that were written before, so
they would be missing from a list that is sorted or filtered by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lcm.control_plane.kinds import WORKERS, worker_fields, worker_unique
from lcm.control_plane.store.port import Conflict, Put, Where
from lcm.model.worker import Worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store, Stored

log = structlog.get_logger(__name__)

_NEWEST_FIELD = "urgency"
_PAGE = 100


async def refill_fields(store: Store) -> int:
    """Write the fields of workers that lack the newest one; says how many. Bodies and versions stay as they are."""
    refilled = 0
    lacking = Where(any_of={_NEWEST_FIELD: [None]})
    while True:
        page = await store.find(WORKERS, lacking, limit=_PAGE)
        if not page.items:
            break
        for stored in page.items:
            refilled += await _refill(store, stored)
    if refilled:
        log.info("filled in fields that are new in this version", workers=refilled)
    return refilled


async def _refill(store: Store, stored: Stored) -> bool:
    worker = Worker.model_validate_json(stored.body)
    put = Put(WORKERS, stored.id, stored.body, stored.revision, worker_fields(worker), worker_unique(worker))
    try:
        await store.commit([put])
    except Conflict:
        return False  # somebody wrote it meanwhile, and the fields with it
    return True
