"""What somebody looks at in the list of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import QueryParams

from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.auth import CurrentUser, is_fragment, query_ids
from lcm.control_plane.web.list_query import ListQuery, read_list_page
from lcm.control_plane.web.rendering import render_fragment, render_page
from lcm.control_plane.web.workers.rows import worker_row_metrics, worker_rows, worker_rows_by_id
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import LAST_WORKER_PROBLEM, WorkerUrgency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import FieldValue, Store


_TERMINATED = WorkerStatus.TERMINATED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerListQuery(ListQuery):
    """One way to look at workers."""

    path = "/"
    views: ClassVar[Mapping[str, str]] = {
        "": "All",
        "problems": "Problems",
        "moving": "Moving",
        "ready": "Ready",
        "stopped": "Stopped",
        "held": "Held",
        "ended": "Ended",
    }
    columns = ("attention", "name", "status", "aws_region", "template_name", "cost_per_hour_usd", "updated_at")
    known = frozenset(WorkerStatus)

    region: tuple[str, ...] = ()
    template: tuple[str, ...] = ()

    def where(self) -> Where:
        """The filter in the store's words. Workers that have ended are shown only to who asks for them."""
        any_of: dict[str, list[FieldValue]] = {}
        none_of: dict[str, list[FieldValue]] = {}
        below: dict[str, FieldValue] = {}
        if self.status:
            any_of["status"] = list(self.status)
        elif self.view == "ended":
            any_of["status"] = [_TERMINATED]
        else:
            none_of["status"] = [_TERMINATED]
        if self.view == "problems":
            below["urgency"] = int(LAST_WORKER_PROBLEM) + 1
        elif self.view in ("moving", "stopped"):
            any_of["urgency"] = [int(WorkerUrgency.MOVING if self.view == "moving" else WorkerUrgency.RESTING)]
        elif self.view in ("ready", "held"):
            any_of[self.view] = [True]
        if self.region:
            any_of["aws_region"] = list(self.region)
        if self.template:
            any_of["template_name"] = list(self.template)
        return Where(any_of=any_of, none_of=none_of, below=below, contains={"name": self.q} if self.q else {})


router = APIRouter(include_in_schema=False)


@router.get("/")
async def workers_page(request: Request, who: CurrentUser) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    store = get_services(request).plane.store
    found, values = await read_list_page(store, WORKERS, WorkerListQuery.of(request.query_params))
    values["rows"] = await worker_rows(store, found)
    if is_fragment(request):
        return render_fragment("workers/_table.html", who=who, **values)
    values |= {
        "views": await _view_counts(store),
        "regions": get_services(request).plane.regions,
        "templates": [stored.id for stored in (await store.find(TEMPLATES, limit=500)).items],
        "statuses": list(WorkerStatus),
    }
    return await render_page(request, who, "workers/list.html", here="fleet", title="Fleet", **values)


@router.get("/fleet/rows")
async def changed_rows(request: Request, who: CurrentUser) -> HTMLResponse:
    """Rows that changed, each to be put where it stands."""
    found = await worker_rows_by_id(get_services(request).plane.store, query_ids(request))
    return render_fragment("workers/_rows.html", rows=found, who=who)


@router.get("/fleet/figures")
async def row_metrics(request: Request, who: CurrentUser) -> HTMLResponse:
    """Load and labs of rows on the screen."""
    found = await worker_row_metrics(get_services(request).plane.store, query_ids(request))
    return render_fragment("workers/_row_metrics.html", figures=found)


@router.get("/fleet/summary")
async def fleet_summary(request: Request, who: CurrentUser) -> HTMLResponse:
    """The frame of every page: counts, cost, hold and breakers."""
    shown = urlsplit(request.headers.get("HX-Current-URL", ""))
    look = WorkerListQuery.of(QueryParams(shown.query)) if shown.path == "/" else None
    views = await _view_counts(get_services(request).plane.store) if look is not None else {}
    return render_fragment(
        "fleet/_summary_live.html", summary=await get_services(request).fleet.summary(), views=views, who=who, look=look
    )


async def _view_counts(store: Store) -> dict[str, tuple[str, int]]:
    """How many workers each view has."""
    counted = await store.count_by(WORKERS, ["urgency"])
    # An older version beside us writes records without it; they are filled in at the next start.
    counts = {int(str(values[0])): count for values, count, _ in counted if values[0] is not None}
    flags = {}
    for name in ("ready", "held"):
        some = await store.count_by(
            WORKERS, [name], Where(any_of={name: [True]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
        )
        flags[name] = sum(count for _, count, _ in some)
    ended = counts.get(int(WorkerUrgency.ENDED), 0)
    known = {
        "": sum(counts.values()) - ended,
        "problems": sum(count for rank, count in counts.items() if rank <= LAST_WORKER_PROBLEM),
        "moving": counts.get(int(WorkerUrgency.MOVING), 0),
        "stopped": counts.get(int(WorkerUrgency.RESTING), 0),
        "ended": ended,
        **flags,
    }
    return {name: (title, known[name]) for name, title in WorkerListQuery.views.items()}
