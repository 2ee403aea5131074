"""What somebody looks at in the list of lablets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.records.kinds import DEFINITIONS, LABLETS, WORKERS
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.web.auth import CurrentUser, is_fragment, query_ids
from lcm.control_plane.web.list_query import ListQuery, read_list_page
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.core import clock
from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import LAST_LABLET_PROBLEM, LabletUrgency, lablet_problem, lablet_reason
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lcm.control_plane.store.port import FieldValue, Store, StoredDocument


_VIEW_FILTERS: Final[dict[str, dict[str, list[FieldValue]]]] = {
    "waiting": {"status": [LabletStatus.PENDING_SCHEDULING.value]},
    "moving": {"urgency": [int(LabletUrgency.MOVING)]},
    "running": {"status": [LabletStatus.RUNNING.value]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabletListQuery(ListQuery):
    """One way to look at lablets."""

    path = "/lablets"
    views: ClassVar[Mapping[str, str]] = {
        "": "All",
        "problems": "Problems",
        "waiting": "Waiting",
        "moving": "Moving",
        "running": "Running",
        "ended": "Ended",
    }
    columns = ("attention", "name", "status", "owner", "definition", "created_at", "updated_at")
    known = frozenset(LabletStatus)

    owner: str = ""
    definition: str = ""
    worker: str = ""

    def where(self) -> Where:
        """The filter in the store's words. Lablets of the past are shown only to who asks for them."""
        any_of = dict(_VIEW_FILTERS.get(self.view, {}))
        at_least: dict[str, FieldValue] = {}
        below: dict[str, FieldValue] = {}
        if self.status:
            any_of["status"] = list(self.status)
        elif self.view == "ended":
            below["shown_until"] = clock.now().isoformat()
        else:
            at_least["shown_until"] = clock.now().isoformat()
        if self.view == "problems":
            below["urgency"] = int(LAST_LABLET_PROBLEM) + 1
        if self.definition:
            any_of["definition" if "@" in self.definition else "definition_name"] = [self.definition]
        if self.worker:
            any_of["worker_id"] = [self.worker]
        contains = {name: text for name, text in (("name", self.q), ("owner", self.owner)) if text}
        return Where(any_of=any_of, at_least=at_least, below=below, contains=contains)


MAX_LABLETS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class LabletRow:
    """One lablet in a list. `worker_name` is empty where it has none, or where the worker is not known any more."""

    lablet: Lablet
    worker_name: str
    problem: str | None
    why: str
    ended: bool


async def lablet_rows(store: Store, stored: Sequence[StoredDocument]) -> list[LabletRow]:
    """Rows of these lablets."""
    lablets = [Lablet.model_validate_json(each.body) for each in stored]
    names = await worker_names(store, (each.worker_id for each in lablets if each.worker_id is not None))
    return [
        LabletRow(
            lablet,
            names.get(lablet.worker_id or "", ""),
            lablet_problem(lablet),
            lablet_reason(lablet),
            ended=lablet.status in FINAL_LABLET_STATUSES,
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


async def lablets_on_worker(store: Store, worker_id: str) -> list[Lablet]:
    """Those that hold a part of a worker, problems first; the list may be cut."""
    assigned = Where(
        any_of={"worker_id": [worker_id], "status": [each.value for each in sorted(ASSIGNED_LABLET_STATUSES)]}
    )
    found = await store.find(LABLETS, assigned, sort=Sort("attention"), limit=MAX_LABLETS_SHOWN)
    return [Lablet.model_validate_json(each.body) for each in found.items]


async def lablet_view_counts(store: Store) -> dict[str, tuple[str, int]]:
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
    return {name: (title, known[name]) for name, title in LabletListQuery.views.items()}


router = APIRouter(include_in_schema=False)
_MAX_DEFINITIONS = 500


@router.get("/lablets")
async def lablets_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """The list, or only its table and the counts for a script that asks again."""
    store = get_services(request).plane.store
    look = LabletListQuery.of(request.query_params)
    found, values = await read_list_page(store, LABLETS, look)
    values |= {"rows": await lablet_rows(store, found), "views": await lablet_view_counts(store)}
    if is_fragment(request):
        return render_fragment("lablets/_table_live.html", who=who, **values)
    names = await definition_names(store)
    values |= {
        "definitions": names if not look.definition or look.definition in names else [*names, look.definition],
        "statuses": list(LabletStatus),
        "of_worker": (await worker_names(store, [look.worker])).get(look.worker, "") if look.worker else "",
        "defined": bool(names),
    }
    return await render_page(request, who, "lablets/list.html", here="lablets", title="Lablets", **values)


@router.get("/lablets/rows")
async def changed_rows(request: Request, who: CurrentUser) -> HTMLResponse:
    """Rows that changed, each to be put where it stands."""
    found = await lablet_rows_by_id(get_services(request).plane.store, query_ids(request))
    return render_fragment("lablets/_rows.html", rows=found, who=who)


async def definition_names(store: Store) -> list[str]:
    """The names of definitions, each once."""
    stored = (await store.find(DEFINITIONS, sort=Sort("name"), limit=_MAX_DEFINITIONS)).items
    return list(dict.fromkeys(LabletDefinitionSummary.model_validate_json(each.body).name for each in stored))
