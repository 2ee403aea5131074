"""Lablets: what waits and why, what runs where, and for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.kinds import DEFINITIONS, LABLETS
from lcm.control_plane.routes.parts import parts
from lcm.control_plane.routes.workers import split
from lcm.control_plane.store.port import BadCursor, Sort
from lcm.control_plane.web.lablet_looks import ROWS, LabletLook
from lcm.control_plane.web.lablet_rows import lablet_rows, lablet_rows_by_id, lablet_views, worker_names
from lcm.control_plane.web.rendering import fragment, page
from lcm.control_plane.web.visitors import Visitor, is_fragment
from lcm.model.lablet import DefinitionSummary
from lcm.model.lablet_status import LabletStatus

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Page, Store

router = APIRouter(include_in_schema=False)
MOST_IDS = 100
_MOST_DEFINITIONS = 500


@router.get("/lablets")
async def lablets(request: Request, who: Visitor) -> HTMLResponse:
    """The list, or only its table and the counts for a script that asks again."""
    store = parts(request).plane.store
    look, found = await _found(store, LabletLook.of(request.query_params))
    matching = await store.count_by(LABLETS, ["status"], look.where())
    values: dict[str, Any] = {
        "look": look,
        "rows": await lablet_rows(store, found.items),
        "next_address": look.address(after=found.next_after, page=look.page + 1) if found.next_after else None,
        "total": sum(count for _, count, _ in matching),
        "per_page": ROWS,
        "views": await lablet_views(store),
    }
    if is_fragment(request):
        return fragment("_lablet_table_live.html", who=who, **values)
    names = await definition_names(store)
    values |= {
        "definitions": names if not look.definition or look.definition in names else [*names, look.definition],
        "statuses": list(LabletStatus),
        "of_worker": (await worker_names(store, [look.worker])).get(look.worker, "") if look.worker else "",
        "defined": bool(names),
    }
    return await page(request, who, "lablets.html", here="lablets", title="Lablets", **values)


@router.get("/lablets/rows")
async def rows(request: Request, who: Visitor) -> HTMLResponse:
    """Rows that changed, each to be put where it stands."""
    ids = split(request.query_params.getlist("ids"))[:MOST_IDS]
    return fragment("_lablet_rows.html", rows=await lablet_rows_by_id(parts(request).plane.store, ids), who=who)


async def definition_names(store: Store) -> list[str]:
    """The names of definitions, each once."""
    stored = (await store.find(DEFINITIONS, sort=Sort("name"), limit=_MOST_DEFINITIONS)).items
    return list(dict.fromkeys(DefinitionSummary.model_validate_json(each.body).name for each in stored))


async def _found(store: Store, look: LabletLook) -> tuple[LabletLook, Page]:
    """A page of lablets. A place that no longer means anything is the first page, not an error."""
    try:
        found = await store.find(LABLETS, look.where(), sort=look.sorting(), after=look.after or None, limit=ROWS)
    except BadCursor:
        look = replace(look, after="", page=1)
        found = await store.find(LABLETS, look.where(), sort=look.sorting(), limit=ROWS)
    return look, found
