"""The Lablets page: the list, its filters, views and rows, and the parts that scripts refresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.records.kinds import DEFINITIONS, LABLETS, WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.records.search_text import search_condition
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort, Where
from lcm.control_plane.teams.visibility import definitions_in_scope, lablets_in_scope
from lcm.control_plane.web.auth import MemberUser, is_fragment
from lcm.control_plane.web.forms import query_ids
from lcm.control_plane.web.list_query import ListQuery, read_list_page
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.core import clock
from lcm.model.lablet.access import unreachable_reason
from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import LAST_LABLET_PROBLEM, LabletUrgency, lablet_problem, lablet_reason
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lcm.control_plane.auth.roles import Scope
    from lcm.control_plane.services import Services
    from lcm.control_plane.store.port import FieldValue, Store, StoredDocument
    from lcm.control_plane.web.auth import WebUser


router = APIRouter(include_in_schema=False)
MAX_LABLETS_SHOWN = 50
_MAX_DEFINITIONS = 500
_MAX_TEAM_LENGTH = 64
NO_TEAM = "none"
"""In the filter: what no team has. Ids of teams are longer."""
_VIEW_FILTERS: Final[dict[str, dict[str, list[FieldValue]]]] = {
    "waiting": {"status": [LabletStatus.PENDING_SCHEDULING.value]},
    "moving": {"urgency": [int(LabletUrgency.IN_PROGRESS)]},
    "running": {"status": [LabletStatus.RUNNING.value]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabletListQuery(ListQuery):
    """Filters of the list of lablets."""

    path = "/lablets"
    views: ClassVar[Mapping[str, str]] = {
        "": "All",
        "problems": "Problems",
        "waiting": "Waiting",
        "moving": "In progress",
        "running": "Running",
        "ended": "Ended",
    }
    columns = ("attention", "name", "status", "owner", "definition", "created_at", "updated_at")
    statuses = frozenset(LabletStatus)

    owner: str = ""
    definition: str = ""
    worker: str = ""
    team: str = ""

    def where(self) -> Where:
        """The filter for the store. Lablets that ended some time ago are shown only on request."""
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
        any_of |= team_condition(self.team)
        return Where(
            any_of=any_of,
            at_least=at_least,
            below=below,
            contains={"owner": self.owner} if self.owner else {},
            contains_all=search_condition(self.q),
        )


@dataclass(frozen=True, slots=True)
class LabletRow:
    """One lablet in a list. `worker_name` is empty if it has no worker or the worker no longer exists."""

    lablet: Lablet
    worker_name: str
    problem: str | None
    why: str
    ended: bool
    unreachable: str = ""


async def lablet_rows(store: Store, stored: Sequence[StoredDocument]) -> list[LabletRow]:
    lablets = readable_records(stored, Lablet, "lablet")
    workers = await workers_by_id(store, (each.worker_id for each in lablets if each.worker_id is not None))
    return [_lablet_row(lablet, workers.get(lablet.worker_id or "")) for lablet in lablets]


def _lablet_row(lablet: Lablet, worker: Worker | None) -> LabletRow:
    unreachable = unreachable_reason(lablet, worker)
    return LabletRow(
        lablet,
        "" if worker is None else worker.name,
        lablet_problem(lablet),
        unreachable or lablet_reason(lablet),
        ended=lablet.status in FINAL_LABLET_STATUSES,
        unreachable=unreachable,
    )


async def lablet_rows_by_id(store: Store, ids: Sequence[str], scope: Scope) -> list[LabletRow]:
    """Rows of the lablets that exist and may be seen, in the order of `ids`."""
    documents = await store.get_many(LABLETS, ids)
    rows = await lablet_rows(store, [documents[each] for each in ids if each in documents])
    return [row for row in rows if scope.sees(row.lablet.team, row.lablet.owner)]


async def workers_by_id(store: Store, ids: Iterable[str]) -> dict[str, Worker]:
    """Workers by ID; those that do not exist or cannot be read are left out."""
    documents = await store.get_many(WORKERS, sorted(set(ids)))
    return {each.id: each for each in readable_records(documents.values(), Worker, "worker")}


async def worker_names(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """Names of workers by ID; unknown IDs are left out."""
    return {key: each.name for key, each in (await workers_by_id(store, ids)).items()}


async def lablets_on_worker(store: Store, worker_id: str) -> list[Lablet]:
    """The lablets that are assigned to a worker, problems first, up to `MAX_LABLETS_SHOWN`."""
    assigned = Where(
        any_of={"worker_id": [worker_id], "status": [each.value for each in sorted(ASSIGNED_LABLET_STATUSES)]}
    )
    page = await store.find(LABLETS, assigned, sort=Sort("attention"), limit=MAX_LABLETS_SHOWN)
    return readable_records(page.items, Lablet, "lablet")


async def lablet_view_counts(store: Store, scope: Scope) -> dict[str, tuple[str, int]]:
    """The title and the number of lablets of each view."""
    either = lablets_in_scope(scope)
    present = Where(at_least={"shown_until": clock.now().isoformat()}, either=either)
    rows = await store.count_by(LABLETS, ["urgency", "status"], present)
    # During an upgrade an older version may write records without this field; the next start fills it in.
    counted = [(int(str(rank)), str(status), count) for (rank, status), count, _ in rows if rank is not None]
    shown = sum(count for _, _, count in counted)
    total = sum(count for _, count, _ in await store.count_by(LABLETS, ["status"], Where(either=either)))
    view_counts = {
        "": shown,
        "problems": sum(count for rank, _, count in counted if rank <= LAST_LABLET_PROBLEM),
        "waiting": sum(count for _, status, count in counted if status == LabletStatus.PENDING_SCHEDULING),
        "moving": sum(count for rank, _, count in counted if rank == LabletUrgency.IN_PROGRESS),
        "running": sum(count for _, status, count in counted if status == LabletStatus.RUNNING),
        "ended": max(0, total - shown),
    }
    return {name: (title, view_counts[name]) for name, title in LabletListQuery.views.items()}


@router.get("/lablets")
async def lablets_page(request: Request, user: MemberUser) -> HTMLResponse:
    """The whole page, or only the table and the counts for a refresh by a script."""
    store, scope = get_services(request).context.store, user.caller.scope
    query = LabletListQuery.from_query(request.query_params)
    documents, values = await read_list_page(store, LABLETS, query, lablets_in_scope(scope))
    values |= {"rows": await lablet_rows(store, documents), "views": await lablet_view_counts(store, scope)}
    values["teams"] = await visible_teams(get_services(request), user)
    if is_fragment(request):
        return render_fragment("lablets/_table_live.html", user=user, **values)
    names = await definition_names(store, scope)
    values |= {
        "definitions": names if not query.definition or query.definition in names else [*names, query.definition],
        "statuses": list(LabletStatus),
        "worker_name": (await worker_names(store, [query.worker])).get(query.worker, "")
        if query.worker and scope.everything
        else "",
        "defined": bool(names),
    }
    return await render_page(request, user, "lablets/list.html", here="lablets", title="Lablets", **values)


@router.get("/lablets/rows")
async def changed_rows(request: Request, user: MemberUser) -> HTMLResponse:
    """Rows that changed; each replaces its row on the page."""
    rows = await lablet_rows_by_id(get_services(request).context.store, query_ids(request), user.caller.scope)
    teams = await visible_teams(get_services(request), user)
    return render_fragment("lablets/_rows.html", rows=rows, user=user, teams=teams)


def chosen_team(request: Request) -> str:
    """The team that a page is limited to: its id, `NO_TEAM`, or empty for all that the user may see."""
    return request.query_params.get("team", "").strip()[:_MAX_TEAM_LENGTH]


def team_condition(chosen: str) -> dict[str, list[FieldValue]]:
    """The condition `any_of` for the team that was chosen."""
    return {"team": ["" if chosen == NO_TEAM else chosen]} if chosen else {}


async def visible_teams(services: Services, user: WebUser) -> dict[str, str]:
    """The names of the teams that the user may see, by id, in the order of names."""
    teams, scope = (await services.directory.teams()).by_id.values(), user.caller.scope
    seen = [team for team in teams if scope.everything or team.id in scope.all_teams]
    return {team.id: team.name for team in sorted(seen, key=lambda each: each.name)}


async def definition_names(store: Store, scope: Scope) -> list[str]:
    """The distinct names of the definitions that the user may see."""
    seen = Where(any_of=definitions_in_scope(scope))
    stored = (await store.find(DEFINITIONS, seen, sort=Sort("name"), limit=_MAX_DEFINITIONS)).items
    return list(dict.fromkeys(each.name for each in readable_records(stored, LabletDefinitionSummary, "definition")))
