"""Dialogs that move the end of a lablet and that reset its lab. Their texts are previews of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.change_previews import (
    preview_extension,
    preview_lablet_action,
    read_extension_bounds,
)
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import EnderUser
from lcm.control_plane.web.forms import form_field, form_key, form_reason, form_version, parse_number, read_form
from lcm.control_plane.web.forms import require_typed as require_typed_text
from lcm.control_plane.web.lablets.detail_page import read_lablet
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_toast
from lcm.core import clock
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.requests import ExtendLabletRequest, LabletAction, PreviewLabletRequest
from lcm.model.problems import ProblemCode
from lcm.model.validation import problems_of

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.seats.sessions import SeatCaller
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.services import Services

router = APIRouter(include_in_schema=False)
EXTENSION_CHOICES: Final = (30, 60, 120, 240)
"""Minutes that the dialog offers."""


async def render_extension_dialog(services: Services, lablet: Lablet, base_url: str) -> HTMLResponse:
    """The choices that are possible now, with what the first of them does; else the latest end, or why there is none.

    `base_url` is where the lablet's own addresses begin.
    """
    found: dict[int, Any] = {}
    now = clock.now()
    limit, booked = await read_extension_bounds(services.context, lablet, now)
    for minutes in EXTENSION_CHOICES:
        request = PreviewLabletRequest(action=LabletAction.EXTEND, minutes=minutes)
        preview = preview_extension(lablet, request, now, limit, booked)
        if not preview.refusal:
            found[minutes] = preview
        elif not found:
            return render_fragment(
                "lablets/_confirm_extend.html", lablet=lablet, base_url=base_url, choices=(), preview=preview
            )
    first = next(iter(found.values()))
    return render_fragment(
        "lablets/_confirm_extend.html", lablet=lablet, base_url=base_url, choices=tuple(found), preview=first
    )


async def render_extension_preview(request: Request, services: Services, lablet: Lablet) -> HTMLResponse:
    """What the chosen extension does."""
    asked = _validated(PreviewLabletRequest, action=LabletAction.EXTEND, minutes=_minutes(request.query_params))
    preview = await preview_lablet_action(services.context, lablet, asked)
    return render_fragment("lablets/_extension_preview.html", preview=preview)


async def extend_from_form(
    services: Services,
    caller: Caller | SeatCaller,
    lablet_id: str,
    form: dict[str, list[str]],
    key: IdempotencyKey | None,
) -> Lablet:
    """Move the end as the form says."""
    minutes = _minutes({"minutes": form_field(form, "minutes")})
    asked = _validated(ExtendLabletRequest, minutes=minutes, reason=form_reason(form))
    version = form_version(form)
    return Lablet.model_validate_json(
        await services.lablets.extend(caller, lablet_id, asked, if_match=version, key=key)
    )


def extension_text(lablet: Lablet) -> str:
    """What a toast says after an extension."""
    return f"{lablet.name}: the end was moved"


@router.get("/lablets/{lablet_id}/confirm-extend")
async def confirm_extension(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """By how much the end can be moved."""
    services = get_services(request)
    lablet = await read_lablet(services, user.caller, lablet_id)
    return await render_extension_dialog(services, lablet, f"/lablets/{lablet.id}")


@router.get("/lablets/{lablet_id}/extension")
async def extension_preview(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """What the chosen extension does."""
    services = get_services(request)
    return await render_extension_preview(request, services, await read_lablet(services, user.caller, lablet_id))


@router.post("/lablets/{lablet_id}/extend")
async def extend_lablet(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """Move the end, unless the lablet changed since the dialog was opened."""
    form, services = await read_form(request), get_services(request)
    await read_lablet(services, user.caller, lablet_id)
    key = form_key(request, user.caller, form)
    lablet = await extend_from_form(services, user.caller, lablet_id, form, key)
    return render_toast(extension_text(lablet), triggers=DONE_EVENT)


@router.get("/lablets/{lablet_id}/confirm-reset")
async def confirm_reset(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """What a reset would do and lose."""
    services = get_services(request)
    lablet = await read_lablet(services, user.caller, lablet_id)
    asked = PreviewLabletRequest(action=LabletAction.RESET)
    preview = await preview_lablet_action(services.context, lablet, asked)
    return render_fragment(
        "shared/_confirm.html", action_url=f"/lablets/{lablet.id}/reset", record=lablet, preview=preview, name="Reset"
    )


@router.post("/lablets/{lablet_id}/reset")
async def reset_lablet(request: Request, user: EnderUser, lablet_id: str) -> HTMLResponse:
    """Request a new lab, unless the lablet changed since the dialog was opened."""
    form, services = await read_form(request), get_services(request)
    lablet = await read_lablet(services, user.caller, lablet_id)
    require_typed_text(form, lablet.name, "name of the lablet")
    key, version = form_key(request, user.caller, form), form_version(form)
    await services.lablets.reset(user.caller, lablet_id, reason=form_reason(form), if_match=version, key=key)
    return render_toast(f"{lablet.name}: reset requested", triggers=DONE_EVENT)


def _minutes(values: Any) -> Any:
    text = str(values.get("minutes", "")).strip()
    return parse_number(text) if text else None


def _validated(model: Any, **fields: Any) -> Any:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        path, problem = next(problems_of(error))
        name = ".".join(path) or "minutes"
        raise ProblemError(ProblemCode.INVALID, f"{name}: {problem}") from None
