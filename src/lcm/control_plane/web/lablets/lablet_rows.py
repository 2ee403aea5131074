"""Lablets as rows of a list: what is shown of each, gathered for a whole page at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.lablets.list_page import LabletLook
from lcm.core import clock
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import ASSIGNED, FINAL, LabletStatus
from lcm.model.lablet.urgency import LAST_LABLET_PROBLEM, LabletUrgency, lablet_problem, why_lablet
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.control_plane.store.port import Store, Stored

MOST_OF_A_WORKER = 50


@dataclass(frozen=True, slots=True)
class LabletRow:
    """One lablet in a list. `worker_name` is empty where it has none, or where the worker is not known any more."""

    lablet: Lablet
    worker_name: str
    problem: str | None
    why: str
    ended: bool


async def lablet_rows(store: Store, stored: Sequence[Stored]) -> list[LabletRow]:
    """Rows of these lablets."""
    lablets = [Lablet.model_validate_json(each.body) for each in stored]
    names = await worker_names(store, (each.worker_id for each in lablets if each.worker_id is not None))
    return [
        LabletRow(
            lablet,
            names.get(lablet.worker_id or "", ""),
            lablet_problem(lablet),
            why_lablet(lablet),
            ended=lablet.status in FINAL,
        )
        for lablet in lablets
    ]


async def lablet_rows_by_id(store: Store, ids: Sequence[str]) -> list[LabletRow]:
    """Rows of those that there are, in the order asked for."""
    found = await store.get_many(LABLETS, ids)
    return await lablet_rows(store, [found[each] for each in ids if each in found])


async def worker_names(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """How the workers of these ids are called; one that is not known is left out."""
    found = await store.get_many(WORKERS, sorted(set(ids)))
    return {each: Worker.model_validate_json(stored.body).name for each, stored in found.items()}


async def lablets_of(store: Store, worker_id: str) -> list[Lablet]:
    """Those that hold a part of a worker, problems first; the list may be cut."""
    assigned = Where(any_of={"worker_id": [worker_id], "status": [each.value for each in sorted(ASSIGNED)]})
    found = await store.find(LABLETS, assigned, sort=Sort("attention"), limit=MOST_OF_A_WORKER)
    return [Lablet.model_validate_json(each.body) for each in found.items]


async def lablet_views(store: Store) -> dict[str, tuple[str, int]]:
    """How many lablets each view has."""
    present = Where(at_least={"shown_until": clock.now().isoformat()})
    rows = await store.count_by(LABLETS, ["urgency", "status"], present)
    # An older version beside us writes records without it; they are filled in at the next start.
    counted = [(int(str(rank)), str(status), count) for (rank, status), count, _ in rows if rank is not None]
    here = sum(count for _, _, count in counted)
    ever = sum(count for _, count, _ in await store.count_by(LABLETS, ["status"]))
    known = {
        "": here,
        "problems": sum(count for rank, _, count in counted if rank <= LAST_LABLET_PROBLEM),
        "waiting": sum(count for _, status, count in counted if status == LabletStatus.PENDING_SCHEDULING),
        "moving": sum(count for rank, _, count in counted if rank == LabletUrgency.MOVING),
        "running": sum(count for _, status, count in counted if status == LabletStatus.RUNNING),
        "ended": max(0, ever - here),
    }
    return {name: (title, known[name]) for name, title in LabletLook.views.items()}
