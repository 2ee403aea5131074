"""The dialog with the seat links of a lablet: create one, copy it, revoke it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.teams.visibility import require_manages
from lcm.control_plane.web.auth import CreatorUser
from lcm.control_plane.web.forms import form_field, form_key_only, read_form
from lcm.control_plane.web.lablets.detail_page import read_lablet
from lcm.control_plane.web.rendering import render_fragment
from lcm.core import clock
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.services import Services
    from lcm.model.lablet.record import Lablet
    from lcm.model.lablet.seat_link import SeatLink

router = APIRouter(include_in_schema=False)
LINK_HOURS: Final = (4, 24, 72, 168)


@router.get("/lablets/{lablet_id}/seat-links")
async def seat_links_dialog(request: Request, user: CreatorUser, lablet_id: str) -> HTMLResponse:
    """The links that are open, and a form for another."""
    services = get_services(request)
    return await _render(services, await _managed(services, user, lablet_id))


@router.post("/lablets/{lablet_id}/seat-links")
async def create_seat_link(request: Request, user: CreatorUser, lablet_id: str) -> HTMLResponse:
    """Create a link; the dialog shows it once."""
    form, services = await read_form(request), get_services(request)
    lablet = await _managed(services, user, lablet_id)
    text = form_field(form, "hours")
    if text not in {str(each) for each in LINK_HOURS}:
        allowed = ", ".join(str(each) for each in LINK_HOURS)
        raise ProblemError(ProblemCode.INVALID, f"hours: must be one of {allowed}")
    expires_at = clock.now() + timedelta(hours=int(text))
    key = form_key_only(request, user.caller, form)
    link, path = await services.seat_links.create(user.caller, lablet, expires_at, key)
    address = f"{request.url.scheme}://{request.url.netloc}{path.reveal()}"
    return await _render(services, lablet, created=link, address=address)


@router.post("/lablets/{lablet_id}/seat-links/{link_id}/revoke")
async def revoke_seat_link(request: Request, user: CreatorUser, lablet_id: str, link_id: str) -> HTMLResponse:
    """Revoke a link; what it has opened ends."""
    services = get_services(request)
    lablet = await _managed(services, user, lablet_id)
    await services.seat_links.revoke(user.caller, lablet.id, link_id)
    return await _render(services, lablet)


async def _managed(services: Services, user: CreatorUser, lablet_id: str) -> Lablet:
    """A lablet whose links the user may see and make."""
    lablet = await read_lablet(services, user.caller, lablet_id)
    require_manages(user.caller, lablet)
    return lablet


async def _render(
    services: Services, lablet: Lablet, *, created: SeatLink | None = None, address: str = ""
) -> HTMLResponse:
    now = clock.now()
    links = (await services.seat_links.page(lablet.id)).items
    current = [link for link in links if link.revoked_at is None and (link.expires_at > now or link.opened)]
    return render_fragment(
        "lablets/_seat_links.html", lablet=lablet, links=current, created=created, address=address, hours=LINK_HOURS
    )
