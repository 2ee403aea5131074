"""Seat links: each lets whoever holds it use one lablet, without an account."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lcm.model.base import LenientModel, Record, RequestedTime, RevealedSecret, StrictModel, UtcDatetime
from lcm.model.lablet.record import LabletId
from lcm.model.validation import text_like

SeatLinkId = Annotated[str, text_like(r"^[a-z0-9-]{1,32}$", "the id of a seat link, as listed")]


class CreateSeatLinkRequest(StrictModel):
    """Create a seat link."""

    expires_at: RequestedTime | None = Field(
        default=None, description="Until when it can be opened; 24 hours from now if not given, 30 days at most."
    )


class SeatLink(Record):
    """A seat link, without its secret."""

    id: SeatLinkId
    lablet_id: LabletId
    created_at: UtcDatetime
    created_by: str
    expires_at: UtcDatetime = Field(description="Until when it can be opened.")
    revoked_at: UtcDatetime | None = None
    revoked_by: str | None = None
    opened: int = Field(default=0, description="How often it was opened.")
    last_opened_at: UtcDatetime | None = None


class CreatedSeatLink(LenientModel):
    """A new seat link. Its path contains the secret, which is returned only once."""

    path: RevealedSecret
    link: SeatLink
