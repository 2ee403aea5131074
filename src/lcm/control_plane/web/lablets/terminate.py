"""Dialogs that end one or several lablets, with a preview of what would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.lablets.termination_preview import preview_terminations
from lcm.control_plane.records.kinds import LABLETS
from lcm.control_plane.records.readable import readable_records
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.teams.visibility import lablets_in_scope
from lcm.control_plane.web.auth import EnderUser
from lcm.control_plane.web.bulk_actions import apply_to_each, render_bulk_confirmation, selected_documents
from lcm.control_plane.web.forms import form_key, form_reason, form_version, read_form, require_typed
from lcm.control_plane.web.lablets.detail_page import read_lablet
from lcm.control_plane.web.lablets.list_page import LabletListQuery
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, NOT_ON_CML_STATUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.records.idempotency import IdempotencyKey


router = APIRouter(include_in_schema=False)
_MAX_OWNERS_NAMED = 5


def bulk_loss_text(lablets: Sequence[Lablet]) -> str:
    """What the owners of several lablets would lose; empty if no lab was created yet."""
    with_lab = [each for each in lablets if each.status not in NOT_ON_CML_STATUSES]
    nodes = sum(each.requirements.nodes for each in with_lab)
    owners = sorted({each.owner_name for each in with_lab})
    named = ", ".join(owners[:_MAX_OWNERS_NAMED]) + (
        f" and {len(owners) - _MAX_OWNERS_NAMED} more" if owners[_MAX_OWNERS_NAMED:] else ""
    )
    labs = "1 lab" if len(with_lab) == 1 else f"{len(with_lab)} labs"
    return f"{labs} with {nodes} node{'' if nodes == 1 else 's'}, and all work of {named} in them." if with_lab else ""


@router.get("/lablets/confirm-end")
async def confirm_bulk_termination(request: Request, user: EnderUser) -> HTMLResponse:
    """What ending the selected lablets would do."""
    store = get_services(request).context.store
    scope = user.caller.scope
    either = lablets_in_scope(scope)
    selected = await selected_documents(request, store, LABLETS, LabletListQuery, "lablet", either)
    lablets = readable_records(selected, Lablet, "lablet")
    lablets = [each for each in lablets if scope.sees(each.team, each.owner)]
    previews = await preview_terminations(store, lablets)
    lost = bulk_loss_text([lablet for lablet, preview in previews if preview.changes])
    return render_bulk_confirmation(previews, action_url="/lablets/end", name="End", noun="lablet", lost=lost)


@router.post("/lablets/end")
async def terminate_selected(request: Request, user: EnderUser) -> HTMLResponse:
    """End each of the selected lablets."""
    form = await read_form(request)

    async def change(lablet_id: str, version: int | None, key: IdempotencyKey | None) -> None:
        await _terminate(get_services(request), user.caller, lablet_id, form, version, key)

    return await apply_to_each(form, form_key(request, user.caller, form), "end requested", change)


@router.get("/lablets/{lablet_id}/confirm-end")
async def confirm_termination(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """What ending the lablet would do."""
    ((lablet, preview),) = await preview_terminations(
        get_services(request).context.store, [await read_lablet(get_services(request), user.caller, lablet_id)]
    )
    return render_fragment(
        "shared/_confirm.html", action_url=f"/lablets/{lablet.id}/end", record=lablet, preview=preview, name="End"
    )


@router.post("/lablets/{lablet_id}/end")
async def terminate_lablet(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """End the lablet, unless it changed since the dialog was opened."""
    form = await read_form(request)
    services = get_services(request)
    require_typed(form, (await read_lablet(services, user.caller, lablet_id)).name, "name of the lablet")
    key = form_key(request, user.caller, form)
    lablet = await _terminate(services, user.caller, lablet_id, form, form_version(form), key)
    return render_toast(
        f"{lablet.name}: {'ended' if lablet.status in FINAL_LABLET_STATUSES else 'end requested'}", triggers=DONE_EVENT
    )


async def _terminate(
    services: Services,
    caller: Caller,
    lablet_id: str,
    form: dict[str, list[str]],
    version: int | None,
    key: IdempotencyKey | None,
) -> Lablet:
    await read_lablet(services, caller, lablet_id)
    reason = form_reason(form)
    body = await services.lablets.terminate(caller, lablet_id, reason=reason, if_match=version, key=key)
    return Lablet.model_validate_json(body)
