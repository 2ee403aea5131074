"""What people do with their own labs: extend, reset and end, each after a dialog that says what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.lablets.change_previews import preview_lablet_action
from lcm.control_plane.services import get_services
from lcm.control_plane.web.forms import form_key, form_version, read_form
from lcm.control_plane.web.lablets.changes import extend_from_form, render_extension_dialog, render_extension_preview
from lcm.control_plane.web.my.access import LabUserDep, own_lablet
from lcm.control_plane.web.my.page import MY_PATH
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.model.lablet.requests import LabletAction, PreviewLabletRequest

if TYPE_CHECKING:
    from lcm.control_plane.web.my.access import LabUser

router = APIRouter(include_in_schema=False)
_NAMES = {LabletAction.RESET: "Reset lab", LabletAction.END: "End lab"}


@router.get(f"{MY_PATH}/{{lablet_id}}/confirm-extend")
async def confirm_extension(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """By how much the end can be moved."""
    lablet = await own_lablet(request, user, lablet_id, to_change=True)
    return await render_extension_dialog(get_services(request), lablet, f"{MY_PATH}/{lablet.id}")


@router.get(f"{MY_PATH}/{{lablet_id}}/extension")
async def extension_preview(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """What the chosen extension does."""
    lablet = await own_lablet(request, user, lablet_id, to_change=True)
    return await render_extension_preview(request, get_services(request), lablet)


@router.post(f"{MY_PATH}/{{lablet_id}}/extend")
async def extend(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """Move the end."""
    lablet, form = await own_lablet(request, user, lablet_id, to_change=True), await read_form(request)
    caller = user.caller_for(lablet)
    await extend_from_form(get_services(request), caller, lablet.id, form, form_key(request, caller, form))
    return render_toast("Your lab will end later", triggers=DONE_EVENT)


@router.get(f"{MY_PATH}/{{lablet_id}}/confirm-reset")
async def confirm_reset(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """What a reset does and loses."""
    return await _confirm(request, user, lablet_id, LabletAction.RESET)


@router.post(f"{MY_PATH}/{{lablet_id}}/reset")
async def reset(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """Request a new lab, unless something has changed since the dialog was opened."""
    lablet, form = await own_lablet(request, user, lablet_id, to_change=True), await read_form(request)
    caller = user.caller_for(lablet)
    key, version = form_key(request, caller, form), form_version(form)
    await get_services(request).lablets.reset(caller, lablet.id, if_match=version, key=key)
    return render_toast("Your lab is being made anew", triggers=DONE_EVENT)


@router.get(f"{MY_PATH}/{{lablet_id}}/confirm-end")
async def confirm_end(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """What its end loses."""
    return await _confirm(request, user, lablet_id, LabletAction.END)


@router.post(f"{MY_PATH}/{{lablet_id}}/end")
async def end(request: Request, user: LabUserDep, lablet_id: str) -> HTMLResponse:
    """End the lab, unless something has changed since the dialog was opened."""
    lablet, form = await own_lablet(request, user, lablet_id, to_change=True), await read_form(request)
    caller = user.caller_for(lablet)
    key, version = form_key(request, caller, form), form_version(form)
    await get_services(request).lablets.terminate(caller, lablet.id, if_match=version, key=key)
    return render_toast("Your lab is ending", triggers=DONE_EVENT)


async def _confirm(request: Request, user: LabUser, lablet_id: str, action: LabletAction) -> HTMLResponse:
    lablet = await own_lablet(request, user, lablet_id, to_change=True)
    asked = PreviewLabletRequest(action=action)
    preview = await preview_lablet_action(get_services(request).context, lablet, asked, names_people=False)
    return render_fragment(
        "my/_confirm.html",
        action_url=f"{MY_PATH}/{lablet.id}/{action.value}",
        lablet=lablet,
        preview=preview,
        name=_NAMES[action],
    )
