"""Lablets: what waits and why, what runs where, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.records.kinds import DEFINITIONS, LABLETS
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import Sort
from lcm.control_plane.web.auth import Visitor, ids_of, is_fragment
from lcm.control_plane.web.lablets.lablet_rows import lablet_rows, lablet_rows_by_id, lablet_views, worker_names
from lcm.control_plane.web.lablets.list_page import LabletLook
from lcm.control_plane.web.list_query import listed
from lcm.control_plane.web.rendering import fragment, page
from lcm.model.lablet.record import DefinitionSummary
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store

router = APIRouter(include_in_schema=False)
_MOST_DEFINITIONS = 500


@router.get("/lablets")
async def lablets(request: Request, who: Visitor) -> HTMLResponse:
    """The list, or only its table and the counts for a script that asks again."""
    store = parts(request).plane.store
    look = LabletLook.of(request.query_params)
    found, values = await listed(store, LABLETS, look)
    values |= {"rows": await lablet_rows(store, found), "views": await lablet_views(store)}
    if is_fragment(request):
        return fragment("lablets/_table_live.html", who=who, **values)
    names = await definition_names(store)
    values |= {
        "definitions": names if not look.definition or look.definition in names else [*names, look.definition],
        "statuses": list(LabletStatus),
        "of_worker": (await worker_names(store, [look.worker])).get(look.worker, "") if look.worker else "",
        "defined": bool(names),
    }
    return await page(request, who, "lablets/list.html", here="lablets", title="Lablets", **values)


@router.get("/lablets/rows")
async def rows(request: Request, who: Visitor) -> HTMLResponse:
    """Rows that changed, each to be put where it stands."""
    found = await lablet_rows_by_id(parts(request).plane.store, ids_of(request))
    return fragment("lablets/_rows.html", rows=found, who=who)


async def definition_names(store: Store) -> list[str]:
    """The names of definitions, each once."""
    stored = (await store.find(DEFINITIONS, sort=Sort("name"), limit=_MOST_DEFINITIONS)).items
    return list(dict.fromkeys(DefinitionSummary.model_validate_json(each.body).name for each in stored))
