"""Fleet: what is wrong now, and all workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import QueryParams

from lcm.control_plane.kinds import TEMPLATES, WORKERS
from lcm.control_plane.routes.parts import parts
from lcm.control_plane.routes.workers import split
from lcm.control_plane.store.port import BadCursor, Where
from lcm.control_plane.web.looks import COLUMNS, ROWS, VIEWS, Look
from lcm.control_plane.web.rendering import fragment, page
from lcm.control_plane.web.rows import figures_of, rows_by_id, rows_of
from lcm.control_plane.web.visitors import Visitor, is_fragment
from lcm.model.attention import LAST_PROBLEM, Urgency
from lcm.model.status import WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Page, Store

router = APIRouter(include_in_schema=False)
MOST_IDS = 100


@router.get("/")
async def fleet(request: Request, who: Visitor) -> HTMLResponse:
    """The list, or only its table for a script that asks again."""
    look = Look.of(request.query_params)
    store = parts(request).plane.store
    look, found = await _found(store, look)
    matching = await store.count_by(WORKERS, ["urgency"], look.where())
    values: dict[str, Any] = {
        "look": look,
        "rows": await rows_of(store, found.items),
        "next_address": look.address(after=found.next_after, page=look.page + 1) if found.next_after else None,
        "total": sum(count for _, count, _ in matching),
        "per_page": ROWS,
        "columns": COLUMNS,
        "who": who,
    }
    if is_fragment(request):
        return fragment("_fleet_table.html", **values)
    values |= {
        "views": await _views(store),
        "regions": parts(request).plane.regions,
        "templates": [stored.id for stored in (await store.find(TEMPLATES, limit=500)).items],
        "statuses": list(WorkerStatus),
    }
    del values["who"]
    return await page(request, who, "fleet.html", here="fleet", title="Fleet", **values)


@router.get("/fleet/rows")
async def rows(request: Request, who: Visitor) -> HTMLResponse:
    """Rows that changed, each to be put where it stands."""
    found = await rows_by_id(parts(request).plane.store, _ids(request))
    return fragment("_fleet_rows.html", rows=found, who=who)


@router.get("/fleet/figures")
async def figures(request: Request, who: Visitor) -> HTMLResponse:
    """Load and labs of rows on the screen."""
    found = await figures_of(parts(request).plane.store, _ids(request))
    return fragment("_fleet_figures.html", figures=found)


@router.get("/fleet/summary")
async def summary(request: Request, who: Visitor) -> HTMLResponse:
    """The frame of every page: counts, cost, hold and breakers."""
    shown = urlsplit(request.headers.get("HX-Current-URL", ""))
    look = Look.of(QueryParams(shown.query)) if shown.path == "/" else None
    views = await _views(parts(request).plane.store) if look is not None else {}
    return fragment("_summary_live.html", summary=await parts(request).fleet.summary(), views=views, who=who, look=look)


def _ids(request: Request) -> list[str]:
    return split(request.query_params.getlist("ids"))[:MOST_IDS]


async def _found(store: Store, look: Look) -> tuple[Look, Page]:
    """A page of workers. A place that no longer means anything is the first page, not an error."""
    try:
        found = await store.find(WORKERS, look.where(), sort=look.sorting(), after=look.after or None, limit=ROWS)
    except BadCursor:
        look = replace(look, after="", page=1)
        found = await store.find(WORKERS, look.where(), sort=look.sorting(), limit=ROWS)
    return look, found


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
    return {name: (title, known[name]) for name, title in VIEWS.items()}
