"""The end of lablets: what it means is shown first, for one or for several, then it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.fleet.service import read_fleet
from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.services import Parts, parts
from lcm.control_plane.web.auth import OperatorVisitor, field_of, form_of, version_of
from lcm.control_plane.web.bulk_actions import change_each, chosen, confirm_several
from lcm.control_plane.web.lablets.detail_page import read_lablet
from lcm.control_plane.web.lablets.terminate import foresee_end, loss_of
from lcm.control_plane.web.rendering import DONE, fragment, toast
from lcm.core import clock
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.web.workers.action_preview import Consequences

router = APIRouter(include_in_schema=False)


@router.get("/lablets/confirm-end")
async def confirm_several_ends(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """What would become of those that somebody chose."""
    ids = chosen(request, "lablet")
    stored = await parts(request).plane.store.get_many(LABLETS, ids)
    lablets = [Lablet.model_validate_json(stored[each].body) for each in ids if each in stored]
    foreseen = await _foreseen(parts(request), lablets)
    lost = loss_of([lablet for lablet, found in foreseen if found.changes])
    return confirm_several(foreseen, place="/lablets/end", name="End", noun="lablet", lost=lost)


@router.post("/lablets/end")
async def end_several(request: Request, who: OperatorVisitor) -> HTMLResponse:
    """End each."""
    form = await form_of(request)

    async def change(lablet_id: str, version: int | None) -> None:
        await _end(parts(request), who.caller, lablet_id, form, version)

    return await change_each(form, "to end", change)


@router.get("/lablets/{lablet_id}/confirm-end")
async def confirm_end(request: Request, who: OperatorVisitor, lablet_id: str) -> HTMLResponse:
    """What would be lost with it."""
    ((lablet, found),) = await _foreseen(parts(request), [await read_lablet(parts(request), lablet_id)])
    return fragment("shared/_confirm.html", place=f"/lablets/{lablet.id}/end", record=lablet, found=found, name="End")


@router.post("/lablets/{lablet_id}/end")
async def end(request: Request, who: OperatorVisitor, lablet_id: str) -> HTMLResponse:
    """End it, unless it changed since it was looked at."""
    form = await form_of(request)
    lablet = await _end(parts(request), who.caller, lablet_id, form, version_of(form))
    return toast(f"{lablet.name}: {'has ended' if lablet.status in FINAL else 'is to end'}", triggers=DONE)


async def _end(
    all_parts: Parts, caller: Caller, lablet_id: str, form: dict[str, list[str]], version: int | None
) -> Lablet:
    await read_lablet(all_parts, lablet_id)
    reason = field_of(form, "reason")[:500] or None
    body = await all_parts.lablets.terminate(caller, lablet_id, reason=reason, if_match=version)
    return Lablet.model_validate_json(body)


async def _foreseen(all_parts: Parts, lablets: Sequence[Lablet]) -> list[tuple[Lablet, Consequences]]:
    """What ending each would do now. A hold of the fleet, or of its worker, keeps a lab as it is."""
    store, now = all_parts.plane.store, clock.now()
    fleet = (await read_fleet(store)).hold
    ids = sorted({each.worker_id for each in lablets if each.worker_id is not None})
    workers = {
        each: Worker.model_validate_json(stored.body) for each, stored in (await store.get_many(WORKERS, ids)).items()
    }
    foreseen = []
    for lablet in lablets:
        worker = workers.get(lablet.worker_id or "")
        holds = (fleet, None if worker is None else worker.hold)
        hold = next((each for each in holds if each is not None and each.active(now)), None)
        foreseen.append((lablet, foresee_end(lablet, worker.name if worker else "", hold, now)))
    return foreseen
