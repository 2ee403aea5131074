"""Fleet: what is wrong now, and all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import QueryParams

from lcm.control_plane.records.kinds import TEMPLATES, WORKERS
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import Where
from lcm.control_plane.web.auth import Visitor, ids_of, is_fragment
from lcm.control_plane.web.list_query import listed
from lcm.control_plane.web.rendering import fragment, page
from lcm.control_plane.web.workers.list_page import WorkerLook
from lcm.control_plane.web.workers.rows import figures_of, rows_by_id, rows_of
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import LAST_PROBLEM, Urgency

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store

router = APIRouter(include_in_schema=False)


@router.get("/")
async def fleet(request: Request, who: Visitor) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    store = parts(request).plane.store
    found, values = await listed(store, WORKERS, WorkerLook.of(request.query_params))
    values["rows"] = await rows_of(store, found)
    if is_fragment(request):
        return fragment("workers/_table.html", who=who, **values)
    values |= {
        "views": await _views(store),
        "regions": parts(request).plane.regions,
        "templates": [stored.id for stored in (await store.find(TEMPLATES, limit=500)).items],
        "statuses": list(WorkerStatus),
    }
    return await page(request, who, "workers/list.html", here="fleet", title="Fleet", **values)


@router.get("/fleet/rows")
async def rows(request: Request, who: Visitor) -> HTMLResponse:
    """Rows that changed, each to be put where it stands."""
    found = await rows_by_id(parts(request).plane.store, ids_of(request))
    return fragment("workers/_rows.html", rows=found, who=who)


@router.get("/fleet/figures")
async def figures(request: Request, who: Visitor) -> HTMLResponse:
    """Load and labs of rows on the screen."""
    found = await figures_of(parts(request).plane.store, ids_of(request))
    return fragment("workers/_row_metrics.html", figures=found)


@router.get("/fleet/summary")
async def summary(request: Request, who: Visitor) -> HTMLResponse:
    """The frame of every page: counts, cost, hold and breakers."""
    shown = urlsplit(request.headers.get("HX-Current-URL", ""))
    look = WorkerLook.of(QueryParams(shown.query)) if shown.path == "/" else None
    views = await _views(parts(request).plane.store) if look is not None else {}
    return fragment(
        "fleet/_summary_live.html", summary=await parts(request).fleet.summary(), views=views, who=who, look=look
    )


async def _views(store: Store) -> dict[str, tuple[str, int]]:
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
    ended = counts.get(int(Urgency.ENDED), 0)
    known = {
        "": sum(counts.values()) - ended,
        "problems": sum(count for rank, count in counts.items() if rank <= LAST_PROBLEM),
        "moving": counts.get(int(Urgency.MOVING), 0),
        "stopped": counts.get(int(Urgency.RESTING), 0),
        "ended": ended,
        **flags,
    }
    return {name: (title, known[name]) for name, title in WorkerLook.views.items()}
