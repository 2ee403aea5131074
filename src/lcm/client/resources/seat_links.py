"""Seat links of lablets, for people who give them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, Resource, api_path, encode_body
from lcm.client.responses import ApiRequest
from lcm.model.base import Page
from lcm.model.lablet.seat_link import CreatedSeatLink, CreateSeatLinkRequest, SeatLink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime


class SeatLinks(Resource):
    """Seat links. The secret of one is in the response of its creation only."""

    def list(self, lablet_id: str, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[SeatLink]:
        """The links of a lablet."""
        path = api_path("lablets", lablet_id, "seat-links")
        return self._pages("seat-links.list", path, Page[SeatLink], {}, page_size)

    async def create(self, lablet_id: str, *, expires_at: datetime | None = None) -> CreatedSeatLink:
        """Create a link. Without a time it can be opened for 24 hours."""
        body = encode_body(CreateSeatLinkRequest(expires_at=expires_at))
        path = api_path("lablets", lablet_id, "seat-links")
        return await self._send(ApiRequest("seat-links.create", "POST", path, body=body), CreatedSeatLink)

    async def revoke(self, lablet_id: str, link_id: str) -> SeatLink:
        """Revoke a link: what it has opened ends."""
        path = api_path("lablets", lablet_id, "seat-links", link_id)
        return await self._send(ApiRequest("seat-links.revoke", "DELETE", path), SeatLink)
