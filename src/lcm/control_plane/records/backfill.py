"""Writes query fields that are new in this version beside records of older versions, when the control plane starts.

It is done before the control plane is ready: a record without the fields would be missing from lists and from the cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from pydantic import ValidationError

from lcm.control_plane.records.kinds import (
    DEFINITIONS,
    LABLETS,
    WORKERS,
    definition_fields,
    definition_unique_keys,
    lablet_fields,
    lablet_unique_keys,
    worker_fields,
    worker_unique_keys,
)
from lcm.control_plane.records.search_text import SEARCH_FIELD
from lcm.control_plane.store.port import Put, RevisionConflictError, Where
from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
from lcm.model.worker.cost import DEFAULT_STORAGE_PRICE
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.store.port import Kind, Store, StoredDocument

log = structlog.get_logger(__name__)

_PAGE = 100
_UNKNOWN_AS_ZERO = Where(any_of={"price_unknown": [1]}, none_of={"billed_usd": [None]})
"""Workers that an older version wrote: a cost that is not known was sorted as if there were none."""


async def backfill_fields(store: Store, storage_price: float = DEFAULT_STORAGE_PRICE) -> int:
    """Write the fields of records that lack the newest field; returns the number. Versions do not change.

    Workers with another price of disk space get the present one.
    """

    def worker_put(stored: StoredDocument) -> Put:
        return _worker_put(stored, storage_price)

    workers = await _backfill_kind(store, WORKERS, Where(any_of={"storage_price": [None]}), worker_put)
    workers += await _backfill_kind(store, WORKERS, Where(any_of={SEARCH_FIELD: [None]}), worker_put)
    live = {"status": [status.value for status in WorkerStatus if status is not WorkerStatus.TERMINATED]}
    workers += await _backfill_kind(store, WORKERS, _UNKNOWN_AS_ZERO, worker_put)
    other_price = Where(any_of=live, none_of={"storage_price": [storage_price]})
    workers += await _backfill_kind(store, WORKERS, other_price, worker_put)
    lablets = await _backfill_kind(store, LABLETS, Where(either={SEARCH_FIELD: [None], "team": [None]}), _lablet_put)
    definitions = await _backfill_kind(store, DEFINITIONS, Where(any_of={"team": [None]}), _definition_put)
    if workers or lablets or definitions:
        log.info("backfilled new query fields", workers=workers, lablets=lablets, definitions=definitions)
    return workers + lablets + definitions


async def _backfill_kind(store: Store, kind: Kind, missing: Where, rebuild: Callable[[StoredDocument], Put]) -> int:
    """A page is one commit: ten thousand records of an older version take seconds, not minutes."""
    written, after = 0, None
    while True:
        page = await store.find(kind, missing, after=after, limit=_PAGE)
        written += await _commit_all(store, [put for stored in page.items for put in _rebuilt(kind, stored, rebuild)])
        after = page.next_cursor
        if after is None:
            return written


def _rebuilt(kind: Kind, stored: StoredDocument, rebuild: Callable[[StoredDocument], Put]) -> list[Put]:
    """The write for one record; none for a record that cannot be read, which must not prevent the start."""
    try:
        return [rebuild(stored)]
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        log.error("record skipped", kind=kind.name, id=stored.id, reason=f"{place}: {problem['msg']}"[:300])
        return []


def _worker_put(stored: StoredDocument, storage_price: float) -> Put:
    worker, body = Worker.model_validate_json(stored.body), stored.body
    if worker.storage_price_per_gb_month_usd != storage_price:
        worker = worker.model_copy(update={"storage_price_per_gb_month_usd": storage_price})
        body = worker.model_dump_json().encode()
    return Put(WORKERS, stored.id, body, stored.revision, worker_fields(worker), worker_unique_keys(worker))


def _lablet_put(stored: StoredDocument) -> Put:
    """With the body written anew: lists hand it on as it is, and before there were teams `owner` was a name."""
    lablet = Lablet.model_validate_json(stored.body)
    body = lablet.model_dump_json().encode()
    return Put(LABLETS, stored.id, body, stored.revision, lablet_fields(lablet), lablet_unique_keys(lablet))


def _definition_put(stored: StoredDocument) -> Put:
    definition = LabletDefinitionSummary.model_validate_json(stored.body)
    body = definition.model_dump_json().encode()
    fields, unique = definition_fields(definition), definition_unique_keys(definition)
    return Put(DEFINITIONS, stored.id, body, stored.revision, fields, unique)


async def _commit_all(store: Store, puts: Sequence[Put]) -> int:
    """Commit together; if another writer changed one of the records, each by itself. Returns the number written."""
    if not puts:
        return 0
    try:
        await store.commit(puts)
    except RevisionConflictError:
        return sum([await _try_commit(store, put) for put in puts])
    return len(puts)


async def _try_commit(store: Store, put: Put) -> bool:
    try:
        await store.commit([put])
    except RevisionConflictError:
        return False  # another writer wrote the record meanwhile, and the fields with it
    return True
