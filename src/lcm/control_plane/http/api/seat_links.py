"""Routes for seat links, which let people use one lablet without an account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import SecretStr

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.http.deps import InstructorWriter
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, Limit, SeatLinkPage
from lcm.control_plane.http.query_params import LabletIdPath
from lcm.control_plane.services import Services, get_services
from lcm.control_plane.teams.visibility import require_manages
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.seat_link import CreatedSeatLink, CreateSeatLinkRequest, SeatLink

router = APIRouter(
    prefix="/api/lablets/{lablet_id}/seat-links", tags=["lablets"], responses=error_responses(401, 403, 404, 422, 429)
)

LinkIdPath = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,32}$", description="The id of the seat link, as listed.")]


@router.get("")
async def list_seat_links(
    request: Request, caller: InstructorWriter, lablet_id: LabletIdPath, limit: Limit = 100, cursor: Cursor = None
) -> SeatLinkPage:
    """List the seat links of a lablet, also those that expired or were revoked lately."""
    services = get_services(request)
    await _require_managed(services, caller, lablet_id)
    page = await services.seat_links.page(lablet_id, after=cursor, limit=limit)
    return SeatLinkPage(items=tuple(page.items), next_cursor=page.next_cursor)


@router.post("", status_code=201, responses=error_responses(409))
async def create_seat_link(
    request: Request, caller: InstructorWriter, lablet_id: LabletIdPath, body: CreateSeatLinkRequest | None = None
) -> CreatedSeatLink:
    """Create a link with which anyone can use this lablet, and nothing else. Only this response contains it."""
    lablet = await _require_managed(get_services(request), caller, lablet_id)
    expires_at = None if body is None else body.expires_at
    link, path = await get_services(request).seat_links.create(caller, lablet, expires_at)
    return CreatedSeatLink(path=SecretStr(path.reveal()), link=link)


@router.delete("/{link_id}")
async def revoke_seat_link(
    request: Request, caller: InstructorWriter, lablet_id: LabletIdPath, link_id: LinkIdPath
) -> SeatLink:
    """Revoke a seat link: it opens nothing any more, and the sessions and streams that it opened end."""
    await _require_managed(get_services(request), caller, lablet_id)
    return await get_services(request).seat_links.revoke(caller, lablet_id, link_id)


async def _require_managed(services: Services, caller: Caller, lablet_id: str) -> Lablet:
    """The lablet. Its links are for those who manage its team."""
    lablet = Lablet.model_validate_json((await services.lablets.get(caller, lablet_id)).body)
    require_manages(caller, lablet)
    return lablet
