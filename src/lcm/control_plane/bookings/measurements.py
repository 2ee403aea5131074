"""How long launches and labs took: the last measurements of each template and each definition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import LAUNCH_TIMES
from lcm.control_plane.store.port import Put, RevisionConflictError
from lcm.model.booking.capacity import MAX_MEASUREMENTS, UNKNOWN_LAB_TIME, UNKNOWN_LAUNCH_TIME, p95
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


async def read_launch_time(store: Store, template: str) -> timedelta:
    """How long a worker of the template takes from its launch until it is ready."""
    return p95(await _read(store, _launch_id(template)), UNKNOWN_LAUNCH_TIME)


async def read_lab_time(store: Store, definition: str) -> timedelta:
    """How long a lab of the definition takes until it runs."""
    return p95(await _read(store, _lab_id(definition)), UNKNOWN_LAB_TIME)


async def measure_launch(tx: Transaction, before: Worker, after: Worker) -> Worker:
    """The worker, after staging how long its launch took if this write makes it ready for the first time.

    Only the first time of each instance counts, and only if nothing has stopped it meanwhile.
    """
    begun, template = after.instance_since, after.template_name
    if before.ready or not after.ready or begun is None or template is None:
        return after
    if after.measured_instance_id == after.instance_id:
        return after
    if after.last_paused_at is None or after.last_paused_at < begun:
        await _record(tx, _launch_id(template), (tx.now - begun).total_seconds())
    return after.model_copy(update={"measured_instance_id": after.instance_id})


async def measure_lab(store: Store, before: Lablet, after: Lablet, now: datetime) -> None:
    """Record how long a lab took to start, after it runs. Many start at once, so a conflict loses a measurement."""
    begun = before.status is LabletStatus.INSTANTIATING and after.status is LabletStatus.RUNNING
    if not begun:
        return
    seconds = (now - before.status_since).total_seconds()
    try:
        put = await _one_more(store, _lab_id(after.topology_id), seconds)
        await store.commit([put])
    except RevisionConflictError:
        pass


def _launch_id(template: str) -> str:
    return f"template {template}"


def _lab_id(definition: str) -> str:
    return f"definition {definition}"


async def _read(store: Store, document_id: str) -> list[float]:
    stored = await store.get(LAUNCH_TIMES, document_id)
    return [] if stored is None else list(json.loads(stored.body)["seconds"])


async def _record(tx: Transaction, document_id: str, seconds: float) -> None:
    tx.stage(await _one_more(tx.store, document_id, seconds))


async def _one_more(store: Store, document_id: str, seconds: float) -> Put:
    stored = await store.get(LAUNCH_TIMES, document_id)
    before: list[float] = [] if stored is None else json.loads(stored.body)["seconds"]
    body = json.dumps({"seconds": [*before, round(seconds, 1)][-MAX_MEASUREMENTS:]}).encode()
    return Put(LAUNCH_TIMES, document_id, body, None if stored is None else stored.revision)
